#!/usr/bin/env python3
"""Resident memory of hawser-kv and of redis-server under the same writes: memory.py HAWSER_KV MIB [OPTION...]

Each server has MIB MiB, and evicts. OPTION... are those of `hawser-kv serve`. --log FOLDER makes redis-server append to
a file, too. Each phase writes six times as many bytes as the server may hold."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time

# Name, least and most bytes of a value, number of keys for each MiB (0: nearly all are new), part of the bytes.
PHASES = (("16 KiB to 64 KiB", 16 << 10, 64 << 10, 0, 1), ("64 KiB to 1 MiB", 64 << 10, 1 << 20, 0, 1),
          ("overwrites, 16 KiB to 1 MiB", 16 << 10, 1 << 20, 0.5, 1), ("100 B to 4 KiB", 100, 4 << 10, 0, 0.25),
          ("1 MiB to 3 MiB", 1 << 20, 3 << 20, 0, 1), ("10 B to 100 B", 10, 100, 0, 0.025),
          ("16 KiB to 1 MiB", 16 << 10, 1 << 20, 0, 1))
BYTES = b"x" * (3 << 20)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def resident_mib(process, field="VmRSS"):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def connect(port):
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            time.sleep(0.02)
    sys.exit(f"no server listens on port {port}")


def write(stream, low, high, keys, total):
    numbers = random.Random(7)
    while total > 0:
        size = numbers.randint(low, high)
        key = b"%d-%d" % (high, numbers.randrange(keys))
        stream.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, size, BYTES[:size]))
        reply = stream.recv(5)
        if reply != b"+OK\r\n":
            sys.exit(f"SET failed: {reply}")
        total -= size


def measure(name, words, port, mib):
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        with connect(port) as stream:
            time.sleep(0.5)
            print(f"{name}: {resident_mib(server):.0f} MiB at the start")
            for title, low, high, per_mib, part in PHASES:
                keys = int(per_mib * mib) or 10**7
                write(stream, low, high, keys, int(6 * mib * (1 << 20) * part))
                print(f"  {title:30} {resident_mib(server) / mib:.2f}")
            print(f"  {'the most':30} {resident_mib(server, 'VmHWM') / mib:.2f}")
            stream.sendall(b"FLUSHALL\r\n")
            stream.recv(5)
            time.sleep(1)
            print(f"  after FLUSHALL: {resident_mib(server):.0f} MiB")
    finally:
        server.terminate()
        server.wait()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, mib, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    port = free_port()
    measure("hawser-kv", [program, "serve", "--listen", f"127.0.0.1:{port}", "--memory", f"{mib}M", "--index", "0",
                          "--transports", "none", *options], port, mib)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        measure("redis-server", ["redis-server", "--port", str(port), "--maxmemory", f"{mib}mb", "--maxmemory-policy",
                                 "allkeys-lru", "--save", "", "--dir", folder, "--logfile", os.devnull, "--appendonly",
                                 "yes" if "--log" in options else "no"], port, mib)


if __name__ == "__main__":
    main()
