"""Python beside C++."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess

import pytest

import hawser
import shop


@hawser.declare("shop::sleep_until_stopped")
def sleep_until_stopped() -> None: ...


def test_python_client_of_a_cpp_server(cpp_server: str) -> None:
    async def main() -> None:
        async with hawser.connect(cpp_server) as client:
            assert await client.call("shop::add", 2, 3) == 5
            assert (await client.call("shop::order", shop.ORDER)).items[0].name == "rope"
            ordered = await client.call(shop.order, shop.ORDER)
            assert (ordered.id, ordered.items, ordered.color) == (42, shop.ORDER.items, shop.Color.BLUE)
            large = os.urandom(1_000_000)
            assert await client.call("shop::bytes", large) == large
            assert await client.call(shop.bytes_view, large) == large
            assert await client.call("shop::doubled", [1.5] * 5000) == [3.0] * 5000
            given = (True, {1, 2}, datetime.timedelta(seconds=1.5))
            assert await client.call(shop.mixed, given) == given
            assert await client.call("shop::mixed", given) == given
            assert await client.call(shop.grown, shop.Grown("a", 9)) == shop.Grown("a", 9)
            assert (await client.call("shop::grown", shop.Grown("a", 9))).added == 9
            assert await client.call(shop.sum_of, shop.Node(1, [shop.Node(2, []), shop.Node(3, [])])) == 6
            reply = await client.call_with_reply("shop::beside", "a", attachment=large, metadata=[("k", "v")])
            assert bytes(reply.attachment or b"") == large and reply.metadata == [("k", "v")]
            with pytest.raises(hawser.Error) as caught:
                await client.call("shop::fail")
            assert (caught.value.application_code, caught.value.text) == (7, "no rope")
            task = asyncio.create_task(client.call(sleep_until_stopped))
            await asyncio.sleep(0)  # The task submits its call.
            await client.call("shop::add", 1, 1)  # It was sent behind the other call.
            task.cancel()
            while await client.call("shop::stopped_count") != 1:
                await asyncio.sleep(0)
            timeout = 0.05
            while await client.call("shop::stopped_count") == 1:
                with pytest.raises(hawser.DeadlineExceeded):  # On a slow machine before the handler begins.
                    await client.call("shop::sleep_until_stopped", timeout=timeout)
                timeout *= 2

    asyncio.run(asyncio.wait_for(main(), 500))


def test_streams_of_a_cpp_server(cpp_server: str) -> None:
    async def main() -> None:
        async with hawser.connect(cpp_server) as client:
            for method in ("shop::sums", shop.sums):
                async with client.open(method, 100) as call:
                    for i in range(100):
                        await call.write(i)
                    call.end()
                    assert [item async for item in call] == [100 + i * (i + 1) // 2 for i in range(100)]
                    assert await call.result() == 100

    asyncio.run(asyncio.wait_for(main(), 500))


@hawser.declare("shop::where")
def where() -> hawser.Region: ...  # type: ignore[empty-body]


def test_memory_of_a_cpp_server(cpp_server: str) -> None:
    async def main() -> None:
        async with hawser.connect(cpp_server) as client:
            region = await client.call(where)
            assert (region.bytes, region.readable, region.writable) == (1_000_000, True, True)
            target = bytearray(1_000_000)
            await client.read(region, target)
            assert target == b"\5" * 1_000_000
            await client.write(await client.call("shop::where"), b"end", offset=999_997)
            await client.read(region, target)
            assert target[-4:] == b"\5end"

    asyncio.run(asyncio.wait_for(main(), 500))


def test_cpp_client_of_a_python_server(peer: str) -> None:
    async def main() -> None:
        served = shop.Shop()
        async with served.server:
            process = await asyncio.create_subprocess_exec(
                peer, "call", served.server.address, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            output, _ = await process.communicate()
            assert process.returncode == 0, output.decode()
            assert b"ok order" in output

    asyncio.run(asyncio.wait_for(main(), 500))


def test_the_command_hawser_calls_and_describes_a_python_server() -> None:
    command = os.environ.get("HAWSER_COMMAND", "")
    if not command:
        pytest.skip("HAWSER_COMMAND does not name the program `hawser`")

    async def main() -> None:
        served = shop.Shop()
        async with served.server:

            async def hawser_command(*words: str) -> str:
                # On a busy machine the standard error has warnings.
                process = await asyncio.create_subprocess_exec(
                    command, words[0], served.server.address, *words[1:], stdout=subprocess.PIPE
                )
                output, _ = await process.communicate()
                assert process.returncode == 0, output.decode()
                return output.decode()

            assert await hawser_command("call", "shop::add", "[1,2]") == "3\n"
            assert "shop::order" in await hawser_command("list")
            text = await hawser_command("describe", "shop::order")
            assert "count: int32" in text and "items: list of Item" in text and "BLUE = 2" in text
            order = '{"id":1,"items":[{"name":"a","count":1,"price":null,"tags":[]}],"stock":{},"color":"GREEN","note":{"int64":3}}'
            assert '"id":2' in await hawser_command("call", "shop::order", order)
            assert "serving" in await hawser_command("health")

    asyncio.run(asyncio.wait_for(main(), 500))
