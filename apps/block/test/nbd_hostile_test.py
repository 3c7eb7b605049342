#!/usr/bin/env python3
"""Attacks hawser-block over NBD while a well-behaved client continues, and kills the server behind the command nbd:
nbd_hostile_test.py HAWSER_BLOCK [SANITIZERS]."""

import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
SANITIZED = len(sys.argv) > 2  # By the sanitizers that the second argument names.
SECONDS_MAX = 100
MIB = 1 << 20
SIZE = 64 * MIB
# Memory of the program, of the volume, and of the requests in progress (256 MiB), with what the allocator keeps.
RESIDENT_MAX = 800 * MIB
EINVAL, ENOSPC, EOVERFLOW = 22, 28, 75


def check(holds, text):
    if not holds:
        raise SystemExit(f"nbd_hostile_test.py: {text}")


def option(number, data=b""):
    return b"IHAVEOPT" + struct.pack(">II", number, len(data)) + data


def request(kind, offset=0, length=0, flags=0, cookie=7):
    return struct.pack(">IHHQQI", 0x25609513, flags, kind, cookie, offset, length)


FLAGS = struct.pack(">I", 3)
ENTER = FLAGS + option(1, b"disk")
READ, WRITE, DISCONNECT, FLUSH, TRIM, ZERO, STATUS = 0, 1, 2, 3, 4, 6, 7


class Client:
    """A raw connection."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(str(path))
        check(self.receive(18)[:16] == b"NBDMAGICIHAVEOPT", "wrong greeting")

    def enter(self):
        self.socket.sendall(ENTER)
        check(self.receive(10)[:8] == struct.pack(">Q", SIZE), "wrong size")
        return self

    def receive(self, size):
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            check(part, f"the server closed after {len(got)} of {size} bytes")
            got += part
        return got

    def ended(self):
        """Waits for the end of the connection."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def call(self, kind, offset=0, length=0, flags=0, data=b""):
        """Returns the error, and the data of a read that succeeded."""
        self.socket.sendall(request(kind, offset, length, flags) + data)
        magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
        check(magic == 0x67446698 and cookie == 7, "wrong reply")
        return error, self.receive(length) if kind == READ and error == 0 else b""

    def works(self):
        check(self.call(WRITE, 4095, 3, data=b"abc")[0] == 0, "a write failed")
        check(self.call(READ, 4095, 3) == (0, b"abc"), "a read failed")


def wrong_requests(path):
    client = Client(path).enter()
    top = (1 << 64) - 1
    for kind, offset, length, flags, error in (
            (READ, SIZE, 1, 0, EINVAL), (READ, top, 1, 0, EINVAL), (READ, top, 0xffffffff, 0, EOVERFLOW),
            (READ, SIZE - 1, 2, 0, EINVAL), (READ, 0, 0, 0, EINVAL), (READ, 0, 32 * MIB + 1, 0, EOVERFLOW),
            (TRIM, top - 10, 11, 0, EINVAL), (TRIM, 1, 0xffffffff, 0, EINVAL), (ZERO, SIZE - 1, 2, 0, ENOSPC),
            (ZERO, top, 0xffffffff, 0, ENOSPC), (READ, 0, 1, 4, EINVAL), (READ, 0, 1, 0x8000, EINVAL),
            (FLUSH, 1, 0, 0, EINVAL), (FLUSH, 0, 1, 0, EINVAL), (STATUS, 0, 4096, 0, EINVAL), (5, 0, 1, 0, EINVAL),
            (99, 0, 0, 0, EINVAL)):
        got, _ = client.call(kind, offset, length, flags)
        check(got == error, f"request {kind} at {offset} of {length} bytes, flags {flags}: {got} instead of {error}")
    for offset, length, error in ((SIZE, 1, ENOSPC), (top, 3, ENOSPC), (top - 4096, 8192, ENOSPC),
                                  (0, 40 * MIB, EINVAL)):
        got, _ = client.call(WRITE, offset, length, data=bytes(length))
        check(got == error, f"write at {offset} of {length} bytes: {got} instead of {error}")
    client.works()


def wrong_bytes(path):
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), struct.pack(">I", 0xffffffff), FLAGS + bytes(16),
                    FLAGS + option(1, b"absent"), FLAGS + option(1, b"x" * 4097), ENTER + b"GET / HTTP/1.1\r\n"):
        client = Client(path)
        client.socket.sendall(garbage)
        check(client.ended(), "")


def cut_anywhere(path):
    """A client that ends at each byte of a conversation, and one that ends with unread replies."""
    text = struct.pack(">I", 4) + b"disk"
    whole = (FLAGS + option(8) + option(3) + option(10, text + struct.pack(">I", 1) + struct.pack(">I", 15) +
             b"base:allocation") + option(7, text + struct.pack(">HH", 1, 3)) + request(READ, 0, MIB) +
             request(STATUS, 0, SIZE) + request(WRITE, 0, 9, 1) + b"123456789" + request(FLUSH) + request(READ, 9, MIB))
    for end in range(len(whole)):
        client = Client(path)
        client.socket.sendall(whole[:end])
        client.socket.close()


def large_options(path):
    client = Client(path)
    client.socket.sendall(FLAGS + b"IHAVEOPT" + struct.pack(">II", 7, 100 * MIB))
    check(struct.unpack(">QIII", client.receive(20))[2] == 0x80000009, "an option of 100 MiB was not refused")
    check(client.receive(1), "no text")
    block = bytes(MIB)
    for _ in range(100):
        client.socket.sendall(block)
    client.socket.sendall(option(2))
    check(client.ended(), "")


def resident(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("nbd_hostile_test.py: no VmRSS")


def page_faults(process):
    return int(pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[7])


def memory_is_used_again(path, process):
    """The pages of a request are those of an earlier one."""
    client = Client(path).enter()
    requests, counts = 32, []
    for _ in range(2):
        counts.append(page_faults(process))
        for number in range(requests):
            check(client.call(WRITE, number * MIB, MIB, data=bytes(MIB))[0] == 0, "a write failed")
            check(client.call(READ, number * MIB, MIB)[0] == 0, "a read failed")
    faults = page_faults(process) - counts[1]
    check(faults < requests * 64, f"{2 * requests} requests of 1 MiB, as others before, had {faults} page faults")


def flood(client, data):
    """Sends without reading until the server does not receive any more."""
    client.socket.setblocking(False)
    try:
        while True:
            client.socket.send(data)
    except BlockingIOError:
        pass


def replies_never_read(path, process):
    """More clients than the memory is for: those that move nothing are ended, and a client that reads its replies waits
    and continues."""
    good = Client(path).enter()
    bad = [Client(path).enter() for _ in range(12)]
    for number, client in enumerate(bad):
        if number % 2 == 0:
            flood(client, request(READ, 0, 32 * MIB) * 1000)
        else:
            client.socket.sendall(request(WRITE, 0, 32 * MIB))
            flood(client, b"x")
    good.works()
    check(good.call(READ, 0, 32 * MIB)[0] == 0, "a read failed")
    used = resident(process)
    check(used < RESIDENT_MAX, f"{used} bytes are resident")
    for client in bad:
        client.socket.close()
    good.works()


def start(*words, lines=1):
    process = subprocess.Popen([PROGRAM, *(str(word) for word in words)], stdout=subprocess.PIPE, text=True)
    for _ in range(lines):
        line = process.stdout.readline()
        check(" at " in line, f"hawser-block wrote {line!r}")
    return process


def restarted_server(place, use):
    """Calls use() with an address of nbd, and functions that kill, start and fill its server."""
    with tempfile.TemporaryDirectory() as name:
        native = f"unix:{name}/native"
        path = pathlib.Path(name) / "nbd"
        servers = []

        def kill():
            servers[-1].kill()
            servers[-1].wait()

        def start_again():
            servers.append(start("serve", *(word.format(name) for word in place), "--listen", native))

        def create():
            subprocess.run([PROGRAM, "create", "disk", "64M", "--connect", native], check=True)

        start_again()
        create()
        front = start("nbd", "--connect", native, "--listen", f"unix:{path}")
        try:
            use(path, kill, start_again, create)
            front.terminate()
            check(front.wait(SECONDS_MAX) == 0, f"nbd ended with {front.returncode}")
        finally:
            for process in (*servers, front):
                process.kill()
                process.wait()
                process.stdout.close()


def requests_wait(path, kill, start_again, _):
    """Requests wait while a server of files is killed, and a flush covers the writes of before: the kernel has them."""
    before, idle = (Client(path).enter() for _ in range(2))
    before.works()
    kill()
    before.socket.sendall(request(READ, 4095, 3) + request(FLUSH))
    start_again()
    replies = before.receive(16 + 3 + 16)
    check(replies.count(struct.pack(">II", 0x67446698, 0)) == 2 and b"abc" in replies, f"wrong replies: {replies}")
    idle.works()
    check(idle.call(FLUSH)[0] == 0, "a flush failed")


def writes_are_lost(path, kill, start_again, create):
    """A flush fails if the server had its volumes in memory. A connection of the time before has ended when there is
    one of the time after, whose flush would hide the loss."""
    before, idle = (Client(path).enter() for _ in range(2))
    before.works()
    check(before.call(FLUSH)[0] == 0, "a flush failed")
    kill()
    start_again()
    create()
    check(before.call(FLUSH)[0] == 5, "a flush has hidden the restart")
    after = Client(path).enter()
    check(before.ended() and idle.ended(), "")
    after.works()
    check(after.call(FLUSH)[0] == 0, "a flush failed")


def replaced_volume():
    """A connection of a removed volume does not change the volume that has its name now."""
    with tempfile.TemporaryDirectory() as name:
        native = f"unix:{name}/native"
        paths = [pathlib.Path(name) / part for part in ("direct", "remote")]
        processes = [start("serve", "--memory", "128M", "--listen", native, "--nbd", f"unix:{paths[0]}", lines=2)]
        try:
            subprocess.run([PROGRAM, "create", "disk", "64M", "--connect", native], check=True)
            processes.append(start("nbd", "--connect", native, "--listen", f"unix:{paths[1]}"))
            before = [Client(path).enter() for path in paths]
            for client in before:
                client.works()
            subprocess.run([PROGRAM, "remove", "disk", "--connect", native], check=True)
            subprocess.run([PROGRAM, "create", "disk", "64M", "--connect", native], check=True)
            for client in before:
                for kind in (READ, WRITE, FLUSH, TRIM, ZERO):
                    length = 0 if kind == FLUSH else 4096
                    error, _ = client.call(kind, 0, length, data=b"x" * length if kind == WRITE else b"")
                    check(error == 5, f"request {kind} of a removed volume: {error}")
            for path in paths:
                check(Client(path).enter().call(READ, 0, 8192) == (0, bytes(8192)), "the new volume has other data")
        finally:
            for process in processes:
                process.kill()
                process.wait()
                process.stdout.close()


def full_queue(path):
    """The address of a program whose queue of connections is full is refused, without waiting for a place."""
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as queued:
        live.bind(str(path))
        live.listen(0)
        queued.connect(str(path))
        refused = subprocess.run([PROGRAM, "nbd", "--listen", f"unix:{path}"], stderr=subprocess.PIPE, text=True,
                                 timeout=SECONDS_MAX, check=False)
        check(refused.returncode == 1 and "already in use" in refused.stderr, f"not refused: {refused.stderr}")
        check(path.exists(), "the file of a program that listens was removed")


def main():
    restarted_server(("--data", "{}/volumes"), requests_wait)
    restarted_server(("--memory", "128M"), writes_are_lost)
    replaced_volume()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        full_queue(folder / "full")
        native = f"unix:{folder}/native"
        path = folder / "nbd"
        words = ["serve", "--memory", "128M", "--listen", native, "--nbd", f"unix:{path}"]
        with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, text=True) as process:
            try:
                check(" at " in process.stdout.readline() and " at " in process.stdout.readline(), "no addresses")
                subprocess.run([PROGRAM, "create", "disk", "64M", "--connect", native], check=True)
                idle = Client(path)
                other = Client(path).enter()
                wrong_requests(path)
                wrong_bytes(path)
                cut_anywhere(path)
                large_options(path)
                if not SANITIZED:  # The allocators of sanitizers use memory again late.
                    memory_is_used_again(path, process)
                replies_never_read(path, process)
                other.works()
                check(idle.ended(), "")  # By the limit for a negotiation.
                other.socket.sendall(request(READ, 0, 32 * MIB) + request(DISCONNECT))
                other.receive(16 + 32 * MIB)
                check(other.socket.recv(1) == b"", "the server did not end the connection")
                process.terminate()
                check(process.wait(SECONDS_MAX) == 0, f"the server ended with {process.returncode}")
                check(not path.exists(), "the socket is there after the end")
            finally:
                process.kill()


if __name__ == "__main__":
    main()
