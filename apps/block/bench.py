#!/usr/bin/env python3
"""Measures hawser-block with fio, beside nbdkit, qemu-nbd and the kernel's NVMe: bench.py HAWSER_BLOCK [options].

All volumes are in memory. The servers share processor 0, fio has processor 1 (--pin none: the system chooses). Each
round measures every server in turn, each cell for --seconds. Prints tables with the medians of the rounds: requests per
second, and the mean and the 90th percentile of fio's completion latency. --json writes all numbers, and --html a page
with the published numbers of another block store beside them.

hawser: `serve --nbd`. hawser, TCP, shared memory, UCX and RDMA: the command nbd in front of `serve`. "device": its
client is the kernel (nbd-client), and fio uses the device. NVMe: the kernel's target (nvmet, brd) and the kernel's
client (nvme-cli), which --pin does not move. Devices and NVMe need root, and RDMA and NVMe need --rdma-address: they
are measured by `make block-bench-rdma`. A server that is not installed is left out with a line, and so is UCX if the
program is built without it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_report import page
from kernel_devices import nbd_device, nvme_device

DEPTHS = (1, 2, 4, 8, 16, 20, 24, 28, 32, 64, 96, 128)
SEQUENTIAL_DEPTH = 16
STARTS_S_MAX = 60


class NotListening(Exception):
    """A server has ended, or does not listen."""


def cells(depths):
    """Returns loads of fio: how, bytes of a request, depth."""
    random = [(rw, "4k", depth) for rw in ("randwrite", "randread") for depth in depths]
    return random + [(rw, size, SEQUENTIAL_DEPTH) for rw in ("write", "read") for size in ("64k", "1M")]


class Servers:
    """Processes that end together, the last one first."""

    def __init__(self, program, folder, pin, options):
        self.address = options.rdma_address
        self.size = options.size << 20
        self.wait = options.wait
        self.program, self.folder, self.pin, self.processes = program, folder, pin, []
        self.cleanups = contextlib.ExitStack()

    def start(self, *words, there):
        """Returns when the file `there` exists, which is the socket of the server."""
        self.processes.append(subprocess.Popen([*self.pin, *(str(word) for word in words)], stdout=subprocess.DEVNULL))
        end = time.monotonic() + STARTS_S_MAX
        while not there.exists():
            if self.processes[-1].poll() is not None or time.monotonic() > end:
                raise NotListening(f"{words[0]} does not listen at {there}")
            time.sleep(0.01)

    def start_hawser(self, *words, lines):
        """Returns when the program has written so many lines: it serves then."""
        words = [*self.pin, self.program, *(str(word) for word in words), "--wait", self.wait]
        self.processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        if not all(self.processes[-1].stdout.readline() for _ in range(lines)):
            raise NotListening(f"{' '.join(words)} has ended")

    def hawser(self, address, *words):
        self.start_hawser("serve", "--memory", "1G", "--listen", address, "--nbd", f"unix:{self.folder}/direct", *words,
                          lines=2)
        subprocess.run([self.program, "create", "disk", str(self.size), "--connect", address], check=True)

    def end(self):
        try:
            self.cleanups.close()
        finally:
            for process in reversed(self.processes):
                process.kill()
                process.wait()


def hawser_direct(servers):
    servers.hawser(f"unix:{servers.folder}/native")
    return servers.folder / "direct"


def hawser_remote(servers, transport):
    # The port is that of this process, so that two runs do not meet.
    address = f"{servers.address or '127.0.0.1'}:{20000 + os.getpid() % 20000}"
    servers.hawser(address, "--transports", {"ucx": "shm,ucx", "rdma": "rdma"}.get(transport, "shm"))
    servers.start_hawser("nbd", "--connect", address, "--transport", transport, "--listen",
                         f"unix:{servers.folder}/remote", lines=1)
    return servers.folder / "remote"


def hawser_device(servers, transport):
    return servers.cleanups.enter_context(nbd_device(hawser_remote(servers, transport)))


def nvme(servers, transport):
    return servers.cleanups.enter_context(nvme_device(transport, servers.address, servers.size))


def nbdkit(servers):
    servers.start("nbdkit", "--foreground", "--unix", servers.folder / "nbdkit", "--exportname", "disk", "memory",
                  str(servers.size), there=servers.folder / "nbdkit")
    return servers.folder / "nbdkit"


def qemu_nbd(servers):
    memory = servers.folder / "memory"
    with memory.open("wb") as file:
        file.truncate(servers.size)
    servers.start("qemu-nbd", "--persistent", "--format=raw", "--export-name=disk", "--shared=8",
                  f"--socket={servers.folder}/qemu", "--cache=writeback", memory, there=servers.folder / "qemu")
    return servers.folder / "qemu"


# The program that a server needs, and the function that starts it.
SERVERS = {
    "hawser": (None, hawser_direct),
    "hawser, TCP": (None, lambda servers: hawser_remote(servers, "tcp")),
    "hawser, shared memory": (None, lambda servers: hawser_remote(servers, "auto")),
    "hawser, UCX": (None, lambda servers: hawser_remote(servers, "ucx")),
    "nbdkit memory": ("nbdkit", nbdkit),
    "qemu-nbd": ("qemu-nbd", qemu_nbd),
}
# With --rdma-address.
RDMA_SERVERS = {
    "hawser, RDMA": (None, lambda servers: hawser_remote(servers, "rdma")),
    "hawser device, TCP": ("nbd-client", lambda servers: hawser_device(servers, "tcp")),
    "hawser device, RDMA": ("nbd-client", lambda servers: hawser_device(servers, "rdma")),
    "NVMe, TCP": ("nvme", lambda servers: nvme(servers, "tcp")),
    "NVMe, RDMA": ("nvme", lambda servers: nvme(servers, "rdma")),
}


def fio(place, cell, size_all, seconds, pin):
    """`place`: the socket of a server of NBD, or a block device."""
    rw, size, depth = cell
    words = ["--time_based", f"--runtime={seconds}"] if seconds else []
    if place.is_block_device():
        words += ["--ioengine=libaio", "--direct=1", f"--filename={place}"]
    else:
        words += ["--ioengine=nbd", f"--uri=nbd+unix:///disk?socket={place}"]
    done = subprocess.run([*pin, "fio", "--output-format=json", "--name=x", f"--size={size_all}", f"--rw={rw}",
                           f"--bs={size}", f"--iodepth={depth}", "--norandommap", *words], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench.py: fio failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read" if "read" in rw else "write"]


OPTIONAL = ("hawser, UCX",)


def measure(make, options, loads):
    """Returns the numbers of each load."""
    pin = {"server": [], "client": []}
    if options.pin == "apart":
        pin = {"server": ["taskset", "-c", "0"], "client": ["taskset", "-c", "1"]}
    if options.real_time:
        pin = {side: [*words, "chrt", "--fifo", "1"] for side, words in pin.items()}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        servers = Servers(str(pathlib.Path(options.program).resolve()), pathlib.Path(name), pin["server"],
                          options)
        try:
            place = make(servers)
            fio(place, ("write", "1M", 4), servers.size, 0, pin["client"])  # Every byte has been written once.
            found = []
            for cell in loads:
                done = fio(place, cell, servers.size, options.seconds, pin["client"])
                clat = done["clat_ns"]
                found.append({"iops": done["iops"], "mib_s": done["bw_bytes"] / (1 << 20), "clat_us": clat["mean"] / 1e3,
                              "clat_p90_us": clat["percentile"]["90.000000"] / 1e3})
            return found
        finally:
            servers.end()


def median(rounds, number):
    return {key: statistics.median(one[number][key] for one in rounds) for key in rounds[0][number]}


def print_table(title, loads, results, wanted, show):
    print(f"\n{title}\n\n| load |" + "".join(f" {name} |" for name in results))
    print("|---|" + "---|" * len(results))
    for number, (rw, size, depth) in enumerate(loads):
        if (size == "4k") == wanted:
            cells_of_row = [show(median(rounds, number)) for rounds in results.values()]
            print(f"| {rw} {size}, depth {depth} |" + "".join(f" {text} |" for text in cells_of_row))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="hawser-block")
    parser.add_argument("--seconds", type=int, default=5, help="of a cell (5)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--wait", choices=("spin", "event"), default="spin", help="of hawser-block (spin)")
    parser.add_argument("--size", type=int, default=256, help="MiB of a volume (256)")
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)), help="of the requests of 4 KB")
    parser.add_argument("--servers", help="names, with ';' between them (all that can run)")
    parser.add_argument("--rdma-address", metavar="ADDRESS", help="address of this machine at its RDMA device")
    parser.add_argument("--pin", choices=("apart", "none"), default="apart" if os.cpu_count() > 1 else "none")
    parser.add_argument("--real-time", action="store_true",
                        help="servers and fio come before all other programs of the machine, which wait meanwhile (root)")
    parser.add_argument("--json", type=pathlib.Path, help="file for all numbers")
    parser.add_argument("--html", type=pathlib.Path, help="file for a page with tables and charts")
    return parser.parse_args()


def main():
    options = parse()
    if not shutil.which("fio"):
        raise SystemExit("bench.py: fio is missing (Debian: fio)")
    loads = cells([int(depth) for depth in options.depths.split(",")])
    makers = SERVERS | (RDMA_SERVERS if options.rdma_address else {})
    results = {}
    for name in options.servers.split(";") if options.servers else makers:
        if name not in makers:
            raise SystemExit(f"bench.py: no server '{name}' (or --rdma-address is missing): {', '.join(makers)}")
        if makers[name][0] and not shutil.which(makers[name][0]):
            print(f"{name} is not installed: left out (Debian: nbdkit, qemu-utils, nbd-client, nvme-cli)",
                  file=sys.stderr)
        else:
            results[name] = []
    for number in range(options.rounds):
        for name, rounds in list(results.items()):
            try:
                rounds.append(measure(makers[name][1], options, loads))
            except NotListening as error:
                if name not in OPTIONAL or number > 0:
                    raise SystemExit(f"bench.py: {error}") from error
                print(f"{name} is left out: {error}", file=sys.stderr)
                del results[name]
    print_table("4 KB at random places: requests/s, mean and 90th percentile of the latency in us", loads, results, True,
                lambda cell: f"{cell['iops']:,.0f}, {cell['clat_us']:.0f}, {cell['clat_p90_us']:.0f}")
    print_table("Sequential: MiB/s", loads, results, False, lambda cell: f"{cell['mib_s']:,.0f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({
            "seconds": options.seconds, "pin": options.pin,
            "loads": [{"rw": rw, "bytes": size, "depth": depth} for rw, size, depth in loads],
            "rounds": results}, indent=1), encoding="utf-8")
    if options.html:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        medians = {name: [median(rounds, number) for number in range(len(loads))] for name, rounds in results.items()}
        conditions = (f"Medians of {options.rounds} rounds, {options.seconds} s for each cell; volumes in memory, NBD over a "
                      f"Unix socket, devices by libaio; hawser-block --wait {options.wait}; processors of server and "
                      f"fio: {options.pin}{', with real-time priority' if options.real_time else ''}.")
        if os.environ.get("HAWSER_RDMA_GUEST"):
            conditions += (" Measured in the guest of tools/rdma-guest: Soft-RoCE, and an emulated processor unless KVM "
                           "works. Compare ratios only.")
        options.html.write_text(page(loads, medians, conditions), encoding="utf-8")


if __name__ == "__main__":
    main()
