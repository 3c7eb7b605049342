#!/usr/bin/env python3
"""Uses hawser-block ublk, as root of a machine whose kernel has the driver ublk_drv (Linux 6.9 or later):

  tools/rdma-guest --devices 0 --kernel VMLINUZ -- python3 -B apps/block/test/ublk_guest_test.py HAWSER_BLOCK

`make block-ublk KERNEL=VMLINUZ` runs that. fio verifies a device; discards and zeros reach the volume; an ext4 is used
while `ublk` and its server are killed, and while another process takes the device over. Needs fio and e2fsprogs.
"""

import os
import pathlib
import random
import shutil
import subprocess
import tempfile

from guest_test import PROGRAM, Server, Writer, check, mounted, run, verify, wait_for

KILLS = 8
MIB = 1 << 20


class Ublk:
    """hawser-block ublk for the volume of a server. `through`: the words of a program that starts it."""

    def __init__(self, server, volume, *options, through=()):
        words = [*through, PROGRAM, "ublk", volume, "--connect", server.native, "--wait", "event", *options]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE if through else None, text=True)
        line = self.process.stdout.readline()
        check(" is at /dev/ublkb" in line, f"hawser-block ublk wrote {line!r}")
        self.path = line.split()[-1]
        self.number = self.path.removeprefix("/dev/ublkb")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        output = "".join(text or "" for text in self.process.communicate(timeout=60))
        check(self.process.returncode == 0, f"status {self.process.returncode}: {output}")
        return output

    def flushes(self):
        """Whether each thread is an IO_FLUSHER: its allocations do no I/O (PF_MEMALLOC_NOIO)."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return {bool(int(task.read_text().rpartition(")")[2].split()[6]) & 0x80000) for task in tasks}

    def locked_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmLck:")[2].split()[0])


def contents_of(path, offset, size):
    with open(path, "rb") as device:
        return os.pread(device.fileno(), size, offset)


def allocated(server, volume):
    return next(line for line in server.command("info", volume).splitlines() if "allocated" in line)


def requests(folder):
    """Requests of all kinds and sizes. The device is removed when its process ends."""
    server = Server(folder, "requests")
    server.command("create", "disk", "64M")
    ublk = Ublk(server, "disk", "--depth", "32")
    check(ublk.flushes() == {True} and ublk.locked_kib() > 4096,
          f"the memory may be written to the device: {ublk.flushes()}, {ublk.locked_kib()} KiB are locked")
    check(run("blockdev", "--getsize64", ublk.path).strip() == str(64 * MIB), "the device has another size")
    run("fio", "--name=verify", f"--filename={ublk.path}", "--ioengine=libaio", "--direct=1", "--rw=randrw",
        "--bsrange=512-1M", "--iodepth=48", "--size=32M", "--io_size=24M",
        "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=16")
    before = allocated(server, "disk")
    run("blkdiscard", "--offset", MIB, "--length", 8 * MIB, ublk.path)
    check(contents_of(ublk.path, MIB, 8 * MIB) == bytes(8 * MIB), "discarded bytes are not zeros")
    check(allocated(server, "disk") != before, f"a discard frees nothing: {before}")
    run("blkdiscard", "--zeroout", "--offset", 16 * MIB + 512, "--length", MIB, ublk.path)
    check(contents_of(ublk.path, 16 * MIB + 512, MIB) == bytes(MIB), "zeros were not written")
    written = random.Random(1).randbytes(3 * MIB + 1024)
    with open(ublk.path, "r+b") as device:
        os.pwrite(device.fileno(), written, 40 * MIB + 512)
        # A process that has the device open, and has not synced, does not prevent its end, and loses nothing.
        check("--recover" not in ublk.stop(), "the device is in use")
    check(not pathlib.Path(ublk.path).exists(), "the device was not removed")
    check("0 damaged" in server.command("scrub", "disk"), "blocks are damaged")
    # Another device of the volume has the bytes. Its process does not have the right to lock its memory.
    ublk = Ublk(server, "disk", through=("setpriv", "--bounding-set", "-sys_resource"))
    check(contents_of(ublk.path, 40 * MIB + 512, len(written)) == written, "other bytes")
    check(ublk.flushes() == {False} and ublk.locked_kib() == 0, "the right was there")
    output = ublk.stop()
    check("without CAP_SYS_RESOURCE" in output, f"no warning: {output}")
    ublk = Ublk(server, "disk")
    ublk.kill()
    run(PROGRAM, "ublk", "--remove", ublk.number)
    check(not pathlib.Path(ublk.path).exists(), "the device was not removed")
    run(PROGRAM, "ublk", "--remove", ublk.number, status=1)
    server.kill()
    print("requests: fio, discards and zeros", flush=True)


def taken_over_by_others(folder):
    """Who has another volume, medium or name does not take over the device of a process that was killed."""
    server = Server(folder, "first")
    server.command("create", "disk", "16M")
    shutil.copytree(folder / "first", folder / "copied")
    ublk = Ublk(server, "disk", "--client", "one")
    ublk.kill()

    def refused(of, *options):
        return run(PROGRAM, "ublk", "disk", "--connect", of.native, "--recover", ublk.number, *options, status=1)

    for options in (["--client", "two"], []):
        text = refused(server, *options)
        check("that of the process that made it" in text, f"{options}: {text}")
    # The volume of another server has the same name, and then the same id too.
    other = Server(folder, "other")
    other.command("create", "disk", "16M")
    text = refused(other, "--client", "one")
    check("belongs to another volume than disk@" in text, f"another server: {text}")
    other.kill()
    copied = Server(folder, "copied")
    text = refused(copied, "--client", "one")
    check("may have lost what was not flushed, or is another one" in text, f"a copy: {text}")
    copied.kill()
    Ublk(server, "disk", "--client", "one", "--recover", ublk.number).stop()
    server.kill()
    print("a device waits for the right process", flush=True)


def killed_under_ext4(folder):
    """Neither kills of `ublk` nor of the server are errors for the file system."""
    server = Server(folder, "killed")
    for volume in ("disk", "other"):
        server.command("create", volume, "256M")
    ublk = Ublk(server, "disk")
    run("mkfs.ext4", "-q", "-F", ublk.path)
    place = folder / "mounted"
    place.mkdir()
    with mounted(ublk.path, place):
        writer = Writer(place, 0)
        writer.start()
        for kill in range(KILLS):
            synced = writer.synced
            wait_for(lambda: writer.synced > synced + 3 or writer.error, "files are synced")
            check(writer.error is None, f"a write failed: {writer.error}")
            if kill % 3 == 1:
                server.kill()
                server.start()
                continue
            if kill % 3 == 2:
                server.kill()
            ublk.kill()
            if kill % 3 == 2:
                server.start()
            refused = run(PROGRAM, "ublk", "other", "--connect", server.native, "--recover", ublk.number, status=1)
            check("belongs to another volume than other@" in refused, f"another volume: {refused}")
            ublk = Ublk(server, "disk", "--recover", ublk.number)
        refused = run(PROGRAM, "ublk", "--remove", ublk.number, status=1)
        check("is served by" in refused, f"a device that is served was removed: {refused}")
        # Another process takes the device over.
        check("--recover" in ublk.stop(), "a mounted device was removed")
        ublk = Ublk(server, "disk", "--recover", ublk.number)
        synced = writer.synced
        wait_for(lambda: writer.synced > synced + 3 or writer.error, "files are synced")
        count = writer.stop()
        verify(place, count)
    run("e2fsck", "-f", "-n", ublk.path)
    ublk.stop()
    ublk = Ublk(server, "disk")
    with mounted(ublk.path, place):
        verify(place, count)
    ublk.stop()
    check("0 damaged" in server.command("scrub", "disk"), "blocks are damaged")
    server.kill()
    print(f"ext4: {KILLS} kills, without an error; {count} synced files are there, and e2fsck finds no error", flush=True)


def main():
    for program in ("fio", "mkfs.ext4", "blkdiscard"):
        check(shutil.which(program), f"the program {program} is missing (Debian: fio, e2fsprogs, util-linux)")
    run("modprobe", "-a", "ublk_drv", "ext4")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        requests(folder)
        taken_over_by_others(folder)
        killed_under_ext4(folder)


if __name__ == "__main__":
    main()
