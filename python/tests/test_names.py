"""Clients of names, behind which there are several servers."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import textwrap
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import hawser
import test_process
import test_streams


class Group:
    """Servers whose handlers return the number of their server."""

    def __init__(self, count: int) -> None:
        self.servers = [hawser.Server() for _ in range(count)]
        self.waiting, self.ended = asyncio.Event(), asyncio.Event()
        for number, server in enumerate(self.servers):
            self._add(server, number)

    def _add(self, server: hawser.Server, number: int) -> None:
        @server.method
        async def which(context: hawser.Context, data: bytes) -> int:
            context.set_attachment(data)
            return number

        @server.method
        async def numbers(items: hawser.Reader[int], out: hawser.Writer[int]) -> int:
            async for item in items:
                await out.write(10 * item)
            return number

        @server.method
        async def waits() -> None:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()

    @property
    def name(self) -> str:
        return "list:" + ",".join(server.address for server in self.servers)


@contextlib.asynccontextmanager
async def group(count: int = 3) -> AsyncIterator[Group]:
    made = Group(count)
    async with contextlib.AsyncExitStack() as stack:
        for server in made.servers:
            await stack.enter_async_context(server)
        yield made


@hawser.declare()
def which(data: bytes) -> int: ...  # type: ignore[empty-body]


def test_calls_are_spread_over_the_servers() -> None:
    async def main() -> None:
        async with group() as servers, hawser.connect(servers.name, balancing="round_robin") as client:
            for method in ("which", which):
                seen: set[int] = set()
                while seen != {0, 1, 2}:  # A connection may come later than others.
                    seen.add(await client.call(method, b""))
            reply = await client.call_with_reply("which", b"x" * 20_000, metadata={"key": "value"}, idempotent=True)
            assert bytes(reply.attachment or b"") == b"x" * 20_000
            with pytest.raises(hawser.Error) as caught:
                await client.call("nowhere")
            assert caught.value.code == hawser.ErrorCode.UNKNOWN_METHOD

    test_streams.run(main())


def test_a_stream_stays_at_its_server() -> None:
    async def main() -> None:
        async with group() as servers, hawser.connect(servers.name, balancing="round_robin") as client:
            seen: set[int] = set()
            while seen != {0, 1, 2}:
                async with client.open("numbers") as call:
                    for i in range(100):
                        await call.write(i)
                    call.end()
                    assert [item async for item in call] == [10 * i for i in range(100)]
                    seen.add(await call.result())

    test_streams.run(main())


def test_a_cancelled_task_ends_the_handler() -> None:
    async def main() -> None:
        async with group() as servers, hawser.connect(servers.name) as client:
            call = asyncio.ensure_future(client.call("waits"))
            await servers.waiting.wait()
            call.cancel()
            await servers.ended.wait()

    test_streams.run(main())


def test_a_file_names_the_servers(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with group(2) as servers:
            names = tmp_path / "servers"
            names.write_text("".join(server.address + "\n" for server in servers.servers), encoding="utf-8")

            def work() -> None:
                with hawser.blocking.connect(f"file:{names}", balancing="pick_first") as client:
                    assert {client.call("which", b"") for _ in range(10)} <= {0, 1}
                    with client.open("numbers") as call:
                        call.write(1)
                        assert next(call) == 10
                        assert call.result() in (0, 1)

            await asyncio.to_thread(work)

    test_streams.run(main())


FRAGILE = """
    import asyncio, os, sys, hawser

    server = hawser.Server()

    @server.method
    async def fragile(marker: str) -> int:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return 7
        os._exit(1)

    async def main():
        async with server:
            print(server.address, flush=True)
            await server.serve_forever()

    asyncio.run(main())
"""


@contextlib.contextmanager
def fragile_servers(count: int) -> Iterator[str]:
    """The name of servers of which the first one that is called with a marker ends without an answer."""
    processes = [test_process.script(textwrap.dedent(FRAGILE)) for _ in range(count)]
    try:
        yield "list:" + ",".join(process.stdout.readline().strip() for process in processes if process.stdout)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_only_idempotent_calls_are_made_again_at_another_server(tmp_path: pathlib.Path) -> None:
    with fragile_servers(3) as name, hawser.blocking.connect(name) as client:
        with pytest.raises(hawser.Error) as caught:
            client.call("fragile", str(tmp_path / "first"))
        assert caught.value.code == hawser.ErrorCode.OUTCOME_UNKNOWN
        assert client.call("fragile", str(tmp_path / "second"), idempotent=True) == 7
        with hawser.blocking.connect(name, retry=hawser.Retry(attempts_max=1)) as once:
            with pytest.raises(hawser.Error) as caught:
                once.call("fragile", str(tmp_path / "third"), idempotent=True)
            assert caught.value.code == hawser.ErrorCode.OUTCOME_UNKNOWN


@pytest.mark.parametrize("name", ["list:", "list:nowhere", "dns:", "file:"])
def test_a_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(hawser.Error) as caught:
        hawser.blocking.connect(name)
    assert caught.value.code == hawser.ErrorCode.INVALID_ARGUMENT


def test_servers_need_not_be_reachable_before_a_call(tmp_path: pathlib.Path) -> None:
    with hawser.blocking.connect(f"list:unix:{tmp_path}/nowhere", retry=hawser.Retry(attempts_max=1)) as client:
        with pytest.raises(hawser.Error):
            client.call("which", b"", timeout=0.1)


def test_misuse_is_an_error() -> None:
    given: list[tuple[str, dict[str, Any]]] = [
        ("list:a:1", {"balancing": "best"}),
        ("a:1", {"balancing": "random"}),
        ("a:1", {"retry": hawser.Retry()}),
    ]
    for address, options in given:
        with pytest.raises(ValueError, match="balancing"):
            hawser.blocking.connect(address, **options)
    with pytest.raises(ValueError, match="attempts_max is 0"):
        hawser.Retry(attempts_max=0)
    with pytest.raises(TypeError, match="pause"):
        hawser.blocking.connect("list:a:1", retry=hawser.Retry(backoff_first=None))  # type: ignore[arg-type]
    with hawser.blocking.connect("list:a:1") as client:
        region = hawser.Region(8, True, False, 1, 1, 1, 1, [hawser.Place(0, 0, 0)] * 16)
        with pytest.raises(hawser.Error, match="connect to the server's address"):
            client.read(region, bytearray(8))
        with pytest.raises(hawser.Error, match="connect to the server's address"):
            client.register(bytearray(8))
