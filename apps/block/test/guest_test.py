#!/usr/bin/env python3
"""Uses hawser-block from the kernel's client of NBD, as root of a machine whose devices nobody else uses:

  tools/rdma-guest --devices 0 -- python3 -B apps/block/test/guest_test.py HAWSER_BLOCK

`make block-guest` runs that. An ext4 on a volume, whose server is killed while files are written; and a mirror of md
over volumes of two servers, one of which is killed and comes back. Needs nbd-client, mdadm, e2fsprogs and the modules
nbd and raid1.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = sys.argv[1]
KILLS = 3
SECONDS_MAX = 120
MIB = 1 << 20


def check(holds, text):
    if not holds:
        raise SystemExit(f"guest_test.py: {text}")


def run(*words, status=0):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS_MAX, check=False)
    check(done.returncode == status, f"{words}: status {done.returncode}: {done.stdout}")
    return done.stdout


def wait_for(condition, text):
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        check(time.monotonic() < end, f"did not happen: {text}")
        time.sleep(0.1)


class Server:
    """A server of the folder `name`, and of NBD at a Unix socket, which can be killed and started again."""

    def __init__(self, folder, name):
        self.native = f"unix:{folder}/{name}.native"
        self.nbd = folder / f"{name}.nbd"
        self.words = ["serve", "--data", folder / name, "--listen", self.native, "--nbd", f"unix:{self.nbd}"]
        self.start()

    def start(self):
        self.process = subprocess.Popen([PROGRAM, *(str(word) for word in self.words)], stdout=subprocess.PIPE,
                                        text=True)
        lines = [self.process.stdout.readline() for _ in range(2)]
        check(" at " in lines[1], f"hawser-block wrote {lines}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def command(self, *words):
        return run(PROGRAM, *words, "--connect", self.native)


def attach(server, device, *options):
    run("nbd-client", "-unix", server.nbd, "-name", "disk", *options, device)


def detach(device):
    run("nbd-client", "-d", device)


@contextlib.contextmanager
def mounted(device, folder):
    run("mount", device, folder)
    try:
        yield
    finally:
        run("umount", folder)


def contents(number):
    return hashlib.sha256(str(number).encode()).digest() * (8192 + number * 37 % 4096)


class Writer(threading.Thread):
    """Writes and syncs files until it is stopped or fails. `synced` counts those that are durable."""

    def __init__(self, folder, first):
        super().__init__(daemon=True)
        self.folder, self.first, self.synced, self.stopping, self.error = folder, first, first, False, None

    def run(self):
        try:
            while not self.stopping and self.synced < self.first + 2000:
                path = self.folder / f"file{self.synced}"
                with path.open("wb") as file:
                    file.write(contents(self.synced))
                    file.flush()
                    os.fsync(file.fileno())
                self.synced += 1
        except OSError as error:
            self.error = error

    def stop(self):
        self.stopping = True
        self.join(SECONDS_MAX)
        check(not self.is_alive(), "a writer did not end")
        check(self.error is None, f"a write failed: {self.error}")
        return self.synced


def verify(folder, count):
    for number in range(count):
        check((folder / f"file{number}").read_bytes() == contents(number), f"file{number} has other bytes")


def killed_under_ext4(folder):
    """The kernel reports errors while the server is away. What was synced before is there when it is back."""
    server = Server(folder, "one")
    server.command("create", "disk", "256M")
    place = folder / "mounted"
    place.mkdir()
    count = 0
    for kill in range(KILLS):
        attach(server, "/dev/nbd0", "-timeout", "5")
        if kill == 0:
            run("mkfs.ext4", "-q", "-F", "/dev/nbd0")
        with mounted("/dev/nbd0", place):  # Replays the journal.
            verify(place, count)
            writer = Writer(place, count)
            writer.start()
            wait_for(lambda: writer.synced > count + 4 or writer.error, "files are synced")
            check(writer.error is None, f"a write failed: {writer.error}")
            server.kill()
            writer.join(SECONDS_MAX)
            check(writer.error is not None, "no error without a server")
            count = writer.synced
        detach("/dev/nbd0")
        server.start()
    attach(server, "/dev/nbd0")
    with mounted("/dev/nbd0", place):
        verify(place, count)
    run("e2fsck", "-f", "-n", "/dev/nbd0")
    detach("/dev/nbd0")
    check("0 damaged" in server.command("scrub", "disk"), "blocks are damaged")
    server.kill()
    print(f"ext4: the server was killed {KILLS} times; {count} synced files are there, and e2fsck finds no error",
          flush=True)


def state_of_mirror():
    return pathlib.Path("/proc/mdstat").read_text(encoding="ascii")


def mirror(folder):
    """One half of a RAID 1 is killed while files are written, comes back, and is added again."""
    servers = [Server(folder, name) for name in ("left", "right")]
    devices = ["/dev/nbd1", "/dev/nbd2"]
    for server, device in zip(servers, devices):
        server.command("create", "disk", "128M")
        attach(server, device, "-timeout", "5")
    run("mdadm", "--create", "/dev/md7", "--run", "--level=1", "--raid-devices=2", "--bitmap=internal",
        "--metadata=1.2", *devices)
    place = folder / "mirrored"
    place.mkdir()
    run("mkfs.ext4", "-q", "-F", "/dev/md7")
    with mounted("/dev/md7", place):
        writer = Writer(place, 0)
        writer.start()
        wait_for(lambda: writer.synced > 2 or writer.error, "a file is synced")
        servers[1].kill()
        after = writer.synced
        wait_for(lambda: writer.synced > after + 3 or writer.error, "files are synced without one half")
        count = writer.stop()
        check("(F)" in state_of_mirror(), "no half has failed")
        run("mdadm", "/dev/md7", "--remove", "failed")
        subprocess.run(["nbd-client", "-d", devices[1]], stdout=subprocess.DEVNULL, check=False)
        servers[1].start()
        attach(servers[1], devices[1], "-timeout", "5")
        run("mdadm", "/dev/md7", "--re-add", devices[1])
        wait_for(lambda: "[UU]" in state_of_mirror(), "the mirror is whole")
        verify(place, count)
    run("e2fsck", "-f", "-n", "/dev/md7")
    run("mdadm", "--stop", "/dev/md7")
    for device in devices:
        detach(device)
    # Each half alone has everything.
    for server, device in zip(servers, devices):
        attach(server, device)
        run("mdadm", "--assemble", "/dev/md7", "--run", device)
        run("e2fsck", "-f", "-n", "/dev/md7")
        with mounted("/dev/md7", place):
            verify(place, count)
        run("mdadm", "--stop", "/dev/md7")
        detach(device)
        server.kill()
    print(f"md: a half was killed and added again; {count} synced files are on each half, and e2fsck finds no error",
          flush=True)


def main():
    for program in ("nbd-client", "mdadm", "mkfs.ext4"):
        check(shutil.which(program), f"the program {program} is missing (Debian: nbd-client, mdadm, e2fsprogs)")
    run("modprobe", "nbd", "nbds_max=4")
    run("modprobe", "-a", "raid1", "ext4")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        killed_under_ext4(folder)
        mirror(folder)


if __name__ == "__main__":
    main()
