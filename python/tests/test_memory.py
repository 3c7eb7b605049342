"""Memory of a server that clients access without a handler."""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

import hawser


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 500))


@contextlib.asynccontextmanager
async def owner(memory: Any, transports: list[str], **options: Any) -> AsyncIterator[tuple[hawser.Exposed, hawser.Client]]:
    server = hawser.Server(transports=transports)
    with server.expose(memory, **options) as exposed:

        @server.method
        async def where() -> hawser.Region:
            return exposed.region

        async with server, hawser.connect(server.address, transports=transports) as client:
            yield exposed, client


@pytest.mark.parametrize("transports", [["shm"], []])
def test_an_array_is_read_and_written_where_it_lies(transports: list[str]) -> None:
    async def main() -> None:
        table = array.array("d", range(100_000))
        async with owner(table, transports, access="read_write") as (exposed, client):
            region = await client.call("where")
            copy = array.array("d", bytes(8 * len(table)))
            await client.read(region, copy)
            assert copy == table
            part = bytearray(16)
            await client.read(exposed.region, part, offset=8 * 99_998)
            assert array.array("d", bytes(part)).tolist() == [99_998.0, 99_999.0]
            await client.write(region, array.array("d", [-1.0, -2.0]), offset=8)
            assert table[:4].tolist() == [0.0, -1.0, -2.0, 3.0]

    run(main())


def test_a_numpy_array_is_read_in_one_line() -> None:
    numpy = pytest.importorskip("numpy")

    async def main() -> None:
        weights = numpy.arange(1 << 20, dtype="f4").reshape(1024, 1024)
        async with owner(weights, ["shm"]) as (exposed, client):
            copy = numpy.empty_like(weights)
            await client.read(exposed.region, copy)
            assert (copy == weights).all()
            await client.read(exposed.region, copy[5], offset=weights[7].nbytes * 7)
            assert (copy[5] == weights[7]).all()
            with pytest.raises((ValueError, BufferError)):
                await client.read(exposed.region, copy.T)  # Its elements do not lie in order.

    run(main())


def test_what_is_not_allowed_is_an_error() -> None:
    async def main() -> None:
        memory = bytearray(1000)
        async with owner(memory, ["shm"]) as (exposed, client):
            for access, code in [
                (client.write(exposed.region, b"x"), hawser.ErrorCode.INVALID_ARGUMENT),
                (client.read(exposed.region, bytearray(10), offset=991), hawser.ErrorCode.INVALID_ARGUMENT),
            ]:
                with pytest.raises(hawser.Error) as caught:
                    await access
                assert caught.value.code == code
            with pytest.raises(BufferError):
                await client.read(exposed.region, b"constant")
            with pytest.raises(TypeError):
                await client.read(exposed.region, bytearray(1), offset=-1)
            with pytest.raises(AttributeError):
                await client.read("region", bytearray(1))  # type: ignore[arg-type]
            with pytest.raises(BufferError):
                memory.extend(b"x")  # It must not move while it is exposed.
            exposed.revoke()
            with pytest.raises(hawser.Error) as caught:
                await client.read(exposed.region, bytearray(10))
            assert caught.value.code == hawser.ErrorCode.STALE_HANDLE
            memory.extend(b"x")
        server = hawser.Server()
        with pytest.raises(ValueError, match="access is"):
            server.expose(memory, access="all")
        with pytest.raises(BufferError):
            server.expose(b"constant", access="write")
        with pytest.raises(hawser.Error):
            server.expose(b"")

    run(main())


def test_cancelled_accesses_leave_the_memory_alone() -> None:
    async def main() -> None:
        async with owner(bytes(4 << 20), []) as (exposed, client):
            for _ in range(20):
                target = bytearray(4 << 20)
                task = asyncio.create_task(client.read(exposed.region, target))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            for _ in range(1000):
                with contextlib.suppress(BufferError):
                    target.extend(b"x")  # Nothing refers to it soon.
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail("the memory is still in use")
            await client.read(exposed.region, bytearray(4 << 20))

    run(main())


def test_the_blocking_client_reads() -> None:
    async def main() -> None:
        async with owner(b"0123456789", ["shm"]) as (exposed, other):

            def script() -> bytes:
                with hawser.blocking.connect(other.address) as client:
                    target = bytearray(4)
                    client.read(exposed.region, target, offset=3)
                    return bytes(target)

            assert await asyncio.to_thread(script) == b"3456"

    run(main())


@pytest.mark.parametrize("transports", [["shm"], []])
def test_a_batch_of_15_000_blocks(transports: list[str]) -> None:
    async def main() -> None:
        blocks, size = 15_000, 64
        remote = bytearray(bytes(range(250)) * (2 * blocks * size // 250))
        before = bytes(remote)
        local = bytearray(blocks * size)
        # Every second block of the region, in reverse: no two neighbours are one run.
        places = array.array("q", range(2 * (blocks - 1) * size, -1, -2 * size))
        async with owner(remote, transports, access="read_write") as (exposed, client):
            batch = hawser.Batch(local, array.array("Q", range(0, blocks * size, size)), places, size)
            assert (len(batch), batch.nbytes) == (blocks, blocks * size)
            with await client.register(local):
                for _ in range(2):
                    await client.read(exposed.region, batch)
            assert local == b"".join(before[place : place + size] for place in places)
            local[:] = bytes(len(local))
            batch.move([place + size for place in places])
            await client.write(exposed.region, batch)
            await client.write(exposed.region, hawser.Batch(b"end", [0, 1], [0, 1], [1, 2]), offset=len(remote) - 3)
            expected = bytearray(before)
            for place in places:
                expected[place + size : place + 2 * size] = bytes(size)
            expected[-3:] = b"end"
            assert remote == expected

    run(main())


def test_the_numbers_of_a_batch_may_lie_apart() -> None:
    numbers = memoryview(array.array("q", range(8)))[::2]
    assert hawser.Batch(bytes(8), numbers, numbers, 2).nbytes == 8
    with pytest.raises(ValueError, match="block 3 has the bytes 6 to 8 of memory of 7 bytes"):
        hawser.Batch(bytes(7), numbers, numbers, 2)


def test_wrong_batches_are_refused() -> None:
    async def main() -> None:
        async with owner(bytearray(1000), ["shm"]) as (exposed, client):
            memory = bytearray(100)
            for arguments, error, text in [
                ((memory, [0], [0, 1], 1), ValueError, "1 places in local memory, 2 in the region and 1 lengths"),
                ((memory, [0, 90], [0, 1], [1, 11]), ValueError, "block 1 has the bytes 90 to 101 of memory of 100 bytes"),
                ((memory, array.array("q", [-1]), [0], 1), ValueError, "block 0 has the bytes"),
                ((memory, [-1], [0], 1), OverflowError, "negative"),
                ((memory, ["a"], [0], 1), TypeError, "integer"),
                ((memory, 5, [0], 1), TypeError, "sequences of int"),
                (("text", [0], [0], 1), TypeError, "bytes-like"),
            ]:
                with pytest.raises(error, match=text):
                    hawser.Batch(*arguments)
            constant = hawser.Batch(b"constant", [0], [0], 1)
            with pytest.raises(BufferError, match="not writable"):
                await client.read(exposed.region, constant)
            batch = hawser.Batch(memory, [0], [999], 2)
            with pytest.raises(hawser.Error) as caught:
                await client.read(exposed.region, batch)
            assert caught.value.code == hawser.ErrorCode.INVALID_ARGUMENT
            with pytest.raises(ValueError, match="one place for each block"):
                batch.move([1, 2])
            with pytest.raises(BufferError):
                memory.append(0)  # The batch has it.
            reading = asyncio.create_task(client.read(exposed.region, hawser.Batch(memory, [0], [0], 1)))
            batch.move([0])
            reading.cancel()
            del batch
            with pytest.raises(asyncio.CancelledError):
                await reading
            del reading, caught
            await client.read(exposed.region, memory)
            gc.collect()  # Exceptions and their frames.
            memory.append(0)  # Nobody has it any more.

    run(main())


def test_a_batch_in_use_does_not_move() -> None:
    async def main() -> None:
        async with owner(bytearray(1000), ["shm"]) as (exposed, client):
            batch = hawser.Batch(bytearray(10), [0], [0], 10)
            reading = asyncio.create_task(client.read(exposed.region, batch))
            await asyncio.sleep(0)  # Its first step, which begins the access. This loop alone ends it.
            with pytest.raises(ValueError, match="in use"):
                batch.move([5])
            await reading
            batch.move([5])

    run(main())


def test_registered_memory_stays_until_it_is_closed() -> None:
    async def main() -> None:
        async with owner(bytearray(1000), ["shm"]) as (exposed, client):
            memory = bytearray(100)
            registered = await client.register(memory)
            assert not registered.registered  # There is no device.
            await client.read(exposed.region, memory)
            with pytest.raises(BufferError):
                memory.append(0)
            registered.close()
            registered.close()
            memory.append(0)
            with pytest.raises(TypeError):
                await client.register("text")
            kept = await client.register(memory)
            del kept
            await asyncio.sleep(0)  # The event loop refers to the result until the task's step has ended.
            memory.append(0)
            with hawser.blocking.connect(client.address) as blocking:
                await asyncio.to_thread(blocking.register, memory)

    run(main())
