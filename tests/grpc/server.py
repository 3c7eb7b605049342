#!/usr/bin/env python3
"""Serves "test.Raw/..." by grpcio, as tests/grpc/raw_service.cpp does. Prints its process id and its port, and ends
upon SIGTERM. Exits 77 if grpcio is missing."""
import concurrent.futures
import os
import sys
import threading

try:
    import grpc
except ImportError as error:
    print(f"grpcio is missing: {error}")
    sys.exit(77)

running = 0
lock = threading.Lock()


def echo(request, context):
    sent = [(k, v) for k, v in context.invocation_metadata() if k.startswith("echo-")]
    context.send_initial_metadata([(k, v) for k, v in sent if k.startswith("echo-initial")])
    context.set_trailing_metadata([(k, v) for k, v in sent if not k.startswith("echo-initial")])
    if dict(context.invocation_metadata()).get("compress-reply"):
        context.set_compression(grpc.Compression.Gzip)
    return request


def sleep(request, context):
    global running
    with lock:
        running += 1
    ended = threading.Event()
    if not context.add_callback(ended.set):
        ended.set()  # The call has ended already.
    ended.wait(60)
    with lock:
        running -= 1
    return request


def fail(request, context):
    context.set_trailing_metadata([("grpc-status-details-bin", b"\0details\xff")])
    codes = {code.value[0]: code for code in grpc.StatusCode}
    context.abort(codes[int(request[:2])], request[2:].decode())


def count(request, _context):
    for i in range(int(request)):
        yield bytes([97 + i % 26]) * (i % 50 * 1000)


def add(requests, _context):
    sizes = [len(request) for request in requests]
    return b"%d %d" % (len(sizes), sum(sizes))


def converse(requests, context):
    for request in requests:
        if request.startswith(b"fail"):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as the client wants")
        yield request


METHODS = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
    "Running": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"%d" % running),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Sum": grpc.stream_unary_rpc_method_handler(add),
    "Converse": grpc.stream_stream_rpc_method_handler(converse),
}
server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Raw", METHODS)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(os.getpid(), port, flush=True)
server.wait_for_termination()
