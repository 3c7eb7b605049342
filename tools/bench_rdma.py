#!/usr/bin/env python3
"""Measures hawser-bench over RDMA and perftest in turn on the device of one machine, and prints the ratios.

bench_rdma.py HAWSER_BENCH --json FILE [-- ARGUMENTS]    as `make bench-rdma` does, within tools/rdma-guest

ARGUMENTS are passed to `hawser-bench run`. `-- --server-cpu -1 --client-cpu -1` leaves the choice of processors to the
scheduler.

Each round measures the cells of hawser-bench, then ib_send_lat, ib_send_bw, ib_write_bw and ib_read_bw at the same
sizes. The results are the medians of the rounds. Calls have a payload as request and a short reply. A small call with
one in flight is compared with two one-way times of ib_send_lat. Several calls in flight, and large calls, are compared
with the message rates of the other tools, which keep 128 messages in flight. `hawser-bench report` can read the file,
which has the ratios too. The status is 1 if anything failed, or if the device counted a receiver that was not ready
while hawser-bench ran.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

CELLS = "128x1,128x16,128x64,128x256,4Kx1,4Kx16,256Kx1,256Kx4,256Kx16,1Mx4"
UNITS = {"K": 1 << 10, "M": 1 << 20}
LATENCY = "ib_send_lat"
BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw")
DEPTH = 128  # The default of the bandwidth tools.
REGISTERED = "hawser-registered"  # Payloads lie in a RegisteredBuffer if this makes a difference.
HAWSERS = ("hawser", REGISTERED)
LARGE_BYTES = 64 << 10  # From this size on, one call in flight is limited by bandwidth too.
START_S_MAX = 20
RUN_S_MAX = 90
TRIES = 3  # On a busy machine the tools sometimes measure a rate of 0.00.

# Names of the counters of Soft-RoCE and of cards.
NOT_READY_COUNTERS = ("rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err", "rnr_nak_retry_err", "out_of_buffer")


def fail(text):
    sys.exit(f"bench_rdma: {text}")


def read_size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def read_cells(text):
    return [(read_size(size), int(concurrency)) for size, concurrency in (cell.split("x") for cell in text.split(","))]


def size_text(size):
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def not_ready_count(device):
    """Returns how often a receiver was not ready, by the counters of the device."""
    total = 0
    for folder in pathlib.Path("/sys/class/infiniband", device, "ports").glob("*/hw_counters"):
        for name in NOT_READY_COUNTERS:
            if (folder / name).exists():
                total += int((folder / name).read_text())
    return total


def iterations(tool, size, seconds):
    """Returns how many iterations take about `seconds` with Soft-RoCE. The number is good enough for a card."""
    if tool == LATENCY:
        round_trip_s = 2 * (20e-6 + size / 60e6)
        return max(20, min(20_000, int(seconds / round_trip_s)))
    return max(32, min(20_000 if size < 4096 else 5_000, int(seconds * 60e6 / size)))


def row_of(output, size):
    """Returns the numbers behind the size in the line that begins with it, or None."""
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == str(size) and all(re.fullmatch(r"[-+.\w]+", word) for word in words):
            return [float(word) for word in words[1:]]
    return None


class Perftest:
    """Runs the server and the client of each tool over one device."""

    def __init__(self, device, seconds):
        self.device = device
        self.seconds = seconds
        self.port = 19_000

    def run(self, tool, size):
        """Returns the numbers of the client's only line of results."""
        self.port += 1
        count = iterations(tool, size, self.seconds)
        depth = ["-t", str(min(DEPTH, count))] if tool in BANDWIDTH else []
        command = [tool, "-d", self.device, "-s", str(size), "-n", str(count), "-F", "-p", str(self.port), *depth]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            began = time.monotonic()
            while True:
                client = subprocess.run([*command, "localhost"], capture_output=True, text=True, timeout=RUN_S_MAX)
                row = row_of(client.stdout, size)
                if client.returncode == 0 and row:
                    return row
                if server.poll() is not None or time.monotonic() - began > START_S_MAX:
                    fail(f"{' '.join(command)} failed:\n{client.stdout}{client.stderr}")
                time.sleep(0.1)  # The tool's server does not listen yet.
        finally:
            server.kill()
            server.wait()

    def latency(self, size):
        """Returns the iterations and the one-way times in microseconds: typical, average, 99 and 99.9 per cent."""
        row = self.run(LATENCY, size)
        return {"calls": int(row[0]), "typical": row[3], "average": row[4], "p99": row[6], "p999": row[7]}

    def rate(self, tool, size):
        """Returns the rate in messages per second."""
        for _ in range(TRIES):
            row = self.run(tool, size)
            if row[2] > 0 or row[3] > 0:
                break
        else:
            fail(f"{tool} of {size} B measured no rate, {TRIES} times")
        return {"calls": int(row[0]), "per_s": row[2] * (1 << 20) / size if row[2] > 1 else row[3] * 1e6}


def cell_of(system, wait, size, concurrency, calls, calls_per_s, **latencies):
    """Returns a cell as hawser-bench writes it. Columns that a tool does not measure are 0."""
    cell = {"system": system, "transport": "rdma", "mode": "pipeline", "wait": wait, "size_bytes": size,
            "concurrency": concurrency, "repetition": 0, "calls_at_once": concurrency, "seconds": calls / calls_per_s,
            "calls": calls, "errors": 0, "calls_per_s": calls_per_s, "gbit_per_s": calls_per_s * size * 8 / 1e9,
            "p50_us": 0, "p90_us": 0, "p99_us": 0, "p999_us": 0, "server_cpu_s": 0, "client_cpu_s": 0}
    return cell | latencies


def tools_for(size, concurrency):
    if concurrency == 1:
        return (LATENCY, *BANDWIDTH) if size >= LARGE_BYTES else (LATENCY,)
    return BANDWIDTH


def measure_tools(perftest, cells, wait):
    """Runs every tool once at every size for which it is needed. Returns the results as cells."""
    measured = []
    for tool in (LATENCY, *BANDWIDTH):
        for size in dict.fromkeys(size for size, concurrency in cells if tool in tools_for(size, concurrency)):
            if tool == LATENCY:
                one_way = perftest.latency(size)
                measured.append(cell_of(tool, wait, size, 1, one_way["calls"], 1e6 / (2 * one_way["average"]),
                                        p50_us=2 * one_way["typical"], p99_us=2 * one_way["p99"],
                                        p999_us=2 * one_way["p999"]))
                continue
            rate = perftest.rate(tool, size)
            measured += [cell_of(tool, wait, size, concurrency, rate["calls"], rate["per_s"])
                         for its_size, concurrency in cells if its_size == size and tool in tools_for(size, concurrency)]
    return measured


def measure_hawser(options, cells, *arguments):
    """Runs hawser-bench once over these cells and returns the content of its file."""
    path = pathlib.Path(options.json + ".round")
    command = [options.program, "run", "--transport", "rdma", "--cells", cells, *arguments, "--reply", "ack", "--wait",
               options.wait, "--seconds", str(options.seconds), "--json", str(path), *options.arguments]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=1200)
    if result.returncode != 0 or not path.exists():
        fail(f"{' '.join(command)} ended with status {result.returncode}")
    whole = json.loads(path.read_text())
    path.unlink()
    return whole


def key_of(cell):
    return cell["system"], cell["size_bytes"], cell["concurrency"]


def medians(rounds):
    """Returns the medians of each column over the cells with the same key."""
    together = {}
    for cells in rounds:
        for cell in cells:
            together.setdefault(key_of(cell), []).append(cell)
    result = []
    for same in together.values():
        median = dict(same[0])
        for column, value in same[0].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                middle = statistics.median(cell[column] for cell in same)
                median[column] = int(middle) if isinstance(value, int) else middle
        median["repetition"] = 0
        result.append(median)
    return result


def ratios_of(cells):
    """Returns the ratio of each of Hawser's cells to each tool: of rates, or of round trips for ib_send_lat."""
    found = {key_of(cell): cell for cell in cells}
    ratios = []
    for (system, size, concurrency), cell in found.items():
        if system not in HAWSERS:
            continue
        for tool in (LATENCY, *BANDWIDTH):
            other = found.get((tool, size, concurrency))
            if other is None:
                continue
            if tool == LATENCY:
                ratio = cell["p50_us"] / other["p50_us"]
            else:
                ratio = cell["calls_per_s"] / other["calls_per_s"]
            ratios.append({"system": system, "size_bytes": size, "concurrency": concurrency, "tool": tool,
                           "measure": "p50_us" if tool == LATENCY else "calls_per_s", "ratio": ratio})
    return ratios


def table(cells, ratios):
    """Returns a table, which is readable as it is and is Markdown."""
    found = {key_of(cell): cell for cell in cells}
    of = {(ratio["system"], ratio["size_bytes"], ratio["concurrency"], ratio["tool"]): ratio["ratio"] for ratio in ratios}
    names = (LATENCY, *BANDWIDTH)
    lines = [f"| {'size':>5} | {'calls':>5} | {'calls/s':>9} | {'Gb/s':>6} | {'P50 us':>8} | {'P99 us':>8} | "
             + " | ".join(f"{name:>20}" for name in names) + " |",
             "|" + "|".join("-" * (width + 1) + ":" for width in (6, 6, 10, 7, 9, 9, *(21,) * len(names))) + "|"]
    for (system, size, concurrency), cell in found.items():
        if system not in HAWSERS:
            continue
        columns = []
        for name in names:
            other = found.get((name, size, concurrency))
            if other is None:
                columns.append("")
            elif name == LATENCY:
                columns.append(f"{other['p50_us']:.1f} us  x{of[system, size, concurrency, name]:.2f}")
            else:
                columns.append(f"{other['calls_per_s']:.0f}/s  x{of[system, size, concurrency, name]:.2f}")
        lines.append(f"| {size_text(size) + ('*' if system == REGISTERED else ''):>5} | {concurrency:>5} | {cell['calls_per_s']:>9.0f} | {cell['gbit_per_s']:>6.3f} | "
                     f"{cell['p50_us']:>8.1f} | {cell['p99_us']:>8.1f} | "
                     + " | ".join(f"{column:>20}" for column in columns) + " |")
    lines.append("")
    if any(system == REGISTERED for system, _, _ in found):
        lines.append("*: what is sent lies in a RegisteredBuffer.")
    lines.append("ib_send_lat: two one-way times, and hawser's median round trip to them: less is better. The others: messages/s")
    lines.append("with up to 128 in flight, and hawser's calls/s to them: more is better.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="HAWSER_BENCH")
    parser.add_argument("--json", required=True, metavar="FILE")
    parser.add_argument("--cells", default=CELLS, help=f"sizes, each with its calls in flight ({CELLS})")
    parser.add_argument("--wait", default="spin", choices=("spin", "busy_poll", "event"))
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement (1)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (3)")
    parser.add_argument("--device", help="the first there is")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.arguments = words[at + 1:]

    folder = pathlib.Path("/sys/class/infiniband")
    devices = sorted(device.name for device in folder.iterdir()) if folder.is_dir() else []
    if not devices:
        fail("no RDMA device here: run this in tools/rdma-guest")
    device = options.device or devices[0]
    cells = read_cells(options.cells)
    large = ",".join(f"{size}x{concurrency}" for size, concurrency in cells if size >= LARGE_BYTES)
    perftest = Perftest(device, options.seconds)
    rounds, meta, not_ready = [], {}, 0
    for number in range(1, options.repeat + 1):
        print(f"round {number} of {options.repeat}: hawser", file=sys.stderr, flush=True)
        before = not_ready_count(device)
        whole = measure_hawser(options, options.cells)
        if large:
            registered = measure_hawser(options, large, "--registered")
            whole["cells"] += [cell | {"system": REGISTERED} for cell in registered["cells"]]
        not_ready += not_ready_count(device) - before
        meta = whole["meta"]
        print(f"round {number} of {options.repeat}: perftest", file=sys.stderr, flush=True)
        rounds.append(whole["cells"] + measure_tools(perftest, cells, options.wait))

    merged = medians(rounds)
    ratios = ratios_of(merged)
    meta |= {"device": device, "kernel": platform.release(), "command_line": " ".join(sys.argv), "cores": os.cpu_count(),
             "receiver_not_ready": not_ready}
    pathlib.Path(options.json).write_text(json.dumps(
        {"meta": meta, "cells": merged, "repetitions": [cell for cells in rounds for cell in cells], "ratios": ratios},
        indent=2) + "\n")
    print(table(merged, ratios))
    print(f"\nreceivers that were not ready while hawser ran: {not_ready}")
    errors = sum(cell["errors"] for cell in merged)
    return 1 if errors or not_ready else 0


if __name__ == "__main__":
    sys.exit(main())
