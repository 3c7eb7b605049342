#!/usr/bin/env python3
"""Gives a volume to a virtual machine of QEMU as its disk: drive_test.py HAWSER_BLOCK [--in-guest].

The machine writes an ext4 while the server of the volume is killed and started again. QEMU connects again and repeats
the requests without a reply, so that the machine sees no error. `make block-guest` runs this.
"""

import pathlib
import subprocess
import sys
import tempfile

from guest_test import KILLS, MIB, PROGRAM, Server, check, contents, mounted, run, verify

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILES = 40
FILES_PER_KILL = 8
SECONDS_MAX = 300


def use_disk():
    """In the virtual machine: the host reads the lines of standard output."""
    run("modprobe", "-a", "virtio_blk", "ext4")
    disk = "/dev/vda"
    run("mkfs.ext4", "-q", "-F", disk)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with mounted(disk, folder):
            for number in range(FILES):
                with (folder / f"file{number}").open("wb", buffering=0) as file:
                    file.write(contents(number))
                    run("sync", file.name)
                print(f"synced {number}", flush=True)
        run("e2fsck", "-f", "-n", disk)
        with mounted(disk, folder):
            verify(folder, FILES)
    print("verified", flush=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        server = Server(pathlib.Path(name), "volumes")
        guest = None
        try:
            server.command("create", "disk", str(256 * MIB))
            drive = f"file.driver=nbd,file.server.type=unix,file.server.path={server.nbd},file.export=disk," \
                    "file.reconnect-delay=60,discard=unmap"
            guest = subprocess.Popen([str(ROOT / "tools" / "rdma-guest"), "--guest", "--devices", "0", "--drive", drive,
                                      "--time-limit", str(SECONDS_MAX), "--", sys.executable, "-B", __file__, PROGRAM,
                                      "--in-guest"], stdout=subprocess.PIPE, text=True)
            kills = 0
            last = ""
            for last in guest.stdout:
                word, _, number = last.strip().partition(" ")
                if word == "synced" and int(number) % FILES_PER_KILL == FILES_PER_KILL - 1 and kills < KILLS:
                    server.kill()
                    server.start()
                    kills += 1
            check(guest.wait(SECONDS_MAX) == 0 and last == "verified\n", f"the guest ended with {last!r}")
            check("0 damaged" in server.command("scrub", "disk"), "blocks are damaged")
        finally:
            if guest is not None:
                guest.kill()
            server.kill()
    print(f"QEMU: {FILES} files on an ext4 are there after {kills} kills of the server, and e2fsck finds no error",
          flush=True)


if __name__ == "__main__":
    if "--in-guest" in sys.argv:
        use_disk()
    else:
        main()
