#!/usr/bin/env python3
"""Runs cases of GoogleTest programs, as many as possible in one process, and reports the result of each.

gtest_cases.py CASES RESULTS [--jobs N] [--cases-max N]

--jobs N runs N processes at once, each for at most --cases-max cases of a program. Without them, one process runs all
cases of a program, one program after the other.

CASES is a JSON list of {"program": path, "directory": where to run it, "timeout_s": of a case,
"cases": ["Suite.Case", ...]}, and perhaps "within": the words of a command that runs the program. RESULTS gets a line of JSON for each case when it ends: {"program", "case", "status",
"seconds", "output"}; the status is "passed", "skipped" or "failed". When a program dies, hangs or ends early, the case
that was running has failed, and a new process runs the others. A case that never ran has no line. The status is 1 if
anything failed.
"""

import argparse
import concurrent.futures
import json
import os
import re
import selectors
import subprocess
import sys
import threading
import time

STATE = re.compile(r"\[( RUN      |       OK |  SKIPPED |  FAILED  )\] (\S+?)(,| \(|$)")
STATUS = {"       OK ": "passed", "  SKIPPED ": "skipped", "  FAILED  ": "failed"}
DRAIN_S = 0.2  # Time to wait for output of children that a dead program has left.


class Lines:
    """Reads the output of a process line by line. It ends even if a child of the process keeps the pipe open."""

    def __init__(self, process):
        self.process = process
        self.rest = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(process.stdout, selectors.EVENT_READ)

    def read(self, timeout_s):
        """Returns the lines that arrived within the time; None at the end."""
        ended = self.process.poll() is not None
        if not self.selector.select(DRAIN_S if ended else min(timeout_s, 1)):
            return None if ended else []
        chunk = os.read(self.process.stdout.fileno(), 1 << 16)
        if not chunk:
            self.process.wait()
            return None
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


class Run:
    """One process of a program, from its start to its end."""

    def __init__(self, group, cases, report):
        self.group = group
        self.report = report
        self.cases = set(cases)
        self.seen = set()
        self.failed = False
        self.current = None
        self.last = "(no case)"
        self.output = []
        self.started = time.monotonic()

    def end_case(self, status):
        self.report(self.group["program"], self.current, status, time.monotonic() - self.started, "\n".join(self.output))
        self.failed |= status == "failed"
        self.current = None
        self.output = []

    def on_line(self, line):
        self.output.append(line)
        state = STATE.search(line)
        if not state:
            return
        kind, name = state.group(1), state.group(2)
        if kind == " RUN      " and name in self.cases:
            self.current, self.last, self.output, self.started = name, name, [line], time.monotonic()
            self.seen.add(name)
        elif name == self.current:
            self.end_case(STATUS[kind])

    def run(self):
        """Runs the cases and returns those that began."""
        filters = ":".join(sorted(self.cases))
        process = subprocess.Popen([*self.group.get("within", ()), self.group["program"], f"--gtest_filter={filters}",
                                    "--gtest_also_run_disabled_tests"],
                                   cwd=self.group["directory"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL)
        lines = Lines(process)
        trouble = None
        while (new := lines.read(self.group["timeout_s"])) is not None:
            for line in new:
                self.on_line(line)
            if time.monotonic() - self.started > self.group["timeout_s"] and trouble is None:
                trouble = f"nothing ended for {self.group['timeout_s']:.0f} s"
                process.kill()
        process.stdout.close()
        status = process.wait()
        if self.current is not None:
            self.output.append(trouble or f"the program ended with status {status}")
            self.end_case("failed")
        elif status != 0 and not self.failed:
            # The program failed between cases, or at its end. The failure is attributed to the last case.
            self.current = self.last
            self.output.append(f"the program ended with status {status} though no case failed")
            self.end_case("failed")
        return self.seen


def run_group(group, report):
    left = set(group["cases"])
    while left:
        seen = Run(group, left, report).run()
        left -= seen
        if not seen:
            break  # The program has no such cases. They have no line in the results.


def in_parts(groups, cases_max):
    """Returns the groups with at most that many cases each, in the order of their cases."""
    return [{**group, "cases": group["cases"][begin:begin + cases_max]}
            for group in groups for begin in range(0, len(group["cases"]), cases_max)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", metavar="CASES")
    parser.add_argument("results", metavar="RESULTS")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases-max", type=int)
    arguments = parser.parse_args()
    with open(arguments.cases, encoding="utf-8") as file:
        groups = json.load(file)
    if arguments.cases_max is not None:
        groups = in_parts(groups, arguments.cases_max)
    failed = 0
    lock = threading.Lock()
    with open(arguments.results, "w", encoding="utf-8") as results:
        def report(program, case, status, seconds, output):
            nonlocal failed
            with lock:
                results.write(json.dumps({"program": program, "case": case, "status": status, "seconds": round(seconds, 3),
                                          "output": output}) + "\n")
                results.flush()
                if status == "failed":
                    failed += 1
                    print(f"{case} failed after {seconds:.1f} s:\n{output}", flush=True)

        def run_one(group):
            began = time.monotonic()
            run_group(group, report)
            if arguments.jobs == 1:
                print(f"{group['program']}: {len(group['cases'])} cases, {time.monotonic() - began:.0f} s", flush=True)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(run_one, groups))  # Raises what one of them raised.
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
