#!/usr/bin/env python3
"""HTTP clients of Python against the server of tests/world: http_clients.py requests|httpx SERVER."""

import concurrent.futures
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import SECONDS_MAX, Server, check, make_certificate  # noqa: E402


def use(session, base):
    """Requests at full speed, slow ones, uploads. `session` has get() and post() of requests."""
    def get(path, size):
        reply = session.get(base + path, timeout=SECONDS_MAX)
        check(reply.status_code == 200 and len(reply.content) == size, path, reply.status_code, len(reply.content))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for count, size in ((32, 1 << 20), (100, 100_000), (200, 100)):
            list(pool.map(lambda _, n=size: get(f"/bytes?n={n}", n), range(count)))

        def upload(_):
            reply = session.post(base + "/upload", data=b"x" * (1 << 20), timeout=SECONDS_MAX)
            check(reply.text == "1048576", "the server received", reply.text)

        list(pool.map(upload, range(16)))
    get("/parts?n=20&size=100&ms=20", 2000)


def with_requests(program, folder):
    import requests

    class Session(requests.Session):
        def __init__(self):
            super().__init__()
            self.trust_env = False

    print("requests", requests.__version__)
    with Server(program) as server, Session() as session:
        base = f"http://{server.address}"
        use(session, base)
        # A response that is read slowly.
        with session.get(base + "/bytes?n=20000000", stream=True, timeout=SECONDS_MAX) as reply:
            got = 0
            for part in reply.iter_content(1 << 20):
                got += len(part)
                time.sleep(0.02)
            check(got == 20_000_000, "a response that is read slowly:", got)
        server.stop()
        server.start()
        check(session.get(base + "/bytes?n=10", timeout=SECONDS_MAX).ok, "after the restart of the server")
    tls = make_certificate(folder)
    with Server(program, *tls) as server, Session() as session:
        session.verify = tls[0]
        use(session, f"https://localhost:{server.port}")


def with_httpx(program, folder):
    import asyncio
    import ssl

    import httpx

    # Coroutines and not threads: two threads of httpx 0.28 may send HEADERS of one connection in the wrong order.
    async def use_async(session, base, version):
        async def get(path, size):
            reply = await session.get(base + path, timeout=SECONDS_MAX)
            check(reply.status_code == 200 and len(reply.content) == size, path, reply.status_code, len(reply.content))
            check(reply.http_version == version, path, "came by", reply.http_version)

        for count, size in ((32, 1 << 20), (50, 100_000), (50, 100)):
            await asyncio.gather(*[get(f"/bytes?n={size}", size) for _ in range(count)])
        uploads = [session.post(base + "/upload", content=b"x" * (1 << 20), timeout=SECONDS_MAX) for _ in range(16)]
        check([reply.text for reply in await asyncio.gather(*uploads)] == ["1048576"] * 16, "uploads")
        async with session.stream("GET", base + "/bytes?n=5000000", timeout=SECONDS_MAX) as reply:
            got = 0
            async for part in reply.aiter_bytes(1 << 18):
                got += len(part)
                await asyncio.sleep(0.01)
        check(got == 5_000_000, "a response that is read slowly:", got)

    async def run(base, version, server, **options):
        async with httpx.AsyncClient(trust_env=False, **options) as session:
            await use_async(session, base, version)
        server.stop()
        server.start()
        async with httpx.AsyncClient(trust_env=False, **options) as session:
            reply = await session.get(base + "/bytes?n=10", timeout=SECONDS_MAX)
            check(len(reply.content) == 10, "after the restart of the server")

    print("httpx", httpx.__version__)
    tls = make_certificate(folder)
    context = ssl.create_default_context(cafile=tls[0])
    for http2 in (False, True):
        version = "HTTP/2" if http2 else "HTTP/1.1"
        # Without TLS, httpx speaks HTTP/2 only if it may not speak HTTP/1.1.
        with Server(program) as server:
            asyncio.run(run(f"http://{server.address}", version, server, http1=not http2, http2=http2))
        with Server(program, *tls) as server:
            asyncio.run(run(f"https://localhost:{server.port}", version, server, http2=http2, verify=context))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        {"requests": with_requests, "httpx": with_httpx}[sys.argv[1]](sys.argv[2], scratch)
