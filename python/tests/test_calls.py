"""Client and server, both in Python."""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Callable

import pytest

import hawser
import shop


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 500))


@contextlib.asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[shop.Shop, hawser.Client]]:
    served = shop.Shop()
    options.setdefault("call_timeout", None)
    async with served.server, hawser.connect(served.server.address, **options) as client:
        yield served, client


@pytest.mark.parametrize("transports", [["shm"], []])
def test_values_arrive_by_description_and_by_declaration(transports: list[str]) -> None:
    async def main() -> None:
        async with pair(transports=transports) as (_, client):
            assert await client.call("shop::add", 2, 3) == 5
            declared = await client.call(shop.order, shop.ORDER)
            assert declared.id == 42
            assert declared.items == shop.ORDER.items
            assert declared.color is shop.Color.BLUE
            assert declared.note == "quick"
            # Without declarations, structs are dataclasses that are made for them; a dict is an argument too.
            described = await client.call("shop::order", shop.ORDER)
            assert (described.id, described.items[0].tags, described.color) == (42, ["long", "new"], 2)
            as_dict = {"id": 1, "items": [], "stock": {}, "color": 1, "note": 3}
            assert (await client.call("shop::order", as_dict)).note == 3
            assert await client.call(shop.grown, shop.Grown("a", 9)) == shop.Grown("a", 9)
            assert await client.call(shop.sum_of, shop.Node(1, [shop.Node(2, [])])) == 3

    run(main())


def test_large_memory_is_passed_by_the_buffer_protocol() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            large = bytes(range(256)) * 4096
            for memory in (large, bytearray(large), memoryview(large), array.array("B", large)):
                assert await client.call("shop::bytes", memory) == large
            assert await client.call("shop::doubled", array.array("f", [1.5] * 5000)) == [3.0] * 5000
            view = await client.call(shop.bytes_view, memoryview(large))
            assert isinstance(view, memoryview) and view == large
            target = bytearray(len(large))
            result = await client.call("shop::bytes", large, into=target)
            assert target == large and result.obj is target
            # A short result is placed there too.
            result = await client.call("shop::bytes", b"ab", into=target)
            assert bytes(result) == b"ab" and target[:2] == b"ab"
            with pytest.raises(hawser.Error) as caught:
                await client.call("shop::bytes", large, into=bytearray(10))
            assert caught.value.code == hawser.ErrorCode.LIMIT_EXCEEDED

    run(main())


def test_numpy_arrays_are_memory() -> None:
    numpy = pytest.importorskip("numpy")

    async def main() -> None:
        async with pair() as (_, client):
            array = numpy.arange(6000, dtype="f4").reshape(60, 100)
            assert await client.call("shop::doubled", array) == [2.0 * i for i in range(6000)]
            with pytest.raises(TypeError, match="not memory of the format 'd'"):
                await client.call("shop::doubled", array.astype("f8"))
            with pytest.raises(ValueError, match="not C-contiguous"):
                await client.call("shop::doubled", array.T)  # Its elements do not lie in order.
            # As bytes, an array is its memory.
            for some in (array, array[:2], array.astype("f8"), array.astype("complex128"), array[0, 0]):
                assert await client.call("shop::bytes", some) == some.tobytes()
            view = await client.call(shop.bytes_view, array)
            assert (numpy.frombuffer(view, dtype="f4").reshape(array.shape) == array).all()
            with pytest.raises(ValueError, match="not C-contiguous"):
                await client.call("shop::bytes", array.T)
            target = numpy.zeros_like(array)
            reply = await client.call_with_reply("shop::beside", "text", attachment=array, into=target)
            assert (target == array).all()
            assert reply.attachment is not None and reply.attachment.nbytes == array.nbytes

    run(main())


def test_attachment_and_metadata() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            large = b"x" * 100_000
            reply = await client.call_with_reply("shop::beside", "text", attachment=large, metadata={"key": "value"})
            assert reply.value == "text"
            assert bytes(reply.attachment or b"") == large
            assert reply.metadata == [("key", "value")]
            target = bytearray(len(large))
            reply = await client.call_with_reply("shop::beside", "text", attachment=large, into=target)
            assert target == large and reply.attachment is not None and reply.attachment.obj is target
            nothing = await client.call_with_reply("shop::beside", "text")
            assert nothing.attachment is None and nothing.metadata == []

    run(main())


def test_errors_have_code_and_text() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            with pytest.raises(hawser.Error) as caught:
                await client.call("shop::fail")
            assert caught.value.code == hawser.ErrorCode.APPLICATION
            assert (caught.value.application_code, caught.value.text) == (7, "no rope")
            assert caught.value.initiator == hawser.Initiator.PEER
            assert not caught.value.not_executed
            with pytest.raises(hawser.Error) as caught:
                await client.call("shop::absent")
            assert caught.value.code == hawser.ErrorCode.UNKNOWN_METHOD
            assert "shop::absent" in caught.value.text
            with pytest.raises(hawser.Error) as caught:
                await client.call("shop::raises")
            assert "a secret" not in caught.value.text

            @hawser.declare("shop::add")
            def other(a: str) -> int: ...  # type: ignore[empty-body]

            with pytest.raises(hawser.Error) as caught:
                await client.call(other, "1")
            assert caught.value.code == hawser.ErrorCode.SIGNATURE_MISMATCH

    run(main())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((1,), TypeError, "shop::add takes 2 arguments, not 1"),
        (("1", 2), TypeError, "argument 1 of shop::add: expected int64, not str"),
        ((1.5, 2), TypeError, "argument 1 of shop::add: expected int64, not float"),
        ((1, 2**63), OverflowError, "argument 2 of shop::add: 9223372036854775808 is outside the range of int64"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    async def main() -> None:
        async with pair() as (_, client):
            with pytest.raises(error) as caught:
                await client.call("shop::add", *arguments)
            assert str(caught.value) == text

    run(main())


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"timeout": "x"}, TypeError, "must be real number"),
        ({"timeout": -1}, ValueError, "not negative"),
        ({"metadata": 5}, TypeError, "not iterable"),
        ({"metadata": {"a": 5}}, TypeError, "pairs of str"),
        ({"metadata": [("a",)]}, TypeError, "pairs of str"),
        ({"metadata": {"\ud800": "x"}}, UnicodeEncodeError, "surrogates not allowed"),
        ({"attachment": "text"}, TypeError, "bytes-like"),
        ({"into": b"text"}, BufferError, "not writable"),
    ],
)
def test_wrong_options_of_a_call_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    async def main() -> None:
        async with pair() as (_, client):
            with pytest.raises(error, match=text):
                await client.call("shop::add", 1, 2, **options)
            with pytest.raises(TypeError, match="a method is a str or a result of hawser.declare"):
                await client.call(5)  # type: ignore[call-overload]
            assert await client.call("shop::add", 1, 2) == 3

    run(main())


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"calls_in_flight_max": 0}, ValueError, "calls_in_flight_max is 0: give 1 or more"),
        ({"message_bytes_max": -1}, ValueError, "message_bytes_max is -1: give 1 or more"),
        ({"transports": "shm"}, TypeError, "a list of names"),
        ({"transports": ["tcp"]}, ValueError, "a transport is"),
        ({"call_timeout": "x"}, TypeError, "must be real number"),
    ],
)
def test_wrong_options_of_a_client_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    async def main() -> None:
        with pytest.raises(error, match=text):
            await hawser.connect("127.0.0.1:1", **options)

    run(main())


def test_metadata_that_is_not_utf_8_is_sent_back() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            given = {"key": b"\xff\xfe".decode("utf-8", "surrogateescape")}
            reply = await client.call_with_reply("shop::beside", "text", metadata=given)
            assert dict(reply.metadata) == given

    run(main())


def test_another_event_loop_is_refused() -> None:
    async def main() -> None:
        async with pair() as (_, client):

            async def elsewhere() -> None:
                for method in ("shop::add", shop.order):
                    with pytest.raises(RuntimeError, match="belongs to the event loop that connected it"):
                        await client.call(method, 1, 2)

            await asyncio.to_thread(asyncio.run, elsewhere())
            assert await client.call("shop::add", 1, 2) == 3

    run(main())


class Outside(BaseException):
    pass


def test_each_end_of_a_handler_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = hawser.Server(exception_texts=True)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # Outside ends a task, which would be logged.

        def raises(name: str, make: Callable[[], BaseException]) -> None:
            @server.method(name)
            async def handler() -> int:
                raise make()

        raises("base", lambda: Outside("of all"))
        raises("surrogate", lambda: RuntimeError("\ud800"))
        raises("own_surrogate", lambda: hawser.Error("\ud800"))
        raises("no_code", lambda: hawser.Error("text", code=77))  # type: ignore[arg-type]
        raises("no_text", lambda: hawser.Error(5))  # type: ignore[arg-type]
        raises("too_wide", lambda: hawser.Error("text", application_code=1 << 40))

        @server.method
        async def cancelled_before_it_begins() -> None: ...

        @server.method
        async def closed_while_it_waits() -> None:
            await asyncio.Event().wait()

        async with server, hawser.connect(server.address) as client:

            async def answer(name: str) -> str:
                with pytest.raises(hawser.Error) as caught:
                    await client.call(name)
                return caught.value.text

            assert "Outside: of all" in await answer("base")
            assert "RuntimeError: \\ud800" in await answer("surrogate")
            assert await answer("own_surrogate") == "\\ud800"
            assert "77 is not a valid ErrorCode" in await answer("no_code")
            assert await answer("no_text") == "5"
            assert "application_code 1099511627776 is outside the range" in await answer("too_wide")

            create = asyncio.get_running_loop().create_task

            def create_cancelled(coroutine: Any) -> Any:
                task = create(coroutine)
                task.cancel()
                return task

            asyncio.get_running_loop().create_task = create_cancelled  # type: ignore[method-assign,assignment]
            assert await answer("cancelled_before_it_begins") == "the handler was cancelled"

            def create_closed(coroutine: Any) -> Any:
                coroutine.send(None)
                coroutine.close()
                return create(asyncio.sleep(0))

            asyncio.get_running_loop().create_task = create_closed  # type: ignore[method-assign,assignment]
            assert await answer("closed_while_it_waits") == "the handler was cancelled"
            asyncio.get_running_loop().create_task = create  # type: ignore[method-assign]

    caplog.set_level(logging.CRITICAL)
    run(main())


def test_a_wrong_field_is_named_with_its_path() -> None:
    async def main() -> None:
        async with pair() as (_, client):
            wrong = shop.Order(1, [shop.Item("rope", "two", None, [])], {}, shop.Color.RED, 1)  # type: ignore[arg-type]
            with pytest.raises(TypeError) as caught:
                await client.call(shop.order, wrong)
            assert str(caught.value) == "argument 1 of shop::order: .items: [0]: .count: expected int32, not str"

    run(main())


def test_timeout_and_cancellation_reach_the_handler() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            task = asyncio.create_task(client.call("shop::sleep_until_stopped"))
            await served.sleeping.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await served.woken.wait()
            assert served.stopped == 1
            timeout = 0.05
            while served.stopped == 1:
                with pytest.raises(hawser.DeadlineExceeded) as late:  # On a slow machine before the handler begins.
                    await client.call("shop::sleep_until_stopped", timeout=timeout)
                assert isinstance(late.value, TimeoutError)
                timeout *= 2
            assert await client.call("shop::add", 1, 1) == 2

    run(main())


def test_more_calls_than_the_connection_takes_wait_for_their_turn() -> None:
    async def main() -> None:
        async with pair(calls_in_flight_max=7) as (_, client):
            sums = await asyncio.gather(*(client.call("shop::add", i, i) for i in range(500)))
            assert sums == [2 * i for i in range(500)]

        # The server takes 4,096 calls of a connection.
        async with pair(calls_in_flight_max=60_000) as (_, client):
            sums = await asyncio.gather(*(client.call("shop::add", i, i) for i in range(9000)))
            assert sums == [2 * i for i in range(9000)]

    run(main())


def test_cancelled_calls_keep_no_place_from_others() -> None:
    async def main() -> None:
        numbers = random.Random(38)
        async with pair(calls_in_flight_max=20) as (_, client):

            async def one(number: int) -> None:
                kind = numbers.random()
                with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                    if kind < 0.3:
                        await asyncio.wait_for(client.call("shop::sleep_until_stopped"), 0.01 * numbers.random())
                    elif kind < 0.6:
                        await client.call("shop::sleep_until_stopped", timeout=0.01 * numbers.random())
                    elif kind < 0.8:
                        data = bytes(numbers.randrange(100_000))
                        assert await client.call("shop::bytes", data) == data
                    else:
                        assert await client.call("shop::add", 1, number) == 1 + number

            for _ in range(5):
                await asyncio.gather(*(one(i) for i in range(300)))

    run(main())


def test_a_lost_connection_is_replaced_by_the_next_call() -> None:
    async def main() -> None:
        first = shop.Shop()
        await first.server.start()
        address = first.server.address
        client = await hawser.connect(address)
        assert await client.call("shop::add", 1, 2) == 3
        await first.server.stop(0)
        with pytest.raises(hawser.Error) as caught:
            await client.call("shop::add", 1, 2)
        assert caught.value.code in (hawser.ErrorCode.UNAVAILABLE, hawser.ErrorCode.NOT_SENT)
        second = shop.Shop(address)
        await second.server.start()
        assert await client.call("shop::add", 2, 2) == 4
        await client.close()
        with pytest.raises(hawser.Error) as caught:
            await client.call("shop::add", 1, 2)
        assert caught.value.code == hawser.ErrorCode.UNAVAILABLE
        await second.server.stop(0)

    run(main())


def test_a_client_may_be_closed_twice() -> None:
    async def main() -> None:
        async with pair() as (served, client):
            asleep = asyncio.create_task(client.call("shop::sleep_until_stopped"))
            await served.sleeping.wait()
            await asyncio.gather(client.close(), client.close())
            with pytest.raises(hawser.Error, match="the client is closed"):
                await asleep
            await client.close()

            def blocking() -> None:
                with hawser.blocking.connect(served.server.address) as other:
                    other.close()

            await asyncio.to_thread(blocking)

    run(main())


def test_stop_lets_calls_finish_and_then_cancels_them() -> None:
    async def main() -> None:
        served = shop.Shop()
        begun, go_on = asyncio.Event(), asyncio.Event()

        @served.server.method
        async def slow() -> str:
            begun.set()
            await go_on.wait()
            return "finished"

        await served.server.start()
        async with hawser.connect(served.server.address) as client:
            call = asyncio.create_task(client.call("slow"))
            asleep = asyncio.create_task(client.call("shop::sleep_until_stopped"))
            await begun.wait()
            await served.sleeping.wait()
            stop = asyncio.create_task(served.server.stop(0.5))
            go_on.set()
            assert await call == "finished"
            with pytest.raises(hawser.Error):
                await asleep
            await stop
            assert served.stopped == 1

    run(main())


def test_a_refused_connection_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(hawser.Error) as caught:
            await hawser.connect("127.0.0.1:1")
        assert caught.value.code in (hawser.ErrorCode.UNAVAILABLE, hawser.ErrorCode.NOT_SENT)

    run(main())


def test_blocking_client_from_threads() -> None:
    async def main() -> None:
        served = shop.Shop()
        async with served.server:

            def script() -> None:
                with hawser.blocking.connect(served.server.address) as client:
                    assert client.call("shop::add", 2, 3) == 5
                    assert client.call(shop.order, shop.ORDER).id == 42
                    assert client.call_with_reply("shop::beside", "a", attachment=b"b").attachment is not None
                    with pytest.raises(hawser.DeadlineExceeded):
                        client.call("shop::sleep_until_stopped", timeout=0.05)

            await asyncio.gather(*(asyncio.to_thread(script) for _ in range(4)))

    run(main())


def test_annotations_that_cannot_travel_are_refused_when_they_are_registered() -> None:
    server = hawser.Server()
    with pytest.raises(TypeError, match="cannot travel"):

        @server.method
        async def odd(value: object) -> None: ...

    with pytest.raises(TypeError, match="has no annotation"):

        @server.method
        async def bare(value) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="async def"):

        @server.method  # type: ignore[type-var]
        def plain() -> None: ...


def test_the_transport_of_a_connection() -> None:
    async def main() -> None:
        async with hawser.Server(transports=("shm",)) as server:
            async with hawser.connect(server.address, require="stream") as client:
                assert await client.transport() == hawser.Transport("tcp", {})
            async with hawser.connect(server.address, transports=(), require="shm") as client:
                assert await client.transport() == hawser.Transport("shm", {})
            # There is no RDMA device, or the server does not use it.
            async with hawser.connect(server.address, transports=(), rdma=True) as client:
                carrier = await client.transport()
                assert carrier.name == "tcp" and list(carrier.refused) == ["rdma"] and carrier.refused["rdma"] != ""
            with pytest.raises(hawser.Error, match="rdma") as caught:
                await hawser.connect(server.address, require="rdma")
            assert carrier.refused["rdma"] in caught.value.text
            with pytest.raises(ValueError, match="a transport is"):
                await hawser.connect(server.address, require="carrier")
            async with hawser.connect(f"list:{server.address}") as client:
                with pytest.raises(hawser.Error, match="is a name"):
                    await client.transport()

            def use() -> None:
                with hawser.blocking.connect(server.address, require="stream") as blocking:
                    assert blocking.transport().name == "tcp"

            await asyncio.get_running_loop().run_in_executor(None, use)

    asyncio.run(asyncio.wait_for(main(), 500))
