#!/usr/bin/env python3
"""Calls the methods "test.Raw/..." of tests/grpc/raw_service.cpp by grpcio: client.py HOST:PORT CASE. Exits 77 if
grpcio is missing. Messages are bytes, so that no generated code is needed."""
import sys
import threading
import time

try:
    import grpc
except ImportError as error:
    print(f"grpcio is missing: {error}")
    sys.exit(77)

PATIENCE = 300  # Seconds. A busy machine needs long for thousands of messages. The case has a limit of 450 s.


def channel_to(address, **options):
    limits = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1,
              "grpc.use_local_subchannel_pool": 1, "grpc.enable_retries": 0}
    limits.update(options)
    return grpc.insecure_channel(address, options=[*limits.items(), ("grpc.enable_http_proxy", 0)])


def stub(channel, name):
    path = "/test.Raw/" + name
    return {"Count": channel.unary_stream, "Watch": channel.unary_stream, "Sum": channel.stream_unary,
            "Converse": channel.stream_stream}.get(name, channel.unary_unary)(path)


def expect(condition, text=""):
    if not condition:
        raise AssertionError(text)


def expect_status(code, action):
    try:
        result = action()
    except grpc.RpcError as error:
        expect(error.code() == code, f"{error.code()} instead of {code}: {error.details()}")
        return error
    raise AssertionError(f"{code} was expected, and the call gave {result!r}")


def soon(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        expect(time.monotonic() < end, "waited for too long")
        time.sleep(0.005)


def unary(channel):
    echo = stub(channel, "Echo")
    for size in (0, 1, 1000, 16384, 100_000, 3_000_000):
        message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        expect(echo(message, timeout=PATIENCE) == message, f"{size} bytes")
    calls = [echo.future(b"%d" % i, timeout=PATIENCE) for i in range(500)]
    expect([call.result() for call in calls] == [b"%d" % i for i in range(500)])


def streams(channel):
    replies = list(stub(channel, "Count")(b"120", timeout=PATIENCE))
    expect(len(replies) == 120 and all(len(r) == i % 50 * 1000 for i, r in enumerate(replies)))
    expect(list(stub(channel, "Count")(b"0", timeout=PATIENCE)) == [])
    expect(stub(channel, "Sum")(iter([b"x" * n for n in (27182, 8, 1828, 45904)]), timeout=PATIENCE) == b"4 74922")
    expect(stub(channel, "Sum")(iter([]), timeout=PATIENCE) == b"0 0")
    expect(stub(channel, "Sum")(iter([b"x" * 10_000] * 1000), timeout=PATIENCE) == b"1000 10000000")
    expect(list(stub(channel, "Converse")(iter([]), timeout=PATIENCE)) == [])
    sent = [b"%d" % i * 100 for i in range(3000)]
    expect(list(stub(channel, "Converse")(iter(sent), timeout=PATIENCE)) == sent)


def ping_pong(channel):
    turn = threading.Semaphore(1)

    def requests():
        for i in range(100):
            turn.acquire()
            yield b"%d" % i

    for i, reply in enumerate(stub(channel, "Converse")(requests(), timeout=PATIENCE)):
        expect(reply == b"%d" % i)
        turn.release()


def deadline(channel):
    left = int(stub(channel, "Deadline")(b"", timeout=PATIENCE))
    # gRPC rounds a timeout up to three digits: 300.001 s are sent as 301 s.
    expect(0 < left <= (PATIENCE + 1) * 1000, f"{left} ms")
    expect(stub(channel, "Deadline")(b"") == b"none")
    # The deadline passes while the handler runs. On a slow machine the first ones may pass before it begins.
    for timeout in (0.1, 1, 5, 30):
        call = stub(channel, "Sleep").future(b"", timeout=timeout)
        while not call.done() and running(channel) == 0:
            pass
        if not call.done():
            break
    expect(call.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED, str(call.exception()))
    soon(lambda: running(channel) == 0)
    expect_status(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: stub(channel, "Sleep")(b"", timeout=0.001))


def running(channel):
    return int(stub(channel, "Running")(b"", timeout=PATIENCE))


def cancellation(channel):
    call = stub(channel, "Sleep").future(b"")
    soon(lambda: running(channel) == 1)
    call.cancel()
    expect(call.cancelled())
    soon(lambda: running(channel) == 0)
    end = threading.Event()

    def requests():
        yield b"first"
        end.wait(PATIENCE)

    talk = stub(channel, "Converse")(requests())
    expect(next(talk) == b"first")
    talk.cancel()
    expect_status(grpc.StatusCode.CANCELLED, lambda: next(talk))
    soon(lambda: running(channel) == 0)
    end.set()
    watch = stub(channel, "Watch")(b"")
    for _ in range(10):
        expect(next(watch) == b"event")
    expect(running(channel) == 1)
    watch.cancel()
    soon(lambda: running(channel) == 0)


def metadata(channel):
    sent = (("echo-initial", "first"), ("echo-trailing-bin", b"\xab\xab\xab\x00\xff"), ("echo-text", "plain text"),
            ("other", "not echoed"))
    reply, call = stub(channel, "Echo").with_call(b"hello", metadata=sent, timeout=PATIENCE)
    expect(reply == b"hello")
    initial = [(k, v) for k, v in call.initial_metadata() if k.startswith("echo")]
    trailing = [(k, v) for k, v in call.trailing_metadata() if k.startswith("echo")]
    expect(initial == [("echo-initial", "first")], str(initial))
    expect(sorted(trailing) == [("echo-text", "plain text"), ("echo-trailing-bin", b"\xab\xab\xab\x00\xff")], str(trailing))
    # Metadata and a message that comes in parts lie in one piece of memory.
    large = b"y" * 2_000_000
    reply, call = stub(channel, "Echo").with_call(large, metadata=sent, timeout=PATIENCE)
    expect(reply == large)
    talk = stub(channel, "Converse")(iter([b"a", b"b"]), metadata=(("echo-initial", "1"), ("echo-trailing", "2")))
    expect(list(talk) == [b"a", b"b"])
    expect(("echo-initial", "1") in talk.initial_metadata() and ("echo-trailing", "2") in talk.trailing_metadata())
    too_much = tuple((f"key-{i}", "v" * 200) for i in range(100))
    expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED,
                  lambda: stub(channel, "Echo")(b"", metadata=too_much, timeout=PATIENCE))


def large(channel):
    message = bytes(i * 7 % 256 for i in range(1 << 20)) * 8
    expect(stub(channel, "Echo")(message, timeout=PATIENCE) == message)


def too_large(channel):
    error = expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED,
                          lambda: stub(channel, "Echo")(b"x" * 5_000_000, timeout=PATIENCE))
    expect("message_bytes_max" in error.details(), error.details())
    expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED,
                  lambda: stub(channel, "Sum")(iter([b"x" * 10, b"x" * 5_000_000]), timeout=PATIENCE))
    expect(stub(channel, "Echo")(b"x" * 4_000_000, timeout=PATIENCE) == b"x" * 4_000_000)


def errors(channel):
    for code in grpc.StatusCode:
        if code == grpc.StatusCode.OK:
            continue
        error = expect_status(code, lambda: stub(channel, "Fail")(b"%02dsome text" % code.value[0], timeout=PATIENCE))
        expect(error.details() == "some text", error.details())
        expect(("grpc-status-details-bin", b"\0details\xff") in error.trailing_metadata(), str(error.trailing_metadata()))
    text = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001F608\t\n"
    error = expect_status(grpc.StatusCode.UNKNOWN, lambda: stub(channel, "Fail")(b"02" + text.encode(), timeout=PATIENCE))
    expect(error.details() == text, repr(error.details()))
    talk = stub(channel, "Converse")(iter([b"one", b"fail"]), timeout=PATIENCE)
    expect(next(talk) == b"one")
    expect_status(grpc.StatusCode.FAILED_PRECONDITION, lambda: next(talk))
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: stub(channel, "Nothing")(b"", timeout=PATIENCE))
    expect_status(grpc.StatusCode.UNIMPLEMENTED,
                  lambda: channel.unary_unary("/no.Service/Echo")(b"", timeout=PATIENCE))
    # A unary method takes exactly one message.
    expect_status(grpc.StatusCode.UNIMPLEMENTED,
                  lambda: channel.stream_unary("/test.Raw/Echo")(iter([b"a", b"b"]), timeout=PATIENCE))
    expect_status(grpc.StatusCode.UNIMPLEMENTED,
                  lambda: channel.stream_unary("/test.Raw/Echo")(iter([]), timeout=PATIENCE))


def compression(channel):
    text = b"compressible " * 50_000
    for algorithm in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
        expect(stub(channel, "Echo")(text, compression=algorithm, timeout=PATIENCE) == text)
        expect(stub(channel, "Sum")(iter([text] * 3), compression=algorithm, timeout=PATIENCE) == b"3 1950000")
    reply, call = stub(channel, "Echo").with_call(text, metadata=(("compress-reply", "gzip"),), timeout=PATIENCE)
    expect(reply == text)
    # Deflate is a compression that the server does not have.
    error = expect_status(grpc.StatusCode.UNIMPLEMENTED,
                          lambda: stub(channel, "Echo")(text, compression=grpc.Compression.Deflate, timeout=PATIENCE))
    expect("grpc-encoding" in error.details(), error.details())
    # A message that becomes larger than the limit.
    expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED,
                  lambda: stub(channel, "Echo")(bytes(20_000_000), compression=grpc.Compression.Gzip, timeout=PATIENCE))


def connections(_channel, address):
    channels = [channel_to(address) for _ in range(20)]
    calls = [stub(c, "Echo").future(b"x" * 50_000, timeout=PATIENCE) for c in channels for _ in range(10)]
    expect(all(len(call.result()) == 50_000 for call in calls))
    for c in channels:
        c.close()


def full_speed(channel):
    """Asks for more than the server's backlog may hold. The client reads all the time, so no call is refused."""
    bulk = stub(channel, "Bulk")
    for count, size in ((64, 1 << 20), (200, 100_000)):
        calls = [bulk.future(b"%d" % size, timeout=PATIENCE) for _ in range(count)]
        for call in calls:
            expect(len(call.result()) == size)


def steady(channel):
    """A well-behaved client, for tests in which others attack the server."""
    for _ in range(20):
        unary_small = [stub(channel, "Echo").future(b"x" * 100, timeout=PATIENCE) for _ in range(20)]
        expect(all(call.result() == b"x" * 100 for call in unary_small))
        expect(list(stub(channel, "Converse")(iter([b"a"] * 20), timeout=PATIENCE)) == [b"a"] * 20)


def stopping(channel):
    """Reads events until the server stops, which ends the stream properly."""
    events = 0
    for event in stub(channel, "Watch")(b"", timeout=PATIENCE):
        events += event == b"event"
        if events == 3:
            print("watching", flush=True)
    expect(events >= 3)


def main():
    address, name = sys.argv[1:3]
    with channel_to(address) as channel:
        if name == "connections":
            connections(channel, address)
        else:
            globals()[name](channel)


main()
