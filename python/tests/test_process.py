"""The process around the calls: signals, the end of the interpreter, fork(), leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap

import hawser
import shop


HANDLE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def script(text: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    return subprocess.Popen(
        # A job in the background of a shell ignores Ctrl-C, and so would its children.
        [sys.executable, "-c", HANDLE_CTRL_C + textwrap.dedent(text), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=os.path.dirname(os.path.abspath(__file__)),
    )


CALLS_AT_THE_END = """
    import asyncio, sys, hawser, shop

    async def main():
        served = shop.Shop()
        await served.server.start()
        client = await hawser.connect(served.server.address)
        global keep
        keep = [served, client] + [asyncio.ensure_future(client.call("shop::sleep_until_stopped")) for _ in range(20)]
        await served.sleeping.wait()
        await client.call("shop::beside", "text", attachment=b"x" * 100_000)
        if sys.argv[1] == "exit":
            sys.exit(3)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    print("ended", flush=True)
"""


def test_the_interpreter_ends_with_calls_in_flight() -> None:
    process = script(CALLS_AT_THE_END, "return")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output == "ended\n"
    process = script(CALLS_AT_THE_END, "exit")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors


STREAMS_AT_THE_END = """
        import asyncio, sys, hawser

        server = hawser.Server()

        @server.method
        async def endless(items: hawser.Reader[bytes], out: hawser.Writer[bytes]) -> None:
            while True:
                await out.write(bytes(20_000))

        async def main():
            await server.start()
            client = await hawser.connect(server.address)
            calls = [client.open("endless") for _ in range(20)]
            for call in calls:
                await call.__aenter__()
                await call.write(bytes(20_000))
                await call.__anext__()
            kept.extend([client, *calls])
            if sys.argv[1] == "exit":
                sys.exit(3)

        kept = []
        asyncio.run(main())
        print("ended", flush=True)
"""


def test_the_interpreter_ends_with_open_streams() -> None:
    for _ in range(3):
        process = script(STREAMS_AT_THE_END, "return")
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "ended\n"), errors
        process = script(STREAMS_AT_THE_END, "exit")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 3, errors


SERVER_ON_A_THREAD = """
        import asyncio, os, threading, hawser, shop

        address, ready = [], threading.Event()

        async def serve():
            served = shop.Shop()
            await served.server.start()
            address.append(served.server.address)
            ready.set()
            await served.sleeping.wait()
            print("waiting", flush=True)
            await served.server.serve_forever()

        threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
        ready.wait()
"""


def interrupt(text: str) -> None:
    """Sends Ctrl-C to a script when it has printed a line."""
    process = script(text)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert process.returncode in (1, 130, -signal.SIGINT), errors


def test_ctrl_c_ends_a_server_with_calls() -> None:
    interrupt(
        """
        import asyncio, hawser, shop

        async def main():
            served = shop.Shop()
            async with served.server, hawser.connect(served.server.address) as client:
                call = asyncio.create_task(client.call("shop::sleep_until_stopped"))
                await served.sleeping.wait()
                print("waiting", flush=True)
                await served.server.serve_forever()

        asyncio.run(main())
        """
    )


def test_ctrl_c_ends_a_blocking_call() -> None:
    interrupt(
        SERVER_ON_A_THREAD
        + """
        hawser.blocking.connect(address[0]).call("shop::sleep_until_stopped", timeout=600)
        """
    )


def test_ctrl_c_ends_a_blocking_stream() -> None:
    interrupt(
        SERVER_ON_A_THREAD
        + """
        with hawser.blocking.connect(address[0]).open("shop::sums", 0) as call:
            call.write(1)
            assert next(call) == 1
            print("waiting", flush=True)
            next(call)
        """
    )


def test_a_child_of_fork_gets_a_clear_error_and_can_connect() -> None:
    process = script(
        SERVER_ON_A_THREAD
        + """
        client = hawser.blocking.connect(address[0])
        assert client.call("shop::add", 1, 1) == 2
        child = os.fork()
        if child == 0:
            try:
                client.call("shop::add", 1, 1)
            except hawser.Error as error:
                assert "parent process" in str(error), error
            else:
                os._exit(2)
            with hawser.blocking.connect(address[0]) as own:
                assert own.call("shop::add", 2, 2) == 4
            client.close()
            del client
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert client.call("shop::add", 1, 2) == 3
        print("parent goes on", flush=True)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output == "parent goes on\n", errors


def test_a_stream_of_the_parent_is_left_alone_by_a_child() -> None:
    process = script(
        """
        import asyncio, gc, os, hawser

        server = hawser.Server()

        @server.method
        async def echo(items: hawser.Reader[bytes], out: hawser.Writer[bytes]) -> None:
            async for item in items:
                await out.write(item)

        async def main():
            async with server, hawser.connect(server.address) as client:
                async with client.open("echo") as call:
                    await call.write(b"a" * 20_000)
                    assert len(await call.__anext__()) == 20_000
                    child = os.fork()
                    if child == 0:
                        del call, client
                        gc.collect()
                        os._exit(0)
                    _, status = await asyncio.to_thread(os.waitpid, child, 0)
                    assert os.waitstatus_to_exitcode(status) == 0, status
                    await call.write(b"b" * 20_000)
                    assert await call.__anext__() == b"b" * 20_000

        asyncio.run(main())
        print("parent goes on", flush=True)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output == "parent goes on\n", errors


def test_children_of_multiprocessing_wait_on_their_own() -> None:
    process = script(
        SERVER_ON_A_THREAD
        + """
        import multiprocessing

        def child(answers):
            with hawser.blocking.connect(address[0]) as client:
                for i in range(200):
                    assert client.call("shop::add", i, 1) == i + 1
            answers.put("ended")

        hawser.blocking.connect(address[0]).call("shop::add", 1, 1)  # The main thread waits once before.
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        children = [context.Process(target=child, args=(answers,), daemon=True) for _ in range(8)]
        for one in children:
            one.start()
        for one in children:
            answers.get(timeout=60)
        print("all", flush=True)
        """
    )
    output, errors = process.communicate(timeout=120)
    assert output == "all\n", errors


def test_daemon_threads_with_calls_do_not_abort_the_end() -> None:
    for _ in range(8):
        process = script(
            SERVER_ON_A_THREAD
            + """
            def work():
                client = hawser.blocking.connect(address[0])
                while True:
                    client.call("shop::add", 1, 1)

            for _ in range(8):
                threading.Thread(target=work, daemon=True).start()
            hawser.blocking.connect(address[0]).call("shop::add", 1, 1)
            """.replace("\n    ", "\n")
        )
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_a_sub_interpreter_cannot_import_it() -> None:
    process = script(
        SERVER_ON_A_THREAD
        + """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters

        interpreters.run_string(interpreters.create(), chr(10).join([
            "import os",
            "try:",
            "    import hawser",
            "except ImportError as error:",
            "    os.write(1, b'refused ')",
        ]))
        with hawser.blocking.connect(address[0]) as client:
            try:
                client.call("shop::fail")
            except hawser.Error as error:
                print(type(error) is hawser.Error, client.call("shop::add", 1, 1), flush=True)
        os._exit(0)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output == "refused True 2\n", (output, errors)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_100_000_calls_leak_nothing() -> None:
    async def batch(client: hawser.Client, calls: int) -> None:
        for _ in range(calls // 200):
            await asyncio.gather(*(client.call("shop::add", i, i) for i in range(196)))
            await client.call(shop.order, shop.ORDER)
            await client.call_with_reply("shop::beside", "text", attachment=b"x" * 10_000, metadata={"a": "b"})
            await client.call("shop::bytes", b"x" * 20_000)
            try:
                await client.call("shop::fail")
            except hawser.Error:
                pass

    async def main() -> None:
        served = shop.Shop()
        async with served.server, hawser.connect(served.server.address) as client:
            await batch(client, 20_000)  # Pools and caches grow to their size.
            gc.collect()
            objects, memory = len(gc.get_objects()), resident_bytes()
            await batch(client, 100_000)
            gc.collect()
            assert len(gc.get_objects()) - objects < 1000
            # A leak of 32 bytes in each call would be 3.2 MB.
            assert resident_bytes() - memory < 3_000_000

    asyncio.run(main())
