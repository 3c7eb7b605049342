#!/usr/bin/env python3
"""grpcio as a client of the server of tests/world, with the default options of both, except those that server.cpp and
haproxy() name: grpcio_client.py SERVER [CASE...], or grpcio_client.py --at ADDRESS CASE... for a server that runs, or a
proxy in front of it.

Messages are encoded by hand, so that no generated code is needed."""

import asyncio
import collections
import pathlib
import sys
import tempfile
import threading
import time
import types

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import SECONDS_MAX, Server, check, make_certificate, soon  # noqa: E402

SERVICE = "/grpc.testing.TestService/"
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]


# ---- Messages of interop.proto ----

def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def simple(size=0, body=b"", code=0, text=""):
    request = field(2, size)
    if body:
        request += field(3, field(2, body))
    if code:
        request += field(7, field(1, code) + field(2, text.encode()))
    return request


def items(*sizes, interval_us=0):
    return b"".join(field(2, field(1, size) + field(2, interval_us)) for size in sizes)


class Stub:
    def __init__(self, channel):
        self.unary = channel.unary_unary(SERVICE + "UnaryCall")
        self.down = channel.unary_stream(SERVICE + "StreamingOutputCall")
        self.up = channel.stream_unary(SERVICE + "StreamingInputCall")
        self.both = channel.stream_stream(SERVICE + "FullDuplexCall")
        self.health = channel.unary_unary("/grpc.health.v1.Health/Check")


def outcome(call):
    error = call.exception()
    return "OK" if error is None else f"{error.code().name}: {error.details()[:100]}"


def outcomes(calls):
    return collections.Counter(outcome(call) for call in calls)


def connect(server, *more):
    return grpc.insecure_channel(server.address, options=[*OPTIONS, *more, ("grpc.use_local_subchannel_pool", 1)])


# ---- Cases ----

def full_speed(server):
    """Good clients wait, and are not refused."""
    with connect(server) as channel:
        stub = Stub(channel)
        for count, size in ((64, 1 << 20), (200, 100_000), (20, 4 << 20), (500, 1000)):
            calls = [stub.unary.future(simple(size), timeout=SECONDS_MAX) for _ in range(count)]
            check(outcomes(calls) == {"OK": count}, count, "calls of", size, "bytes:", outcomes(calls))
        for count, size in ((64, 1 << 20), (200, 50_000)):
            calls = [stub.unary.future(simple(10, b"u" * size), timeout=SECONDS_MAX) for _ in range(count)]
            check(outcomes(calls) == {"OK": count}, count, "requests of", size, "bytes:", outcomes(calls))
        sizes = [item for item in (1, 1000, 100_000, 1 << 20) for _ in range(10)]
        threads = []
        got = []

        def stream():
            got.append([len(item) > size for item, size in zip(stub.down(items(*sizes), timeout=SECONDS_MAX), sizes)])

        for _ in range(16):
            threads.append(threading.Thread(target=stream))
            threads[-1].start()
        for thread in threads:
            thread.join()
        check(got == [[True] * 40] * 16, "16 streams of 40 items")
        total = stub.up(iter([field(1, field(2, b"x" * 100_000))] * 300), timeout=SECONDS_MAX)
        check(total == field(1, 30_000_000), "an upload")
        replies = list(stub.both(iter([items(1000)] * 500), timeout=SECONDS_MAX))
        check(len(replies) == 500, "a stream in both directions gave", len(replies))


def slow_reader(server):
    """A client that reads one stream slowly, and others not at all, gets the replies of other calls."""
    with connect(server) as channel:
        stub = Stub(channel)
        paused = [stub.down(items(*[1 << 20] * 30), timeout=SECONDS_MAX) for _ in range(8)]
        for call in paused:
            next(call)
        waits = []
        for _ in range(100):
            begin = time.monotonic()
            stub.unary(simple(100), timeout=SECONDS_MAX)
            waits.append(time.monotonic() - begin)
        waits.sort()
        print(f"beside 8 streams that are not read: median {waits[50] * 1e3:.1f} ms, p99 {waits[98] * 1e3:.1f} ms")
        for call in paused:
            check(sum(1 for _ in call) == 29, "a paused stream")


def limits(server):
    """Metadata above the limits ends its call with a text, and not the neighbours."""
    with connect(server) as channel:
        stub = Stub(channel)
        neighbours = [stub.down(items(*[100] * 100, interval_us=10_000), timeout=SECONDS_MAX) for _ in range(4)]
        for metadata, words in (([(f"x-m{i}", "v") for i in range(65)], ["metadata"]),
                                ([(f"x-long-{i}", "v" * 7000) for i in range(10)], ["metadata_bytes_max"]),
                                ([("x-long", "v" * 60_000)], ["metadata_bytes_max"])):
            try:
                stub.unary(simple(), metadata=metadata, timeout=SECONDS_MAX)
                check(False, "metadata that is too much was accepted")
            except grpc.RpcError as error:
                check(error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error.code(), error.details())
                check(all(word in error.details() for word in words), error.details())
        for text in ("€" * 5000, "a" * 5000, "aé" * 3000):
            calls = [stub.unary.future(simple(code=3, text=text), timeout=SECONDS_MAX) for _ in range(60)]
            for call in calls:
                error = call.exception()
                check(error.code() == grpc.StatusCode.INVALID_ARGUMENT, error.code(), error.details()[:100])
                check(len(error.details()) > 300 and text.startswith(error.details()), "the text of a status")
        for call in neighbours:
            check(sum(1 for _ in call) == 100, "a neighbour")


def cancels(server):
    """Calls that are cancelled at once do not end their neighbours."""
    with connect(server) as channel:
        stub = Stub(channel)
        stop = threading.Event()
        lost = []

        def storm():
            while not stop.is_set():
                call = stub.down(items(*[10] * 100, interval_us=1000), timeout=SECONDS_MAX)
                call.cancel()

        def late_storm():
            while not stop.is_set():
                call = stub.down(items(*[10] * 100, interval_us=1000), timeout=SECONDS_MAX)
                try:
                    next(call)
                except grpc.RpcError as error:
                    lost.append(f"{error.code().name}: {error.details()[:100]}")
                call.cancel()

        threads = [threading.Thread(target=storm), threading.Thread(target=storm), threading.Thread(target=late_storm)]
        for thread in threads:
            thread.start()
        count, calls, end = 0, collections.Counter(), time.monotonic() + 2
        while time.monotonic() < end:
            found = outcomes([stub.unary.future(simple(10), timeout=SECONDS_MAX) for _ in range(20)])
            calls.update(found)
            count += 20
        stop.set()
        for thread in threads:
            thread.join()
        check(calls == {"OK": count} and not lost, "beside cancelled calls:", calls, lost)


def deadlines(server):
    with connect(server) as channel:
        stub = Stub(channel)
        slow = [stub.down(items(10, interval_us=2_000_000), timeout=0.3) for _ in range(50)]
        for call in slow:
            try:
                list(call)
                check(False, "no deadline")
            except grpc.RpcError as error:
                check(error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error.code(), error.details())
        check(outcomes([stub.unary.future(simple(10), timeout=SECONDS_MAX)]) == {"OK": 1})


def keepalive(server):
    """PINGs of all usual intervals, with and without calls. grpcio sends none sooner than each second by default."""
    for interval_ms in (10, 100, 1000):
        more = (("grpc.keepalive_time_ms", interval_ms), ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1))
        with connect(server, *more) as channel:
            stub = Stub(channel)
            stub.unary(simple(10), timeout=SECONDS_MAX)
            states = []
            channel.subscribe(states.append)
            time.sleep(0.5)
            received = sum(1 for _ in stub.down(items(10, 10, interval_us=700_000), timeout=SECONDS_MAX))
            check(received == 2, "a slow stream with PINGs each", interval_ms, "ms")
            check(grpc.ChannelConnectivity.TRANSIENT_FAILURE not in states and
                  grpc.ChannelConnectivity.IDLE not in states[1:], "PINGs each", interval_ms, "ms:", states)


def restart(server):
    """Calls that the stop of the server ends are UNAVAILABLE, and the policy of retries works."""
    with connect(server) as channel:
        stub = Stub(channel)
        stub.unary(simple(10), timeout=SECONDS_MAX)
        long = [stub.down(items(10, 10, 10, interval_us=20_000_000), timeout=SECONDS_MAX) for _ in range(3)]
        short = [stub.down(items(10, interval_us=700_000), timeout=SECONDS_MAX) for _ in range(3)]
        time.sleep(0.3)
        server.begin_stop()
        for call in short:
            check(len(list(call)) == 1, "a call that ends within the grace")
        for call in long:
            try:
                list(call)
                check(False, "no error")
            except grpc.RpcError as error:
                check(error.code() == grpc.StatusCode.UNAVAILABLE, error.code(), error.details())
        server.wait()
        waits = stub.unary.future(simple(10), timeout=SECONDS_MAX, wait_for_ready=True)
        time.sleep(0.2)
        server.start()
        check(outcome(waits) == "OK", "a call that waits for the server:", outcome(waits))
    # Calls one after another while the server stops and starts: with the policy, no call fails.
    policy = ('{"methodConfig":[{"name":[{}],"waitForReady":true,"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.1s",'
              '"maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}')
    with connect(server, ("grpc.service_config", policy), ("grpc.initial_reconnect_backoff_ms", 100),
                 ("grpc.min_reconnect_backoff_ms", 100)) as channel:
        stub = Stub(channel)
        found, over = collections.Counter(), threading.Event()

        def caller():
            while not over.is_set():
                found.update(outcomes([stub.unary.future(simple(1000), timeout=SECONDS_MAX) for _ in range(10)]))

        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.3)
            server.stop()
            server.start()
        time.sleep(0.3)
        over.set()
        for thread in threads:
            thread.join()
        check(set(found) == {"OK"}, "while the server is started again:", found)


def with_aio(server):
    async def run():
        async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as channel:
            stub = Stub(channel)
            replies = await asyncio.gather(*[stub.unary(simple(1 << 20), timeout=SECONDS_MAX) for _ in range(64)])
            check([len(reply) > 1 << 20 for reply in replies] == [True] * 64, "64 calls of 1 MiB by aio")
            replies = await asyncio.gather(*[stub.unary(simple(100_000), timeout=SECONDS_MAX) for _ in range(200)])
            check(len(replies) == 200, "200 calls of 100 KB by aio")

            async def stream():
                count = 0
                async for _ in stub.down(items(*[20_000] * 200), timeout=SECONDS_MAX):
                    count += 1
                return count

            check(await asyncio.gather(*[stream() for _ in range(10)]) == [200] * 10, "10 streams by aio")

    asyncio.run(run())


def with_tls(server):
    """`server` has the files of its certificate."""
    credentials = grpc.ssl_channel_credentials(pathlib.Path(server.tls[0]).read_bytes())
    with grpc.secure_channel(f"localhost:{server.port}", credentials, options=OPTIONS) as channel:
        stub = Stub(channel)
        calls = [stub.unary.future(simple(1 << 20), timeout=SECONDS_MAX) for _ in range(64)]
        check(outcomes(calls) == {"OK": 64}, "64 calls of 1 MiB with TLS:", outcomes(calls))


CASES = (full_speed, slow_reader, limits, cancels, deadlines, keepalive, restart, with_aio, with_tls)


def main():
    if sys.argv[1] == "--at":
        for case in CASES:
            if case.__name__ in sys.argv[3:]:
                case(types.SimpleNamespace(address=sys.argv[2]))
        return
    chosen = sys.argv[2:] or [case.__name__ for case in CASES]
    print("grpcio", grpc.__version__)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if case.__name__ not in chosen:
                continue
            tls = make_certificate(folder) if case is with_tls else ()
            begin = time.monotonic()
            with Server(sys.argv[1], *tls) as server:
                case(server)
            print(f"{case.__name__}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
