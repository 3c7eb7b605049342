#!/usr/bin/env python3
"""Measures hawser-block over NBD beside nbdkit and qemu-nbd with fio: compare.py HAWSER_BLOCK [SECONDS] [ROUNDS].

All servers keep the volume in memory and are pinned to processor 0, fio to processor 1. Each round measures every
server in turn. The table has the medians of operations per second, and of the server's processor time for an operation,
which other work of the machine changes less. hawser-block polls between operations at depth 1, which counts too.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

VOLUME = "256M"
SIZE = 256 << 20
LOADS = [(rw, depth) for depth in (1, 64) for rw in ("randread", "randwrite")]


def hawser(program, folder):
    return [program, "serve", "--memory", "1G", "--listen", f"unix:{folder}/native", "--nbd", f"unix:{folder}/nbd"]


def nbdkit(program, folder):
    return [program, "--foreground", "--unix", f"{folder}/nbd", "--exportname", "disk", "memory", VOLUME]


def qemu_nbd(program, folder):
    memory = pathlib.Path("/dev/shm") / f"qemu-nbd-{os.getpid()}"
    with memory.open("wb") as file:
        file.truncate(SIZE)
    return [program, "--persistent", "--format=raw", "--export-name=disk", "--shared=8", f"--socket={folder}/nbd",
            "--cache=writeback", str(memory)]


def fio(socket, rw, depth, seconds, size=SIZE):
    done = subprocess.run(["taskset", "-c", "1", "fio", "--output-format=json", "--name=x", "--ioengine=nbd",
                           f"--uri=nbd+unix:///disk?socket={socket}", f"--size={size}", f"--rw={rw}", "--bs=4k",
                           f"--iodepth={depth}", "--norandommap", f"--runtime={seconds}",
                           *(["--time_based"] if seconds else ["--bs=1M"])], capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return job["read" if rw == "randread" else "write"]


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_load(server, socket, load, seconds):
    """Returns operations per second, and microseconds of the server's processor time for an operation."""
    before = processor_seconds(server)
    done = fio(socket, *load, seconds)
    return done["iops"], (processor_seconds(server) - before) * 1e6 / done["total_ios"]


def measure(program, command, seconds):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server = subprocess.Popen(["taskset", "-c", "0", *command(program, folder)], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 30
            while not (folder / "nbd").exists() and time.monotonic() < end:
                time.sleep(0.01)
            if command is hawser:
                subprocess.run([program, "create", "disk", VOLUME, "--connect", f"unix:{folder}/native"], check=True)
            fio(folder / "nbd", "write", 4, 0)  # Every byte has been written once.
            return {load: measure_load(server, folder / "nbd", load, seconds) for load in LOADS}
        finally:
            server.kill()
            server.wait()
            pathlib.Path(f"/dev/shm/qemu-nbd-{os.getpid()}").unlink(missing_ok=True)


def main():
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    servers = [("hawser-block", sys.argv[1], hawser), ("nbdkit memory", "nbdkit", nbdkit),
               ("qemu-nbd", "qemu-nbd", qemu_nbd)]
    servers = [server for server in servers if shutil.which(server[1])]
    found = {name: [] for name, _, _ in servers}
    for _ in range(rounds):
        for name, program, command in servers:
            found[name].append(measure(program, command, seconds))
    print("| load |" + "".join(f" {name} |" for name in found))
    print("|---|" + "---|" * len(found))
    for load in LOADS:
        row = [[statistics.median(one[load][i] for one in found[name]) for i in (0, 1)] for name in found]
        print(f"| {load[0]} 4k, depth {load[1]} |" + "".join(f" {rate:,.0f}, {cost:.1f} us |" for rate, cost in row))


if __name__ == "__main__":
    main()
