#!/usr/bin/env python3
"""The server of gRPC's negative HTTP/2 tests: "http2_server.py CASE" prints its process id and its port. It ends when
the calls of the case have been answered and the client has closed its connections: with status 0 if the client behaved
as the case demands, else with 1 and the reason. The cases are those of the interop/http2 client of grpc-go."""
import os
import socket
import struct
import sys
import threading

CASE = sys.argv[1]
PATIENCE = 300  # Seconds. Nothing is expected to take nearly as long, also on a busy machine.
CALLS = {"goaway": 2, "max_streams": 16}.get(CASE, 1)
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS = 4, 3
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# HPACK: ":status: 200" is entry 8 of the static table, "content-type" is entry 31.
RESPONSE = b"\x88" + b"\x0f\x10\x10application/grpc"
TRAILERS = b"\x00\x0bgrpc-status\x010"
BODY_BYTES = 314159


def end(status, text):
    print(text, flush=True)
    os._exit(status)


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def reply():
    """A SimpleResponse with a payload of BODY_BYTES zeros, with the prefix of gRPC."""
    payload = b"\x12" + varint(BODY_BYTES) + bytes(BODY_BYTES)
    message = b"\x0a" + varint(len(payload)) + payload
    return b"\0" + struct.pack(">I", len(message)) + message


class Connection:
    """Reads while it waits: for a window, or for the acknowledgement of a PING."""

    def __init__(self, connection):
        self.socket = connection
        self.window = 65535
        self.first_window = 65535
        self.windows = {}  # By stream, of those that are open.
        self.ended = []  # Streams whose request has arrived, and which have no response yet.
        self.unacknowledged = set()
        self.pings = 0
        self.answered = 0

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def send(self, kind, flags, stream, payload):
        self.socket.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)
        # After the last frame of a response the client may close the connection.
        if CASE == "ping" and kind in (HEADERS, DATA) and not flags & END_STREAM:
            self.pings += 1
            opaque = struct.pack(">Q", self.pings)
            self.unacknowledged.add(opaque)
            self.send(PING, 0, 0, opaque)

    def read_frame(self):
        head = self.receive(9)
        size, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
        payload = self.receive(size)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, size, 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == INITIAL_WINDOW_SIZE:
                    self.windows = {one: window + value - self.first_window for one, window in self.windows.items()}
                    self.first_window = value
            self.send(SETTINGS, ACK, 0, b"")
        elif kind == PING:
            if not flags & ACK:
                self.send(PING, ACK, 0, payload)
            elif payload in self.unacknowledged:
                self.unacknowledged.remove(payload)
            else:
                end(1, f"the client acknowledged a PING that was not sent: {payload!r}")
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind == HEADERS:
            self.windows[stream] = self.first_window
            if CASE == "max_streams" and len(self.windows) > 1:
                end(1, f"{len(self.windows)} streams are open: SETTINGS_MAX_CONCURRENT_STREAMS is 1")
        elif kind == DATA and size:
            more = struct.pack(">I", size)
            self.send(WINDOW_UPDATE, 0, 0, more)
            if not flags & END_STREAM:
                self.send(WINDOW_UPDATE, 0, stream, more)
        elif kind == RST_STREAM:
            self.windows.pop(stream, None)
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.append(stream)

    def send_data(self, stream, data):
        while data:
            part = min(len(data), 16384, self.window, self.windows[stream])
            if part <= 0:
                self.read_frame()
                continue
            self.window -= part
            self.windows[stream] -= part
            self.send(DATA, 0, stream, data[:part])
            data = data[part:]

    def respond(self, stream):
        self.send(HEADERS, END_HEADERS, stream, RESPONSE)
        data = reply()
        if CASE == "rst_during_data":
            data = data[:len(data) // 2]
        if CASE != "rst_after_header":
            self.send_data(stream, data)
        self.answered += 1
        self.windows.pop(stream, None)
        if CASE.startswith("rst_"):
            self.send(RST_STREAM, 0, stream, bytes(4))
            return
        while self.unacknowledged:
            self.read_frame()
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS)
        if CASE == "goaway":
            self.send(GOAWAY, 0, 0, struct.pack(">II", stream, 0))

    def run(self):
        if self.receive(len(PREFACE)) != PREFACE:
            end(1, "the client sent no connection preface of HTTP/2")
        settings = struct.pack(">HI", MAX_CONCURRENT_STREAMS, 1) if CASE == "max_streams" else b""
        self.send(SETTINGS, 0, 0, settings)
        while True:
            while self.ended:
                self.respond(self.ended.pop(0))
            self.read_frame()


class Calls:
    """The calls of all connections."""

    def __init__(self):
        self.lock = threading.Lock()
        self.answered = []

    def serve(self, connection):
        one = Connection(connection)
        try:
            one.run()
        except (EOFError, OSError):
            connection.close()
        with self.lock:
            if one.unacknowledged:
                end(1, f"{len(one.unacknowledged)} of {one.pings} PINGs were not acknowledged")
            if one.answered == 0:
                return  # A connection without a call, such as one that the client has opened too much.
            self.answered.append(one.answered)
            if CASE == "goaway" and one.answered != 1:
                end(1, f"a connection had {one.answered} calls, although the server sent GOAWAY after the first one")
            if sum(self.answered) >= CALLS:
                end(0, f"calls of each connection: {self.answered}")


def main():
    threading.Timer(PATIENCE, end, (1, f"the case has not ended within {PATIENCE} s")).start()
    calls = Calls()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(os.getpid(), listener.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=calls.serve, args=(listener.accept()[0],), daemon=True).start()


main()
