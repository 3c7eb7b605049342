"""Streams of the client for scripts."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import hawser
import shop
import test_process
import test_streams
from hawser import _streams


def script(work: Callable[[test_streams.Server, hawser.blocking.Client], None]) -> None:
    """Runs `work` on a thread, beside a server that runs on an event loop."""

    async def main() -> None:
        served = test_streams.Server()
        async with served.server:

            def run() -> None:
                with hawser.blocking.connect(served.server.address) as client:
                    work(served, client)

            await asyncio.to_thread(run)

    test_streams.run(main())


def test_items_arrive_in_order() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        for method in ("count", test_streams.count):
            for upto in (0, 1, 10_000):
                with client.open(method, upto) as call:
                    assert list(call) == list(range(upto))
                    assert call.result() is None
                    with pytest.raises(StopIteration):
                        next(call)
        for summing in ("total", test_streams.total):
            with client.open(summing) as call:
                for i in range(10_000):
                    call.write(i)
                assert call.result() == sum(range(10_000))
        with client.open("orders") as call:
            call.write(shop.ORDER)
            assert next(call).items[0].name == "rope"

    script(work)


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_one_thread_writes_and_one_reads(size: int) -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        with client.open("echo") as call:

            def send() -> None:
                for i in range(100):
                    call.write(bytes([i]) * size)
                call.drain()
                call.end()

            sending = threading.Thread(target=send)
            sending.start()
            assert list(call) == [bytes([i]) * size for i in range(100)]
            sending.join()
            reply = call.reply()
            assert (reply.value, reply.metadata) == ("all", [("key", "value")])

    script(work)


class EagerCore:
    """A stream whose items another thread delivers before ask() returns."""

    own_process = True
    asked = 0

    def set_sinks(self, on_items: Any, _: Any) -> None:
        self.on_items = on_items

    def ask(self) -> None:
        self.asked += 1
        self.on_items([self.asked], False, None)


def test_items_that_come_before_the_request_for_them_returns() -> None:
    core = EagerCore()
    state = _streams.StreamState(core)  # type: ignore[arg-type]
    for number in (1, 2):
        state._ask()
        assert state._take(StopIteration) == number


def test_memory_is_free_after_drain() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        memory = bytearray(100_000)
        with client.open("echo") as call:
            call.write(memory)
            assert len(next(call)) == len(memory)
            call.drain()
            memory.append(0)

    script(work)


def test_errors_come_behind_the_items() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        with client.open("raises_after", 3) as call:
            assert [next(call) for _ in range(3)] == [0, 1, 2]
            for attempt in (call.__next__, call.__next__):
                with pytest.raises(hawser.Error, match="no rope"):
                    attempt()
            with pytest.raises(hawser.Error, match="no rope"):
                call.result()
        with client.open("endless", 10, timeout=0.05) as call:
            with pytest.raises(hawser.DeadlineExceeded):
                for item in call:
                    assert len(item) == 10
        with client.open("returns_early") as call:
            call.write(b"x")
            assert call.result() == "one"
            with pytest.raises(hawser.Error, match="has ended"):
                call.write(b"y")

    script(work)


def test_leaving_the_block_cancels_the_call() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        with pytest.raises(KeyError):
            with client.open("endless", 1000) as call:
                next(call)
                raise KeyError
        memory = bytearray(1 << 20)
        with client.open("never_reads") as writing:
            writing.write(memory[:100])
            refused = []

            def send() -> None:
                try:
                    while True:
                        writing.write(memory)
                except hawser.Error as error:
                    refused.append(error.code)

            sender = threading.Thread(target=send)
            sender.start()
        sender.join()
        assert refused == [hawser.ErrorCode.CANCELLED]
        memory.append(0)  # Nothing refers to it.
        with client.open("count", 10) as call:
            assert list(call) == list(range(10))

    script(work)


def test_a_child_of_fork_uses_no_call_of_its_parent() -> None:
    process = test_process.script(
        test_process.SERVER_ON_A_THREAD
        + """
        with hawser.blocking.connect(address[0]) as client, client.open("shop::sums", 0) as call:
            call.write(1)
            assert next(call) == 1
            if os.fork() == 0:
                failed = []
                for use in (lambda: next(call), lambda: call.write(2), call.drain, call.result):
                    try:
                        use()
                    except hawser.Error as error:
                        failed.append("parent process" in str(error))
                call.__exit__()
                os._exit(0 if failed == [True] * 4 else 2)
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            call.write(2)
            assert (next(call), call.result()) == (3, 2)
        print("parent goes on", flush=True)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output == "parent goes on\n", errors


def test_a_child_of_fork_does_not_wait_for_items_that_its_parent_asked_for() -> None:
    process = test_process.script(
        test_process.SERVER_ON_A_THREAD
        + """
        wait_once = hawser.blocking._wait_once

        def interrupted(_):
            hawser.blocking._wait_once = wait_once
            raise KeyboardInterrupt

        with hawser.blocking.connect(address[0]) as client, client.open("shop::sums", 0) as call:
            hawser.blocking._wait_once = interrupted
            try:
                next(call)
            except KeyboardInterrupt:
                print("left", flush=True)
            child = os.fork()
            if child == 0:
                try:
                    next(call)
                except hawser.Error as error:
                    os._exit(0 if "parent process" in str(error) else 2)
                os._exit(3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            call.write(5)
            assert next(call) == 5
        print("parent goes on", flush=True)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output == "left\nparent goes on\n", errors


def test_misuse_is_an_error() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        with pytest.raises(TypeError, match="plain has no streams: use call"):
            with client.open("plain", 1):
                pass
        with pytest.raises(TypeError, match="count has streams: use client.open"):
            client.call("count", 1)
        with pytest.raises(RuntimeError, match="has not begun"):
            next(client.open("count", 1))
        with client.open("count", 1) as call:
            with pytest.raises(RuntimeError, match="opened once"):
                call.__enter__()
            with pytest.raises(TypeError, match="no stream in this direction"):
                call.write(1)
        with client.open("total") as call:
            with pytest.raises(TypeError):
                call.write("text")
            call.end()
            with pytest.raises(RuntimeError, match="after end"):
                call.write(1)
            assert call.result() == 0

    script(work)


def test_calls_leave_nothing_behind() -> None:
    def work(_: test_streams.Server, client: hawser.blocking.Client) -> None:
        kept: list[weakref.ref[Any]] = []
        for early in (False, True):
            with client.open("echo") as call:
                call.write(b"x" * 20_000)
                next(call)
                if not early:
                    call.result()
            kept += [weakref.ref(call._streams()), weakref.ref(call)]
            del call
        gc.collect()
        assert [one() for one in kept] == [None] * 4

    script(work)
