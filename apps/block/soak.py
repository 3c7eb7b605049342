#!/usr/bin/env python3
"""Verifies a volume while its processes are killed: soak.py HAWSER_BLOCK [options].

A client of NBD writes and reads blocks through `hawser-block nbd` and a proxy, at several depths. In the midst, the
server or the command nbd is killed with SIGKILL and started again, or the proxy cuts the connections between them. Each
block says which write it is from. A read must find the last write that was acknowledged, or one whose outcome the
client does not know. Between these rounds, fio verifies other volumes with crc32c, through `nbd` over shared memory and
through the proxy. In the midst, the server is killed and started again, and the proxy cuts connections: fio must see
neither an error nor a wrong byte. At the end all blocks are read, and the volumes are scrubbed. --failover runs fio
only.
"""

import argparse
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BLOCK = 4096
BLOCKS = 8192
BLOCKS_PER_REQUEST_MAX = 16
DEPTHS = (1, 4, 16, 64)
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
SECONDS_MAX = 120
SKIPPED = 77


def fail(text):
    raise SystemExit(f"soak.py: {text}")


class Process:
    """hawser-block with the same arguments again and again."""

    def __init__(self, *words):
        self.words = [str(word) for word in words]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if " at " not in line:
            fail(f"{self.words[1]} wrote {line!r}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def kill_and_start(self):
        self.kill()
        self.start()


class Proxy:
    """Forwards connections to a Unix socket, and cuts them."""

    def __init__(self, path, target):
        self.target, self.sockets, self.lock = str(target), set(), threading.Lock()
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listening.accept()[0]
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.sockets |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=pair, daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(1 << 20):
                target.sendall(data)
        except OSError:
            pass
        self.end({source, target})

    def end(self, sockets):
        with self.lock:
            self.sockets -= sockets
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.end(set(self.sockets))


def contents(block, version):
    return struct.pack("<QQ", block, version) * (BLOCK // 16) if version else bytes(BLOCK)


class Volume:
    """The versions that each block may have."""

    def __init__(self, generator):
        self.random = generator
        self.may_have = [{0} for _ in range(BLOCKS)]
        self.version = self.writes = self.reads = self.unknown = 0

    def verify(self, first, data):
        for number in range(len(data) // BLOCK):
            block, found = first + number, data[number * BLOCK:(number + 1) * BLOCK]
            if not any(found == contents(block, version) for version in self.may_have[block]):
                fail(f"block {block} has {struct.unpack('<QQ', found[:16])} instead of {self.may_have[block]}")
        self.reads += len(data) // BLOCK


class Connection:
    """Requests in progress, no two of which overlap."""

    def __init__(self, path, volume, depth):
        self.volume, self.depth, self.requests, self.busy, self.cookie = volume, depth, {}, set(), 0
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(str(path))
        self.receive(18)
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 4) + b"disk")
        self.receive(10)

    def receive(self, size):
        got = bytearray()
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            if not part:
                raise ConnectionError("the connection has ended")
            got += part
        return bytes(got)

    def send(self, kind, first, count):
        self.cookie += 1
        blocks = range(first, first + count)
        version = 0
        data = b""
        if kind == WRITE:
            self.volume.version += 1
            version = self.volume.version
            for block in blocks:
                self.volume.may_have[block].add(version)
            data = b"".join(contents(block, version) for block in blocks)
        self.busy |= set(blocks)
        self.requests[self.cookie] = (kind, first, count, version)
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, self.cookie, first * BLOCK, count * BLOCK) + data)

    def send_any(self):
        kind = self.volume.random.choices((READ, WRITE, FLUSH), (10, 10, 1))[0]
        if kind == FLUSH:
            return self.send(FLUSH, 0, 0)
        count = self.volume.random.randint(1, BLOCKS_PER_REQUEST_MAX)
        first = self.volume.random.randint(0, BLOCKS - count)
        if self.busy.isdisjoint(range(first, first + count)):
            self.send(kind, first, count)

    def receive_reply(self):
        magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
        if magic != 0x67446698 or cookie not in self.requests:
            fail("a wrong reply")
        kind, first, count, version = self.requests[cookie]
        if error:
            raise ConnectionError(f"error {error}")
        data = self.receive(count * BLOCK) if kind == READ else b""
        del self.requests[cookie]
        self.busy -= set(range(first, first + count))
        if kind == READ:
            self.volume.verify(first, data)
        elif kind == WRITE:
            self.volume.writes += 1
            for block in range(first, first + count):
                self.volume.may_have[block] = {version}

    def use_until(self, end):
        while time.monotonic() < end:
            while len(self.requests) < self.depth:
                self.send_any()
            self.receive_reply()
        while self.requests:
            self.receive_reply()

    def read_all(self):
        for first in range(0, BLOCKS, BLOCKS_PER_REQUEST_MAX):
            self.send(READ, first, BLOCKS_PER_REQUEST_MAX)
            self.receive_reply()


class Faults(threading.Thread):
    def __init__(self, generator, faults, pause_max):
        super().__init__(daemon=True)
        self.random, self.faults, self.pause_max = generator, faults, pause_max
        self.counts = dict.fromkeys(faults, 0)
        self.stopping = threading.Event()
        self.failure = None

    def run(self):
        try:
            self.repeat()
        except BaseException as failure:  # fail() raises SystemExit, which ends only this thread.
            self.failure = failure

    def repeat(self):
        while not (self.stopping.wait(self.random.uniform(0.02, self.pause_max)) and all(self.counts.values())):
            # Each kind occurs before one occurs again.
            name = self.random.choice([kind for kind, count in self.counts.items() if count == 0] or list(self.faults))
            self.faults[name]()
            self.counts[name] += 1

    def stop(self):
        self.stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def use_with_faults(path, volume, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection = None
        try:
            connection = Connection(path, volume, volume.random.choice(DEPTHS))
            connection.use_until(end)
        except (ConnectionError, FileNotFoundError):
            time.sleep(0.02)
        finally:
            if connection is not None:
                volume.unknown += sum(kind == WRITE for kind, *_ in connection.requests.values())
                connection.socket.close()


def start_fio(path, export, depth, seconds):
    return subprocess.Popen(
        ["fio", "--name=soak", "--ioengine=nbd", f"--uri=nbd+unix:///{export}?socket={path}", "--size=64M", "--rw=randrw",
         "--bsrange=4k-64k", f"--iodepth={depth}", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256",
         "--verify_state_save=0", "--time_based", f"--runtime={seconds}", "--fsync=64"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def use_fio(exports, depth, seconds, faults):
    """Runs fio for each export of a socket, with faults that fio must not see."""
    faults.start()
    running = [start_fio(path, export, depth, seconds) for export, path in exports.items()]
    outputs = [fio.communicate()[0] for fio in running]
    faults.stop()
    for fio, output in zip(running, outputs):
        if fio.returncode != 0:
            fail(f"fio failed after {faults.counts}: {output}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="hawser-block")
    parser.add_argument("--minutes", type=float, default=60, help="(60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the choices, not of the times")
    parser.add_argument("--round", type=float, default=30, help="seconds of a round with faults; fio has a third (30)")
    parser.add_argument("--failover", type=int, metavar="SECONDS", help="only fio, for so long")
    parser.add_argument("--pause-max", type=float, default=2, help="seconds between two faults (2)")
    return parser.parse_args()


def main():
    options = parse()
    print(f"seed {options.seed}", flush=True)
    if not shutil.which("fio"):
        print("fio is missing (Debian: fio)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        native, nbd, direct = folder / "native", folder / "nbd", folder / "direct"
        server = Process(options.program, "serve", "--data", folder / "volumes", "--listen", f"unix:{native}")
        proxy = Proxy(folder / "proxy", native)
        waiting = ("--outage-max", "600", "--wait", "event")
        front = Process(options.program, "nbd", "--connect", f"unix:{folder}/proxy", "--listen", f"unix:{nbd}", *waiting)
        direct_front = Process(options.program, "nbd", "--connect", f"unix:{native}", "--listen", f"unix:{direct}",
                               *waiting)

        def command(*words):
            done = subprocess.run([options.program, *words, "--connect", f"unix:{native}"], capture_output=True, text=True,
                                  check=False)
            if done.returncode != 0:
                fail(f"{words}: {done.stdout}{done.stderr}")

        try:
            for export, size in (("disk", str(BLOCKS * BLOCK)), ("proxied", "64M"), ("direct", "64M")):
                command("create", export, size)
            generator = random.Random(options.seed)
            volume = Volume(generator)
            totals = {}
            fio_rounds = 0
            outage = {"kills of the server": server.kill_and_start, "cuts": proxy.cut}

            def faults_of(kinds):
                return Faults(random.Random(generator.random()), kinds, options.pause_max)

            def use(depth, seconds):
                faults = faults_of(outage)
                use_fio({"proxied": nbd, "direct": direct}, depth, seconds, faults)
                add(faults)

            def add(faults):
                for fault, count in faults.counts.items():
                    totals[fault] = totals.get(fault, 0) + count

            if options.failover:
                use(DEPTHS[-1], options.failover)
                print(f"{totals} under two runs of fio", flush=True)
            end = time.monotonic() + (0 if options.failover else options.minutes * 60)
            while time.monotonic() < end:
                faults = faults_of({**outage, "kills of nbd": front.kill_and_start})
                faults.start()
                use_with_faults(nbd, volume, min(options.round, max(end - time.monotonic(), 1)))
                faults.stop()
                add(faults)
                Connection(nbd, volume, 1).read_all()
                use(DEPTHS[fio_rounds % len(DEPTHS)], max(int(options.round / 3), 1))
                fio_rounds += 1
                print(f"{totals}, {volume.writes} writes, {volume.unknown} with an unknown outcome, {volume.reads} blocks "
                      f"verified, {fio_rounds} rounds of fio", flush=True)
            for export in ("disk", "proxied", "direct"):
                command("scrub", export)
            print("no byte is wrong")
        finally:
            for process in (front, direct_front, server):
                process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
