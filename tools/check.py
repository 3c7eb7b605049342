#!/usr/bin/env python3
"""Builds and tests every preset that counts, and ends with one line: N passed, N failed, N skipped.

check.py [STAGE...]   all stages by default, in this order: dev rdma gcc asan tsan fuzz counters
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPUS = len(os.sched_getaffinity(0))

STAGES = {
    "dev": "Clang 19 with assertions: every test, examples, packaging, tidy",
    "rdma": "the everyday build's tests that need an RDMA device, in a guest with Soft-RoCE",
    "gcc": "GCC 12, optimised, without warnings: every test again",
    "asan": "address and undefined behaviour sanitizers",
    "tsan": "thread sanitizer",
    "fuzz": "each fuzzer for a short while",
    "counters": "what a call costs in instructions and allocations",
}

# Tests that may need an RDMA device or change the machine. Those among them that were skipped here are run in the guest.
RDMA_TESTS = re.compile("rdma|EachYamaScope", re.IGNORECASE)
RDMA_GUEST = ROOT / "tools" / "rdma-guest"
RDMA_GUEST_TIME_LIMIT_S = 1500

# What makes a skipped test a failed one.
TROUBLE = re.compile(r"\[  FAILED  \]|Sanitizer[:]")

# Lines of ctest that say nothing new.
BORING = re.compile(r"^\s*Start\s+\d+: |^\s*\d+/\d+ Test\s.*[\s.](Passed|\*\*\*Skipped)\s|^Test project |^\s*$|"
                    r"^Label Time Summary:|.*sec\*proc")


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def run(*command):
    return subprocess.run(command, cwd=ROOT).returncode == 0


def configure(preset):
    """Quiet unless it fails."""
    result = subprocess.run(["cmake", "--preset", preset], cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        print(result.stdout + result.stderr, flush=True)
    return result.returncode == 0


def build(preset, *arguments):
    return run("cmake", "--build", "--preset", preset, "--parallel", str(CPUS), *arguments)


def skip_reason(output):
    """The text that a skipped test gave: gtest's GTEST_SKIP() message, else the last line."""
    message = re.search(r": Skipped\n(.*?)\n\[  SKIPPED \]", output, re.DOTALL)
    if message:
        return " ".join(message.group(1).split())
    lines = output.strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"


def read_junit(stage, path):
    """The totals of one ctest run. What could not be started, or failed while skipping, has failed."""
    totals = Totals()
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{stage}: {case.get('name')}"
        status = case.get("status")
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        if status == "run":
            totals.passed += 1
        elif status == "disabled":
            totals.skipped.append(f"{name} (disabled)")
        elif (status == "notrun" and skipped is not None and skipped.get("message", "").startswith("SKIP_")
              and not TROUBLE.search(output)):
            totals.skipped.append(f"{name} ({skip_reason(output)})")
        else:
            totals.failed.append(name)
    return totals


def run_ctest(preset, junit, *arguments, within=(), parallel=CPUS):
    junit.unlink(missing_ok=True)
    command = [*within, "ctest", "--preset", preset, "--output-junit", str(junit), "--parallel", str(parallel),
               "--test-output-size-failed", "200000", "--no-tests=ignore", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace")
    for line in process.stdout:
        if not BORING.match(line):
            print(line, end="", flush=True)
    return process.wait()


def test_stage(stage):
    totals = Totals()
    started = time.monotonic()
    if not configure(stage):
        totals.failed.append(f"{stage}: configure")
        return totals
    # Everything that builds is built and tested, even if one file does not.
    if not build(stage, "--", "-k", "0", "--quiet"):
        totals.failed.append(f"{stage}: build")
    built = time.monotonic()
    junit = ROOT / "build" / stage / "ctest.xml"
    run_ctest(stage, junit)
    if junit.exists():
        totals.add(read_junit(stage, junit))
    else:
        totals.failed.append(f"{stage}: ctest")
    print(f"-- build {built - started:.0f} s, tests {time.monotonic() - built:.0f} s")
    return totals


def all_tests(preset):
    """Every test as ctest describes it, in its order."""
    listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"], cwd=ROOT, capture_output=True,
                            text=True, check=True)
    return json.loads(listed.stdout)["tests"]


def gtest_groups(tests):
    """Those of `tests` that are cases of GoogleTest programs, by program, as gtest_cases.py takes them; and which name each
    case has in ctest, by program and case."""
    groups, names = {}, {}
    for test in tests:
        program, option = (test.get("command", []) + ["", ""])[:2]
        if not option.startswith("--gtest_filter="):
            continue
        case = option.removeprefix("--gtest_filter=")
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        group = groups.setdefault(program, {"program": program, "directory": properties.get("WORKING_DIRECTORY", str(ROOT)),
                                            "timeout_s": properties.get("TIMEOUT", 600), "cases": []})
        group["cases"].append(case)
        names[program, case] = test["name"]
    return list(groups.values()), names


def outcome_without_device(stage):
    """The totals of the tests that may need a device, run on this machine."""
    junit = ROOT / "build" / "dev" / "ctest-rdma-here.xml"
    run_ctest("dev", junit, "--tests-regex", "[Rr][Dd][Mm][Aa]")
    if junit.exists():
        return read_junit(stage, junit)
    totals = Totals()
    totals.failed.append(f"{stage}: ctest")
    return totals


def name_of(entry):
    """"stage: A.B (why)" -> "A.B"."""
    return entry.split(": ", 1)[1].split(" (", 1)[0]


def read_cases(stage, path, names):
    """The totals of what gtest_cases.py has written, and which tests they are."""
    totals, seen = Totals(), set()
    for line in path.read_text().splitlines():
        result = json.loads(line)
        name = names.get((result["program"], result["case"]), result["program"])
        seen.add(name)
        if result["status"] == "passed":
            totals.passed += 1
        elif result["status"] == "skipped" and not TROUBLE.search(result["output"]):
            totals.skipped.append(f"{stage}: {name} ({skip_reason(result['output'])})")
        else:
            totals.failed.append(f"{stage}: {name}")
    return totals, seen


def in_guest(stage, names):
    """Runs these tests in one boot of the guest, one after the other: they count what the device holds. An emulated processor
    starts a program slowly, so all cases of a program are run by one process, as long as it lives."""
    totals = Totals()
    tests = all_tests("dev")
    groups, cases = gtest_groups([test for test in tests if test["name"] in names])
    numbers = [number for number, test in enumerate(tests, 1)
               if test["name"] in names and test["name"] not in cases.values()]
    folder = ROOT / "build" / "dev"
    junit, results, chosen, asked = (folder / name for name in
                                     ("ctest-rdma.xml", "rdma-results.jsonl", "rdma-tests.txt", "rdma-cases.json"))
    results.unlink(missing_ok=True)
    chosen.write_text("0,0,0," + ",".join(map(str, numbers)) + "\n")
    asked.write_text(json.dumps(groups))
    run_cases = shlex.join([sys.executable, "-B", str(ROOT / "tools" / "gtest_cases.py"), str(asked), str(results)])
    others = ("--tests-information", str(chosen)) if numbers else ("--tests-regex", "^$")
    status = run_ctest("dev", junit, *others, parallel=1,
                       within=[str(RDMA_GUEST), "--verbose", "--time-limit", str(RDMA_GUEST_TIME_LIMIT_S), "--", "sh", "-c",
                               run_cases + '; "$@"', "sh"])
    seen = set()
    if results.exists():
        found, seen = read_cases(stage, results, cases)
        totals.add(found)
    if junit.exists():
        totals.add(read_junit(stage, junit))
        seen |= {case.get("name") for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase")}
    if not seen:
        totals.failed.append(f"{stage}: guest, status {status}")
    else:
        totals.failed += [f"{stage}: {name} (did not run)" for name in sorted(names) if name not in seen]
    return totals


def rdma_stage(stage, before):
    """`before`: what earlier stages found. What is run here is not counted as skipped there any more."""
    totals = Totals()
    if before is None:
        if not (configure("dev") and build("dev", "--", "-k", "0", "--quiet")):
            totals.failed.append(f"{stage}: build")
            return totals
        before = outcome_without_device(stage)
        totals.passed, totals.failed = before.passed, before.failed
    skipped = [entry for entry in before.skipped if RDMA_TESTS.search(name_of(entry))]
    names = {name_of(entry) for entry in skipped}
    print(f"{len(names)} tests need a device", flush=True)
    check = subprocess.run([RDMA_GUEST, "--check"], capture_output=True, text=True)
    print(check.stdout, end="", flush=True)
    if not names:
        return totals
    if check.returncode != 0:
        totals.skipped += [f"{stage}: {name} ({check.stdout.strip()})" for name in sorted(names)]
    else:
        totals.add(in_guest(stage, names))
    before.skipped = [entry for entry in before.skipped if entry not in skipped]
    return totals


def counters_stage(stage):
    """Pieces of a call timed one by one, for reading; then what a whole call takes, which fails above its bounds."""
    totals = Totals()
    if not (configure("release") and build("release", "--target", "hawser-microbench", "--", "--quiet")):
        totals.failed.append(f"{stage}: build")
        return totals
    program = ROOT / "build" / "release" / "bench" / "hawser-microbench"
    for name, command in (("hawser-microbench", (program, "--benchmark_min_time=0.05")),
                          ("bench/micro/counters.py", (sys.executable, "-B", "bench/micro/counters.py", program))):
        if run(*command):
            totals.passed += 1
        else:
            totals.failed.append(f"{stage}: {name}")
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    arguments = parser.parse_args()
    unknown = set(arguments.stages) - set(STAGES)
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")

    totals = Totals()
    summaries = []
    done = set()
    for stage in arguments.stages or STAGES:
        print(f"\n== {stage}: {STAGES[stage]}", flush=True)
        started = time.monotonic()
        if stage == "rdma":
            result = rdma_stage(stage, totals if "dev" in done else None)
        else:
            result = counters_stage(stage) if stage == "counters" else test_stage(stage)
        totals.add(result)
        done.add(stage)
        summaries.append(f"{stage:10} {result}, {time.monotonic() - started:.0f} s")
        print(f"-- {summaries[-1]}", flush=True)

    print("\n== summary")
    print("\n".join(summaries))
    for title, names in (("skipped", totals.skipped), ("failed", totals.failed)):
        if names:
            print(f"\n{title}:\n  " + "\n  ".join(names))
    print(f"\n{totals}", flush=True)
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
