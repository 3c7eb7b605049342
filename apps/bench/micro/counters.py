#!/usr/bin/env python3
"""Prints what an echo call costs on each side, client and server: instructions in user space, counted by callgrind, and
allocations; and what a tracer that samples no call adds to it. Fails on any allocation in the steady state, and on
instructions above a ceiling.

counters.py PROGRAM   PROGRAM: hawser-microbench, built without debug information, which valgrind may not understand
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SIDES = ("client", "server")

# (payload bytes, calls in flight): the largest number of instructions of a call on the client and on the server. The
# limits are a sixth above the counts with Clang 19 (docs/performance.md), which differ by 3 % between runs: the kernel
# decides how many messages a turn receives, and the cost of a copy depends on its alignment.
INSTRUCTIONS_MAX = {
    (128, 1): {"client": 2800, "server": 2345},
    (128, 16): {"client": 1445, "server": 950},
    (128, 256): {"client": 1375, "server": 870},
    (4096, 64): {"client": 1790, "server": 1410},
}

# Shapes with a tracer at the server, whose options are the defaults: it samples no call and records those that fail.
TRACED = ((128, 16), (128, 256))
TRACER_INSTRUCTIONS_MAX = 150  # At the server.

WARM_UP = 2000
# Instructions are the difference of two runs, so that starting, connecting and warming up do not count.
CALLS_FEW = 1000
CALLS_MANY = 5000
CALLS_ALLOCATING = 20_000
# A sleep or a full socket in one run only increases the difference, so the least of several is the cost of a call.
INSTRUCTION_RUNS_MAX = 8
# The steady state has no allocation. A queue may still grow for the first time in one run, on a busy machine in every
# fourth one, but not in each.
ALLOCATION_RUNS_MAX = 20


class Failed(Exception):
    pass


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}exit status {result.returncode}")
    return result.stdout


def instructions_of(program, shape, calls, *words):
    """Returns the instructions of the whole run by side. Callgrind writes a file for each thread, client first."""
    with tempfile.TemporaryDirectory() as folder:
        run(["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out",
             program, "calls", *shape, WARM_UP, calls, *words])
        totals = {"client": 0, "server": 0}
        for path in pathlib.Path(folder).glob("out-*"):
            side = "client" if path.name == "out-01" else "server"
            totals[side] += int(re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.MULTILINE).group(1))
    if 0 in totals.values():
        raise Failed(f"callgrind counted nothing of one side: {totals}")
    return totals


def instructions_per_call(program, shape, ceiling, *words):
    """Returns the counts of the first run within `ceiling`, or else the least count of each side."""
    least = {}
    for _ in range(INSTRUCTION_RUNS_MAX):
        few = instructions_of(program, shape, CALLS_FEW, *words)
        many = instructions_of(program, shape, CALLS_MANY, *words)
        counted = {side: round((many[side] - few[side]) / (CALLS_MANY - CALLS_FEW)) for side in SIDES}
        least = {side: min(counted[side], least.get(side, counted[side])) for side in SIDES}
        if all(least[side] <= ceiling[side] for side in SIDES):
            break
    return least


def allocations(program, shape, *words):
    """Returns the least counts of several runs, which end when they are 0."""
    least = dict.fromkeys(SIDES, CALLS_ALLOCATING)
    for _ in range(ALLOCATION_RUNS_MAX):
        one = json.loads(run([program, "calls", *shape, WARM_UP, CALLS_ALLOCATING, *words]))
        least = {side: min(least[side], one[side]) for side in SIDES}
        if not any(least.values()):
            break
    return least


def main():
    program = sys.argv[1]
    counting = shutil.which("valgrind") is not None
    troubles = []
    print(f"{'one echo call takes':38}  " + " ".join(f"{side:>8}" for side in SIDES))
    for shape, ceiling in INSTRUCTIONS_MAX.items():
        name = f"{shape[0]} B x{shape[1]}"
        allocated = allocations(program, shape)
        rows = [("allocations a call", {side: allocated[side] / CALLS_ALLOCATING for side in SIDES}, "8.3f")]
        troubles += [f"{name}: the {side} allocated {count} times in {CALLS_ALLOCATING} calls, which must be 0"
                     for side, count in allocated.items() if count]
        if counting:
            counted = instructions_per_call(program, shape, ceiling)
            rows.insert(0, ("instructions a call", counted, "8d"))
            troubles += [f"{name}: a call took the {side} {count} instructions, above the ceiling of {ceiling[side]}: find "
                         "out why, or raise INSTRUCTIONS_MAX in apps/bench/micro/counters.py with the reason"
                         for side, count in counted.items() if count > ceiling[side]]
            if shape in TRACED:
                traced = instructions_per_call(
                    program, shape, {**ceiling, "server": counted["server"] + TRACER_INSTRUCTIONS_MAX}, "tracer")
                rows.append(("with a tracer", traced, "8d"))
                more = traced["server"] - counted["server"]
                if more > TRACER_INSTRUCTIONS_MAX:
                    troubles.append(f"{name}: a tracer that does not sample a call took the server {more} instructions, above "
                                    f"the ceiling of {TRACER_INSTRUCTIONS_MAX}")
        if shape in TRACED:
            allocated = allocations(program, shape, "tracer")
            troubles += [f"{name}, with a tracer: the {side} allocated {count} times in {CALLS_ALLOCATING} calls, which must "
                         "be 0" for side, count in allocated.items() if count]
        for title, values, layout in rows:
            print(f"{name:>10}  {title:24}  " + " ".join(format(values[side], layout) for side in SIDES), flush=True)
    if not counting:
        print("no instructions: valgrind is not installed")
    for trouble in troubles:
        print(f"FAILED: {trouble}")
    return 1 if troubles else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
