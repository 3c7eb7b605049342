#!/usr/bin/env python3
"""The cases of gRPC's interoperability tests by grpcio: "peer.py serve" prints its process id and its port and ends
upon SIGTERM; "peer.py call HOST:PORT CASE" runs one case. Exits 77 if grpcio is missing. Messages are encoded here, so
that no generated code is needed."""
import concurrent.futures
import os
import queue
import sys
import threading
import time

try:
    import grpc
except ImportError as error:
    print(f"grpcio is missing: {error}")
    sys.exit(77)

PATIENCE = 60  # Seconds. Nothing is expected to take nearly as long.
INITIAL = ("x-grpc-test-echo-initial", "test_initial_metadata_value")
TRAILING = ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")


# ---- Protocol Buffers: numbers, and bytes that may be messages ----


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def encode(*fields):
    """Encodes pairs of a field number and an int or bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def decode(message):
    """Gives the fields as a list of pairs."""
    fields = []
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            fields.append((tag >> 3, number()))
        elif tag & 7 == 2:
            size = number()
            fields.append((tag >> 3, message[at:at + size]))
            at += size
        else:
            raise ValueError(f"wire type {tag & 7}")
    return fields


def payload(size):
    return encode((2, bytes(size)))


def flag(value):
    return encode((1, 1)) if value else b""


def body_size(response):
    return len(dict(decode(dict(decode(response)).get(1, b""))).get(2, b""))


# ---- Server ----


def echo_metadata(context):
    sent = context.invocation_metadata()
    context.send_initial_metadata([(k, v) for k, v in sent if k == INITIAL[0]])
    context.set_trailing_metadata([(k, v) for k, v in sent if k == TRAILING[0]])


def abort_if_asked(fields, context):
    status = dict(decode(fields.get(7, b"")))
    if status.get(1, 0) != 0:
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[status[1]], status.get(2, b"").decode())


def unary_call(request, context):
    fields = dict(decode(request))
    if 6 in fields and decode(fields[6]):
        context.set_compression(grpc.Compression.Gzip)
    echo_metadata(context)
    abort_if_asked(fields, context)
    return encode((1, payload(fields.get(2, 0))), *([(4, b"grpcio")] if fields.get(9) else []))


def replies(request, context):
    fields = decode(request)
    chosen = [dict(decode(value)) for number, value in fields if number == 2]
    if any(3 in parameters for parameters in chosen):
        context.set_compression(grpc.Compression.Gzip)
    for number, value in fields:
        if number == 2:
            parameters = dict(decode(value))
            if 3 in parameters and not decode(parameters[3]):
                context.disable_next_message_compression()
            time.sleep(parameters.get(2, 0) / 1e6)
            yield encode((1, payload(parameters.get(1, 0))))
    abort_if_asked(dict(fields), context)


def streaming_input_call(requests, _context):
    return encode((1, sum(len(dict(decode(dict(decode(request)).get(1, b""))).get(2, b"")) for request in requests)))


def full_duplex_call(requests, context):
    echo_metadata(context)
    for request in requests:
        yield from replies(request, context)


METHODS = {
    "EmptyCall": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
    "UnaryCall": grpc.unary_unary_rpc_method_handler(unary_call),
    "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(replies),
    "StreamingInputCall": grpc.stream_unary_rpc_method_handler(streaming_input_call),
    "FullDuplexCall": grpc.stream_stream_rpc_method_handler(full_duplex_call),
}


def serve():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.testing.TestService", METHODS)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(os.getpid(), port, flush=True)
    server.wait_for_termination()


# ---- Client ----


def expect(condition, text=""):
    if not condition:
        raise AssertionError(text)


def expect_status(code, action, text=None):
    try:
        result = action()
    except grpc.RpcError as error:
        expect(error.code() == code, f"{error.code()} instead of {code}: {error.details()}")
        expect(text is None or error.details() == text, repr(error.details()))
        return
    raise AssertionError(f"{code} was expected, and the call gave {result!r}")


def path(name):
    return "/grpc.testing.TestService/" + name


def large_request(*more):
    return encode((2, 314159), (3, payload(271828)), *more)


def stream_request(sizes, size=0, *more):
    return encode(*[(2, encode((1, reply))) for reply in sizes], (3, payload(size)), *more)


def unary(channel, request, **options):
    return channel.unary_unary(path("UnaryCall"))(request, timeout=PATIENCE, **options)


def empty_unary(channel):
    expect(channel.unary_unary(path("EmptyCall"))(b"", timeout=PATIENCE) == b"")


def large_unary(channel):
    expect(body_size(unary(channel, large_request())) == 314159)


def client_compressed_unary(channel):
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: unary(channel, large_request((8, flag(True)))))
    reply = unary(channel, large_request((8, flag(True))), compression=grpc.Compression.Gzip)
    expect(body_size(reply) == 314159)
    expect(body_size(unary(channel, large_request((8, flag(False))))) == 314159)


def server_compressed_unary(channel):
    for compressed in (True, False):
        expect(body_size(unary(channel, large_request((6, flag(compressed))))) == 314159)


def client_compressed_streaming(channel):
    """grpcio chooses the compression for a whole call, so that two calls take the place of one."""
    method = channel.stream_unary(path("StreamingInputCall"))
    packed = encode((1, payload(27182)), (2, flag(True)))
    unpacked = encode((1, payload(45904)), (2, flag(False)))
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: method(iter([packed]), timeout=PATIENCE))
    reply = method(iter([packed, packed]), timeout=PATIENCE, compression=grpc.Compression.Gzip)
    expect(dict(decode(reply)) == {1: 2 * 27182})
    expect(dict(decode(method(iter([unpacked]), timeout=PATIENCE))) == {1: 45904})


def client_streaming(channel):
    requests = [encode((1, payload(size))) for size in (27182, 8, 1828, 45904)]
    reply = channel.stream_unary(path("StreamingInputCall"))(iter(requests), timeout=PATIENCE)
    expect(dict(decode(reply)) == {1: 74922})


def server_streaming(channel):
    call = channel.unary_stream(path("StreamingOutputCall"))
    sizes = [31415, 9, 2653, 58979]
    expect([body_size(reply) for reply in call(stream_request(sizes), timeout=PATIENCE)] == sizes)


def server_compressed_streaming(channel):
    request = encode((2, encode((1, 31415), (3, flag(True)))), (2, encode((1, 92653), (3, flag(False)))))
    call = channel.unary_stream(path("StreamingOutputCall"))
    expect([body_size(reply) for reply in call(request, timeout=PATIENCE)] == [31415, 92653])


class Duplex:
    """A FullDuplexCall whose requests are sent one by one."""

    def __init__(self, channel, timeout=PATIENCE, metadata=()):
        self.requests = queue.Queue()
        call = channel.stream_stream(path("FullDuplexCall"))
        self.call = call(iter(self.requests.get, None), timeout=timeout, metadata=metadata)

    def send(self, request):
        self.requests.put(request)

    def end(self):
        self.requests.put(None)


def ping_pong(channel):
    talk = Duplex(channel)
    for reply, request in ((31415, 27182), (9, 8), (2653, 1828), (58979, 45904)):
        talk.send(stream_request([reply], request))
        expect(body_size(next(talk.call)) == reply)
    talk.end()
    expect(list(talk.call) == [])


def empty_stream(channel):
    talk = Duplex(channel)
    talk.end()
    expect(list(talk.call) == [] and talk.call.code() == grpc.StatusCode.OK)


def cancel_after_begin(channel):
    """The first request is sent before, since grpcio may reset a stream that it has not opened if a call is cancelled
    earlier; that ends the connection."""
    begun, end = threading.Event(), threading.Event()

    def requests():
        yield b""
        begun.set()
        end.wait(PATIENCE)

    call = channel.stream_unary(path("StreamingInputCall")).future(requests(), timeout=PATIENCE)
    expect(begun.wait(PATIENCE))
    call.cancel()
    expect(call.cancelled() and call.code() == grpc.StatusCode.CANCELLED)
    end.set()


def cancel_after_first_response(channel):
    talk = Duplex(channel)
    talk.send(stream_request([31415], 27182))
    expect(body_size(next(talk.call)) == 31415)
    talk.call.cancel()
    expect_status(grpc.StatusCode.CANCELLED, lambda: next(talk.call))
    talk.end()


def timeout_on_sleeping_server(channel):
    # A deadline that passes before grpcio has received SETTINGS makes it send RST_STREAM for a stream without HEADERS,
    # which is a connection error (RFC 9113, 6.4), and now and then it waits for ever.
    grpc.channel_ready_future(channel).result(PATIENCE)
    talk = Duplex(channel, timeout=0.001)
    talk.send(stream_request([], 27182))
    expect_status(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: next(talk.call))
    talk.end()


def expect_metadata(call):
    expect([pair for pair in call.initial_metadata() if pair[0] == INITIAL[0]] == [INITIAL])
    expect([pair for pair in call.trailing_metadata() if pair[0] == TRAILING[0]] == [TRAILING])


def custom_metadata(channel):
    _, call = channel.unary_unary(path("UnaryCall")).with_call(large_request(), metadata=(INITIAL, TRAILING),
                                                              timeout=PATIENCE)
    expect_metadata(call)
    talk = Duplex(channel, metadata=(INITIAL, TRAILING))
    talk.send(stream_request([314159], 271828))
    expect(body_size(next(talk.call)) == 314159)
    talk.end()
    expect(list(talk.call) == [])
    expect_metadata(talk.call)


def status(text):
    return (7, encode((1, 2), (2, text.encode())))


def status_code_and_message(channel):
    text = "test status message"
    expect_status(grpc.StatusCode.UNKNOWN, lambda: unary(channel, encode(status(text))), text)
    talk = Duplex(channel)
    talk.send(encode(status(text)))
    talk.end()
    expect_status(grpc.StatusCode.UNKNOWN, lambda: next(talk.call), text)


def special_status_message(channel):
    text = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001F608\t\n"
    expect_status(grpc.StatusCode.UNKNOWN, lambda: unary(channel, encode(status(text))), text)


def unimplemented_method(channel):
    call = channel.unary_unary(path("UnimplementedCall"))
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=PATIENCE))


def unimplemented_service(channel):
    call = channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=PATIENCE))


def pick_first_unary(channel):
    ids = {dict(decode(unary(channel, encode((2, 1), (9, 1))))).get(4) for _ in range(100)}
    expect(len(ids) == 1 and b"" not in ids and None not in ids, repr(ids))


def rpc_soak(channel):
    for _ in range(10):
        large_unary(channel)


def channel_soak(_channel):
    for _ in range(10):
        # Without this option grpcio shares one connection between the channels.
        with grpc.insecure_channel(sys.argv[2], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            large_unary(channel)


def main():
    if sys.argv[1] == "serve":
        serve()
        return
    with grpc.insecure_channel(sys.argv[2], options=[("grpc.enable_retries", 0)]) as channel:
        globals()[sys.argv[3]](channel)


main()
