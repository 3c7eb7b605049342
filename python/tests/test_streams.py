"""Streams between a client and a server in Python."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import select
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

import hawser
import shop


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 500))


@hawser.declare()
def count(upto: int) -> AsyncIterator[int]: ...  # type: ignore[empty-body]


@hawser.declare()
def total(items: hawser.Reader[int]) -> int: ...  # type: ignore[empty-body]


class Server:
    """A server with methods that have streams, and what its handlers have seen."""

    def __init__(self) -> None:
        self.server = hawser.Server()
        self.written = 0
        self.ended = asyncio.Event()
        self.begun = asyncio.Event()
        self.closed = 0
        method = self.server.method

        @method
        async def count(upto: int) -> AsyncIterator[int]:
            for i in range(upto):
                yield i

        @method
        async def total(items: hawser.Reader[int]) -> int:
            return sum([item async for item in items])

        @method
        async def echo(context: hawser.Context, items: hawser.Reader[bytes], out: hawser.Writer[bytes]) -> str:
            context.add_metadata("key", "value")
            async for item in items:
                await out.write(item)
            return "all"

        @method
        async def orders(items: AsyncIterator[shop.Order]) -> AsyncIterator[shop.Order]:
            async for item in items:
                yield item

        @method
        async def endless(size: int) -> AsyncIterator[bytes]:
            block = bytes(size)
            try:
                while True:
                    yield block
                    self.written += 1
            finally:
                self.closed += 1
                self.ended.set()

        @method
        async def never_reads(items: hawser.Reader[bytes]) -> None:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()

        @method
        async def raises_after(upto: int) -> AsyncIterator[int]:
            for i in range(upto):
                yield i
            raise hawser.Error("no rope", application_code=7)

        @method
        async def raises_unknown() -> AsyncIterator[int]:
            yield 1
            raise RuntimeError("a secret")

        @method
        async def yields_text() -> AsyncIterator[int]:
            yield "text"  # type: ignore[misc]

        @method
        async def returns_early(items: hawser.Reader[bytes]) -> str:
            async for _ in items:
                return "one"
            return "none"

        @method
        async def plain(a: int) -> int:
            return a

        @method
        async def keeps(items: hawser.Reader[int]) -> None:
            self.kept = items


@contextlib.asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[Server, hawser.Client]]:
    served = Server()
    async with served.server, hawser.connect(served.server.address, **options) as client:
        yield served, client


def test_write_waits_for_room_and_not_for_an_earlier_event() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("never_reads") as call:
                await call.write(bytes(200_000))  # Leaves room, so that nothing waits.
                # It has been sent, as an event says which the loop has not received yet.
                select.select([client._hub.descriptor], [], [])
                for _ in range(12):  # More than the rest of the credit. Short items are copied and have no event.
                    await call.write(bytes(7000))
                writing = asyncio.ensure_future(call.write(bytes(250_000)))
                await client.call("plain", 1)  # Its reply comes behind the event.
                assert not writing.done()
            with pytest.raises(hawser.Error, match="cancelled"):
                await writing

    run(main())


@pytest.mark.parametrize("transports", [["shm"], []])
def test_items_of_a_generator_arrive_in_order(transports: list[str]) -> None:
    async def main() -> None:
        async with pair(transports=transports) as (_, client):
            for method in ("count", count):
                for upto in (0, 1, 10_000):
                    async with client.open(method, upto) as call:
                        assert [item async for item in call] == list(range(upto))
                        assert await call.result() is None
                        with pytest.raises(StopAsyncIteration):
                            await call.__anext__()

    run(main())


def test_items_of_the_client_arrive_in_order() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            for method in ("total", total):
                async with client.open(method) as call:
                    for i in range(10_000):
                        await call.write(i)
                    assert await call.result() == sum(range(10_000))

    run(main())


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_both_directions_and_the_reply(size: int) -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("echo") as call:

                async def send() -> None:
                    for i in range(100):
                        await call.write(bytes([i]) * size)
                    await call.drain()
                    call.end()

                sending = asyncio.create_task(send())
                assert [item async for item in call] == [bytes([i]) * size for i in range(100)]
                await sending
                reply = await call.reply()
                assert (reply.value, reply.metadata) == ("all", [("key", "value")])

    run(main())


def test_items_are_structs() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("orders") as call:
                await call.write(shop.ORDER)
                received = await call.__anext__()
                assert (received.id, received.items[0].name) == (41, "rope")
                call.end()
                assert [one async for one in call] == []

    run(main())


def test_memory_may_change_after_drain() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("echo") as call:
                memory = bytearray(50_000)
                received = []
                for i in range(20):
                    memory[:] = bytes([i]) * len(memory)
                    await call.write(memory)
                    await call.drain()
                    received.append(await call.__anext__())
                memory.append(0)  # Nobody has it any more.
                assert received == [bytes([i]) * 50_000 for i in range(20)]

    run(main())


def test_a_writer_waits_for_a_reader() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            async with client.open("endless", 10_000) as call:
                # The bound is a credit, a queue and a batch of 256 KiB each.
                for _ in range(200):
                    assert await call.__anext__() == bytes(10_000)
                assert served.written <= 200 + 3 * (27 + 1)
            await served.ended.wait()
            assert served.closed == 1
            async with client.open("never_reads") as call:
                written = 0

                async def write() -> None:
                    nonlocal written
                    while True:
                        await call.write(bytes(10_000))
                        written += 1

                writing = asyncio.create_task(write())
                # The number does not grow further once both queues are full.
                while written < 40:
                    await asyncio.sleep(0)
                await asyncio.wait({writing}, timeout=0.3)
                assert written <= 3 * (27 + 1) and not writing.done()
                writing.cancel()

    run(main())


def test_an_error_follows_the_items() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("raises_after", 3) as call:
                seen = []
                with pytest.raises(hawser.Error) as caught:
                    async for item in call:
                        seen.append(item)
                assert (seen, caught.value.application_code) == ([0, 1, 2], 7)
                with pytest.raises(hawser.Error) as caught:
                    await call.result()
                assert caught.value.application_code == 7
            for method, seen_first in (("raises_unknown", [1]), ("yields_text", [])):
                async with client.open(method) as call:
                    seen = []
                    with pytest.raises(hawser.Error) as caught:
                        async for item in call:
                            seen.append(item)
                    assert seen == seen_first and "secret" not in caught.value.text

    run(main())


def test_a_cancelled_task_cancels_the_call() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            reading = asyncio.Event()

            async def waits() -> None:
                async with client.open("never_reads") as call:
                    await served.begun.wait()  # Before that, the handler would not be started.
                    reading.set()
                    await call.result()

            async def read_endless() -> None:
                async with client.open("endless", 10) as call:
                    async for _ in call:
                        reading.set()

            for body in (waits, read_endless):
                served.ended.clear()
                reading.clear()
                task = asyncio.create_task(body())
                await reading.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await served.ended.wait()
            # An exception of the block, and the end of a block in which nothing was read.
            served.ended.clear()
            with pytest.raises(ZeroDivisionError):
                async with client.open("endless", 10) as call:
                    await call.__anext__()
                    raise ZeroDivisionError
            await served.ended.wait()
            assert await client.call("plain", 5) == 5

    run(main())


def test_a_deadline_ends_a_stream() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("never_reads", timeout=0.05) as call:
                with pytest.raises(hawser.DeadlineExceeded):
                    while True:
                        await call.write(bytes(1000))
                with pytest.raises(hawser.DeadlineExceeded):
                    await call.result()
            # Also if the event loop learns of it late.
            async with client.open("never_reads", timeout=0.05) as call:
                time.sleep(0.2)
                with pytest.raises(hawser.DeadlineExceeded):
                    while True:
                        await call.write(bytes(1000))
            # Without a timeout there is none, whatever call_timeout is.
            async with client.open("count", 1, timeout=math.inf) as call:
                assert [item async for item in call] == [0]

    run(main())


def test_all_that_wait_for_sending_are_woken() -> None:
    async def main() -> None:
        async with pair() as (_, client), client.open("never_reads") as call:

            async def fill() -> None:
                while True:
                    await call.write(bytes(100_000))

            waiting = [asyncio.create_task(wait) for wait in (fill(), call.drain(), call.drain())]
            await asyncio.sleep(0)  # The first step of each.
            await client.close()
            filled, *drained = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(filled, hawser.Error)
            for outcome in drained:  # The queue may have been empty for a moment.
                assert outcome is None or isinstance(outcome, hawser.Error)

    run(main())


def test_an_item_just_before_the_end_is_not_lost() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            for count in range(200):
                async with client.open("total") as call:
                    for _ in range(count % 8):
                        await call.write(1)
                    assert await call.result() == count % 8

    run(main())


def test_a_handler_may_answer_before_the_stream_has_ended() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            async with client.open("returns_early") as call:
                with pytest.raises(hawser.Error) as caught:
                    while True:
                        await call.write(bytes(1000))
                assert caught.value.code == hawser.ErrorCode.CANCELLED
                assert await call.result() == "one"

    run(main())


def test_wrong_use_is_refused() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            with pytest.raises(TypeError, match="count has streams: use client.open"):
                await client.call("count", 1)
            with pytest.raises(TypeError, match="plain has no streams: use call"):
                async with client.open("plain", 1):
                    pass
            call = client.open("total")
            with pytest.raises(RuntimeError, match="has not begun"):
                await call.write(1)
            async with call:
                with pytest.raises(TypeError, match="expected int64, not str"):
                    await call.write("text")
                with pytest.raises(TypeError, match="total has no stream in this direction"):
                    await call.__anext__()
                await call.write(1)
                call.end()
                with pytest.raises(RuntimeError, match="after end"):
                    await call.write(2)
                assert await call.result() == 1
            with pytest.raises(RuntimeError, match="opened once"):
                async with call:
                    pass
            async with client.open("count", 1) as call:
                with pytest.raises(TypeError, match="count has no stream in this direction"):
                    await call.write(1)
            async with client.open("echo") as call:
                first = asyncio.create_task(_read_all(call))
                await asyncio.sleep(0)  # Its first step, in which it waits.
                with pytest.raises(RuntimeError, match="two tasks or threads read one stream"):
                    await call.__anext__()
                call.end()
                await first
            with pytest.raises(hawser.Error) as caught:
                async with client.open("absent"):
                    pass
            assert caught.value.code == hawser.ErrorCode.UNKNOWN_METHOD
            # A handler that keeps its reader gets an end or an error, and never waits for ever.
            async with client.open("keeps") as call:
                await call.result()
            with pytest.raises(hawser.Error):
                await served.kept.__anext__()

    run(main())


async def _read_all(call: hawser.StreamingCall[Any, Any]) -> None:
    async for _ in call:
        pass


def test_wrong_signatures_are_refused() -> None:
    server = hawser.Server()
    with pytest.raises(TypeError, match="not its last parameters"):

        @server.method
        async def first(items: hawser.Reader[int], a: int) -> None: ...

    with pytest.raises(TypeError, match="more than one stream in one direction"):

        @server.method
        async def two(a: hawser.Reader[int], b: hawser.Reader[int]) -> None: ...

    with pytest.raises(TypeError, match="declare it to return AsyncIterator"):

        @server.method  # type: ignore[type-var]
        async def generator() -> int:  # type: ignore[misc]
            yield 1

    with pytest.raises(TypeError, match="needs the type of its items"):

        @server.method
        async def bare(items: hawser.Reader) -> None: ...  # type: ignore[type-arg]


def test_the_end_of_the_client_and_of_the_server_end_streams() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            async with client.open("endless", 10) as call:
                await call.__anext__()
                await client.close()
                with pytest.raises(hawser.Error):
                    await _read_all(call)
                with pytest.raises(hawser.Error):
                    await call.result()
            async with hawser.connect(served.server.address) as other, other.open("endless", 10) as call:
                await call.__anext__()
                await served.server.stop(0)
                with pytest.raises(hawser.Error):
                    await _read_all(call)

    run(main())


def test_streams_leave_no_objects() -> None:
    async def main() -> None:
        async with pair() as (_, client):

            async def batch(calls: int) -> None:
                for _ in range(calls):
                    async with client.open("echo") as call:
                        await call.write(b"x" * 10_000)
                        call.end()
                        assert [one async for one in call] == [b"x" * 10_000]
                    async with client.open("endless", 10) as call:
                        await call.__anext__()

            async def refused(calls: int) -> None:
                for _ in range(calls):
                    with pytest.raises(TypeError):
                        async with client.open("count", "text"):
                            pass

            await batch(50)
            await refused(10)
            gc.collect()
            objects = len(gc.get_objects())
            await batch(200)
            await refused(1000)
            gc.collect()
            assert len(gc.get_objects()) - objects < 100

    run(main())
