"""Calls a second of one asyncio client with a server in another process: Hawser, grpcio.aio, a bare asyncio protocol.

rate.py [--seconds S] [--concurrency N...]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

TEXT = "x" * 100
Echo = Callable[[], Awaitable[object]]


# ---- Servers: print their address, and run until their input ends ----


async def serve_hawser() -> None:
    import hawser

    server = hawser.Server()

    @server.method
    async def echo(text: str) -> str:
        return text

    async with server:
        print(server.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def serve_grpc() -> None:
    import grpc

    async def echo(request: bytes, _: Any) -> bytes:
        return request

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(echo)  # Messages are bytes: nothing is converted.
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"echo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


class Frames(asyncio.Protocol):
    """Messages behind a length and a number, with the least code: each is answered, or completes a future."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.buffer = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        at, answers = 0, []
        while len(self.buffer) - at >= 8:
            size, number = struct.unpack_from("<II", self.buffer, at)
            if len(self.buffer) - at - 8 < size:
                break
            message = self.buffer[at + 8 : at + 8 + size]
            at += 8 + size
            waiting = self.waiting.pop(number, None)
            if waiting is None:
                answers.append(struct.pack("<II", size, number) + message)
            else:
                waiting.set_result(message)
        self.buffer = self.buffer[at:]
        if answers:
            self.transport.write(b"".join(answers))


async def serve_bare() -> None:
    server = await asyncio.get_running_loop().create_server(Frames, "127.0.0.1", 0)
    print("%s:%d" % server.sockets[0].getsockname(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# ---- Clients ----


async def hawser_echo(address: str) -> Echo:
    import hawser

    client = await hawser.connect(address)

    @hawser.declare("echo")
    def echo(text: str) -> str: ...  # type: ignore[empty-body]

    return lambda: client.call(echo, TEXT)


async def hawser_tcp_echo(address: str) -> Echo:
    import hawser

    client = await hawser.connect(address, transports=[])
    return lambda: client.call("echo", TEXT)


async def grpc_echo(address: str) -> Echo:
    import grpc

    call = grpc.aio.insecure_channel(address).unary_unary("/bench/echo")
    request = TEXT.encode()

    async def echo() -> object:
        return await call(request)

    return echo


async def bare_echo(address: str) -> Echo:
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    _, frames = await loop.create_connection(Frames, host, int(port))
    request, number = TEXT.encode(), 0

    async def echo() -> object:
        nonlocal number
        number += 1
        waiting = frames.waiting[number] = loop.create_future()
        frames.transport.write(struct.pack("<II", len(request), number) + request)
        return await waiting

    return echo


async def measure(echo: Echo, concurrency: int, seconds: float) -> float:
    calls = 0
    end = time.perf_counter() + seconds

    async def work() -> None:
        nonlocal calls
        while time.perf_counter() < end:
            await echo()
            calls += 1

    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return calls / (time.perf_counter() - begin)


PEERS: dict[str, tuple[str, Callable[[str], Awaitable[Echo]]]] = {
    "hawser, shared memory": ("hawser", hawser_echo),
    "hawser, TCP": ("hawser", hawser_tcp_echo),
    "grpcio.aio": ("grpc", grpc_echo),
    "bare asyncio protocol": ("bare", bare_echo),
}
SERVERS = {"hawser": serve_hawser, "grpc": serve_grpc, "bare": serve_bare}


async def compare(concurrencies: list[int], seconds: float, rounds: int) -> None:
    for concurrency in concurrencies:
        rates: dict[str, list[float]] = {name: [] for name in PEERS}
        for _ in range(rounds):  # In turn, so that all meet the same machine.
            for name, (server, make) in PEERS.items():
                command = [sys.executable, __file__, "--serve", server]
                with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                    assert process.stdout is not None and process.stdin is not None
                    echo = await make(process.stdout.readline().strip())
                    await measure(echo, concurrency, seconds / 4)
                    rates[name].append(await measure(echo, concurrency, seconds))
                    process.stdin.close()
        print(f"{concurrency} calls in flight, echo of {len(TEXT)} bytes, median of {rounds} rounds")
        for name, values in rates.items():
            print(f"  {name:24} {statistics.median(values):10,.0f} calls/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=SERVERS)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 100])
    given = parser.parse_args()
    if given.serve:
        asyncio.run(SERVERS[given.serve]())
    else:
        asyncio.run(compare(given.concurrency, given.seconds, given.rounds))


if __name__ == "__main__":
    main()
