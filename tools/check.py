#!/usr/bin/env python3
"""Builds and tests the presets, and ends with one line: N passed, N failed, N skipped.

check.py [STAGE...]   all stages by default, in the order of the list that --help prints

If dev and rdma are asked for together, the guest of rdma runs beside the tests of dev and beside the stages thorough and gcc,
as far as they are asked for. All stages run, also if one fails. The results are stored in build/check.json.
--with-earlier adds the stages of the previous call to the summary.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPUS = len(os.sched_getaffinity(0))

STAGES = {
    "dev": "Clang 19 with assertions: every functional test, examples, packaging, tidy",
    "rdma": "the everyday build's tests that need an RDMA device, in a guest with Soft-RoCE",
    "thorough": "the everyday build's tests that take long: each header alone, simulations for longer",
    "gcc": "GCC 14 in a root with Debian 13, optimised, without warnings: the tests that add code of another kind; the library as docs/install.md builds it",
    "arm64": "64-bit Arm, cross-compiled: the tests of the layers under QEMU",
    "asan": "address and undefined behaviour sanitizers",
    "fuzz": "each fuzzer of the build asan for a short while",
    "tsan": "thread sanitizer",
    "counters": "what a call costs in instructions and allocations",
}

# Tests that may need an RDMA device or change the machine. If they were skipped here, they are run in the guest.
RDMA_TESTS = "[Rr][Dd][Mm][Aa]|EachYamaScope"  # ctest uses this expression too, and has no option to ignore case.
# Cases that take a third of the guest's time and repeat, with another kind of queue, device library or number, what
# others test. Continuous integration omits them; `make rdma` runs them.
LONG_RDMA_TESTS = r"UcxRdma/|/rdma_shared_queue$|LabRdma\.|Device\.AThousand"
# Cases that take four fifths of the time of the emulated processes. Continuous integration omits them; `make arm64` runs them.
LONG_ARM64_TESTS = r"^(conformance|local_transport|transport)\.|^transport_shm\..*(_two_loops|/shm_(reads|copies|no_slab))"
# Tests of the texts of the programs, which are the same with every compiler. The stage dev runs them.
PROGRAM_TEXT_TESTS = r"^reference\."
# Cases that one process with a sanitizer runs at most. A leak is found at the end of the process, as one of its last case.
CASES_OF_A_PROCESS = 40
# Labels of tests that only the stages of these names run.
THOROUGH = "thorough"
FUZZ = "fuzz"
RESULTS = ROOT / "build" / "check.json"
DEBIAN13 = ROOT / "tools" / "debian13"
DEBIAN13_ARM64 = ROOT / "tools" / "debian13-arm64"
DEBIAN13_IMPOSSIBLE = 77  # The exit status of both if this machine cannot have such a root.
EMULATOR = "qemu-aarch64-static"  # As in cmake/arm64.cmake.
RDMA_GUEST = ROOT / "tools" / "rdma-guest"
RDMA_GUEST_TIME_LIMIT_S = 3000  # Ends a guest that hangs. A slow machine takes half an hour.

# Output that makes a skipped test a failed one.
TROUBLE = re.compile(r"\[  FAILED  \]|Sanitizer[:]")

# Lines of ctest that contain no new information.
BORING = re.compile(r"^\s*Start\s+\d+: |^\s*\d+/\d+ Test\s.*[\s.](Passed|\*\*\*Skipped)\s|^Test project |^\s*$|"
                    r"^Label Time Summary:|.*sec\*proc")


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.seconds = {}  # Seconds of each part of a stage, such as "build".

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        for part, seconds in other.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0) + seconds

    def __str__(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def run(*command):
    return subprocess.run(command, cwd=ROOT).returncode == 0


def configure(preset, within=()):
    """Runs a command, after the words of `within`. Prints its output only if it fails."""
    result = subprocess.run([*within, "cmake", "--preset", preset], cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        print(result.stdout + result.stderr, flush=True)
    return result.returncode == 0


def build(preset, *arguments, within=()):
    return run(*within, "cmake", "--build", "--preset", preset, "--parallel", str(CPUS), *arguments)


# The preset that a stage builds first, and the targets that it builds of it.
BUILDS = {"asan": ("asan", ()), "tsan": ("tsan", ()), "counters": ("release", ("--target", "hawser-microbench"))}


class BackgroundBuild:
    """Builds the preset of a later stage with what the tests of this one leave idle. Its output is dropped: the stage
    builds again, which does nothing if all was built, and else prints the errors."""

    def __init__(self, stage):
        self.preset, targets = BUILDS[stage]
        idle = ("nice", "-n", "19")
        self.commands = [[*idle, "cmake", "--preset", self.preset],
                         [*idle, "cmake", "--build", "--preset", self.preset, "--parallel", str(CPUS), *targets, "--", "-k", "0"]]
        self.thread = threading.Thread(target=self.build)
        self.thread.start()

    def build(self):
        for command in self.commands:
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self):
        self.thread.join()


def skip_reason(output):
    """Returns the reason in the output of a skipped test: the message of GTEST_SKIP(), else the last line."""
    message = re.search(r": Skipped\n(.*?)\n\[  SKIPPED \]", output, re.DOTALL)
    if message:
        return " ".join(message.group(1).split())
    lines = output.strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"


def read_junit(stage, path):
    """Returns the totals of one ctest run. A test that could not be started, or failed while skipping, has failed."""
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


def run_ctest(preset, junit, *arguments, within=(), parallel=CPUS, prefix=""):
    junit.unlink(missing_ok=True)
    command = [*within, "ctest", "--preset", preset, "--output-junit", str(junit), "--parallel", str(parallel),
               "--test-output-size-failed", "200000", "--no-tests=ignore", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace")
    for line in process.stdout:
        if not BORING.match(line):
            print(prefix + line, end="", flush=True)
    return process.wait()


def build_preset(stage, preset, totals, within=()):
    """Returns whether there is something to test. If a file does not compile, everything else is built and tested."""
    started = time.monotonic()
    configured = configure(preset, within)
    if not configured:
        totals.failed.append(f"{stage}: configure")
    elif not build(preset, "--", "-k", "0", "--quiet", within=within):
        totals.failed.append(f"{stage}: build")
    totals.seconds["build"] = time.monotonic() - started
    return configured


def ctest_totals(stage, preset, name, *arguments, **options):
    """Runs ctest and returns the totals. `name` distinguishes its report from those of other runs."""
    junit = ROOT / "build" / preset / f"{name}.xml"
    started = time.monotonic()
    run_ctest(preset, junit, *arguments, **options)
    totals = Totals()
    if junit.exists():
        totals = read_junit(stage, junit)
    else:
        totals.failed.append(f"{stage}: ctest")
    totals.seconds["tests"] = time.monotonic() - started
    return totals


def test_stage(stage, *arguments, within=()):
    totals = Totals()
    if build_preset(stage, stage, totals, within):
        totals.add(ctest_totals(stage, stage, "ctest", "--label-exclude", f"^({THOROUGH}|{FUZZ})$", *arguments, within=within))
    return totals


def preset_environment(preset):
    """Returns the environment of the tests of a preset."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    chosen = next(one for one in presets if one["name"] == preset)
    return {name: value.replace("${sourceDir}", str(ROOT)) for name, value in chosen.get("environment", {}).items()}


def cases_stage(stage, built=lambda: None, long=None):
    """A process that has a sanitizer or is emulated starts and ends slowly, so that one process runs several cases. The
    stage dev runs each case in a process of its own. Calls `built` when its tests begin. Tests whose names match the
    expression `long` count as skipped."""
    totals = Totals()
    if not build_preset(stage, stage, totals):
        return totals
    built()
    started = time.monotonic()
    folder = ROOT / "build" / stage
    tests = [test for test in all_tests(stage) if not labels_of(test) & {THOROUGH, FUZZ}]
    omitted = {test["name"] for test in tests if long and re.search(long, test["name"])}
    totals.skipped += [f"{stage}: {name} (long: make {stage} runs it)" for name in sorted(omitted)]
    tests = [test for test in tests if test["name"] not in omitted]
    groups, cases = gtest_groups(tests)
    asked, results = folder / "cases.json", folder / "results.jsonl"
    results.unlink(missing_ok=True)
    asked.write_text(json.dumps(groups))
    subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "gtest_cases.py"), str(asked), str(results), "--jobs",
                    str(CPUS), "--cases-max", str(CASES_OF_A_PROCESS)], cwd=ROOT, env=os.environ | preset_environment(stage))
    seen = set()
    if results.exists():
        found, seen = read_cases(stage, results, cases)
        totals.add(found)
    names = set(cases.values())
    totals.failed += [f"{stage}: {name} (did not run)" for name in sorted(names - seen)]
    totals.seconds["tests"] = time.monotonic() - started
    others = [test["name"] for test in tests if test["name"] not in names]
    if others:
        totals.add(ctest_totals(stage, stage, "ctest", "--tests-regex", f"^({'|'.join(map(re.escape, others))})$"))
    return totals


def is_root_made(stage, totals, *command):
    """Makes the root of a Debian 13 if there is none. If it fails, everything counts as skipped or the tool as failed."""
    started = time.monotonic()
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    totals.seconds["build"] = time.monotonic() - started
    print(made.stdout, end="", flush=True)
    tool = command[0].name
    if made.returncode == DEBIAN13_IMPOSSIBLE:
        lines = made.stdout.strip().splitlines() or ["no reason given"]
        totals.skipped.append(f"{stage}: everything ({lines[-1].removeprefix(f'{tool}: ')})")
    elif made.returncode != 0:
        totals.failed.append(f"{stage}: tools/{tool}")
    return made.returncode == 0


def remove_builds_of_other_roots(*presets):
    """The objects of another compiler look up to date to ninja, because the command that compiles them is the same."""
    root = (ROOT / "build" / "debian13" / "made").read_text()
    for preset in presets:
        folder = ROOT / "build" / preset
        mark = folder / "debian13"
        if not mark.exists() or mark.read_text() != root:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            mark.write_text(root)


def gcc_stage(stage, short=False):
    """Builds and tests in the root of tools/debian13, because GCC of Debian 12 is too old. Also builds the preset of
    docs/install.md, in which each target of the library is one compilation, unless `short`."""
    totals = Totals()
    if not is_root_made(stage, totals, DEBIAN13, "--make"):
        return totals
    remove_builds_of_other_roots(stage, "library")
    within = (str(DEBIAN13),)
    totals.add(test_stage(stage, "--exclude-regex", PROGRAM_TEXT_TESTS, within=within))
    started = time.monotonic()
    if short:
        totals.skipped.append(f"{stage}: build of the preset library (long: make gcc runs it)")
    elif configure("library", within) and build("library", "--", "--quiet", within=within):
        totals.passed += 1
    else:
        totals.failed.append(f"{stage}: build of the preset library")
    totals.seconds["build"] += time.monotonic() - started
    return totals


def arm64_stage(stage, short=False):
    """Cross-compiles against the root of tools/debian13-arm64, and emulates each process. `short`: without
    LONG_ARM64_TESTS, which count as skipped."""
    totals = Totals()
    if not shutil.which(EMULATOR):
        totals.skipped.append(f"{stage}: everything ({EMULATOR} is missing: tools/install-dependencies.sh arm64)")
    elif is_root_made(stage, totals, DEBIAN13_ARM64):
        totals.add(cases_stage(stage, long=LONG_ARM64_TESTS if short else None))
    return totals


def labelled_stage(preset, label):
    """Returns the stage that runs the tests with this label in the build of another stage."""
    def run_stage(stage):
        totals = Totals()
        if build_preset(stage, preset, totals):
            totals.add(ctest_totals(stage, preset, f"ctest-{label}", "--label-regex", f"^{label}$"))
        return totals
    return run_stage


def add_stage(totals, stage, run_stage):
    """Runs a stage and adds its totals. A stage that raises an exception has failed; the others continue."""
    try:
        totals.add(run_stage())
    except Exception:
        traceback.print_exc()
        totals.failed.append(f"{stage}: check.py itself")


def stages_beside_guest(names, short=False):
    """Runs the stages dev and rdma at once, and then thorough and gcc if they are among `names`, until the guest ends: it
    emulates its processors and uses one of this machine's. `short`: as of rdma_stage() and gcc_stage(). Returns
    the totals of each of `names`."""
    outcomes = {name: Totals() for name in names}
    dev, rdma = outcomes["dev"], outcomes["rdma"]
    if not build_preset("dev", "dev", dev):
        for name in names[1:]:
            outcomes[name].failed.append(f"{name}: configure")
        return outcomes.values()
    here = ctest_totals("dev", "dev", "ctest-rdma-here", "--tests-regex", RDMA_TESTS, "--label-exclude", THOROUGH)

    def run_guest():
        started = time.monotonic()
        add_stage(rdma, "rdma", lambda: rdma_stage("rdma", here, short))
        rdma.seconds = {"tests": time.monotonic() - started}

    guest = threading.Thread(target=run_guest)
    guest.start()
    others = ctest_totals("dev", "dev", "ctest", "--exclude-regex", RDMA_TESTS, "--label-exclude", THOROUGH)
    if THOROUGH in outcomes:
        outcomes[THOROUGH].add(ctest_totals(THOROUGH, "dev", "ctest-thorough", "--label-regex", f"^{THOROUGH}$"))
    if "gcc" in outcomes:
        add_stage(outcomes["gcc"], "gcc", lambda: gcc_stage("gcc", short))
    guest.join()
    dev.add(here)
    dev.add(others)
    return outcomes.values()


def all_tests(preset):
    """Returns the description of every test by ctest, in ctest's order."""
    listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"], cwd=ROOT, capture_output=True,
                            text=True, check=True)
    return json.loads(listed.stdout)["tests"]


def labels_of(test):
    return {label for one in test.get("properties", []) if one["name"] == "LABELS" for label in one["value"]}


def gtest_groups(tests):
    """Returns the GoogleTest cases among `tests`, grouped by program for gtest_cases.py, and the ctest name of each, by
    program and case."""
    groups, names = {}, {}
    for test in tests:
        command = test.get("command", [])
        at = next((i for i, word in enumerate(command) if word.startswith("--gtest_filter=")), 0)
        if at == 0:
            continue
        *within, program = command[:at]
        case = command[at].removeprefix("--gtest_filter=")
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        group = groups.setdefault(program, {"program": program, "within": within, "directory": properties.get("WORKING_DIRECTORY", str(ROOT)),
                                            "timeout_s": properties.get("TIMEOUT", 600), "cases": []})
        group["cases"].append(case)
        names[program, case] = test["name"]
    return list(groups.values()), names


def name_of(entry):
    """"stage: A.B (why)" -> "A.B"."""
    return entry.split(": ", 1)[1].split(" (", 1)[0]


def read_cases(stage, path, names):
    """Returns the totals of the results of gtest_cases.py, and the names of the tests."""
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
    """Runs these tests in one boot of the guest, one after the other, since they count the resources of the device. An
    emulated processor starts a program slowly, so one process runs all cases of a program, as long as it lives."""
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
    status = run_ctest("dev", junit, *others, parallel=1, prefix="rdma | ",
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


def rdma_stage(stage, before, short=False):
    """Runs the tests that need the guest. `before`: the totals of this machine's tests, or None. Tests that run in the
    guest are removed from the skipped ones there. `short`: without LONG_RDMA_TESTS, which count as skipped."""
    totals = Totals()
    if before is None:
        if not build_preset(stage, "dev", totals):
            return totals
        before = ctest_totals(stage, "dev", "ctest-rdma-here", "--tests-regex", RDMA_TESTS)
        totals.passed = before.passed
        totals.failed += before.failed
    skipped = [entry for entry in before.skipped if re.search(RDMA_TESTS, name_of(entry))]
    names = {name_of(entry) for entry in skipped}
    if short:
        long = {name for name in names if re.search(LONG_RDMA_TESTS, name)}
        totals.skipped += [f"{stage}: {name} (long: make rdma runs it)" for name in sorted(long)]
        names -= long
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
    """Prints the times of the parts of a call. Then counts the cost of a whole call, which fails above its limits."""
    totals = Totals()
    started = time.monotonic()
    if not (configure("release") and build("release", "--target", "hawser-microbench", "--", "--quiet")):
        totals.failed.append(f"{stage}: build")
        return totals
    totals.seconds["build"] = time.monotonic() - started
    program = ROOT / "build" / "release" / "bench" / "hawser-microbench"
    for name, command in (("hawser-microbench", (program, "--benchmark_min_time=0.05")),
                          ("apps/bench/micro/counters.py", (sys.executable, "-B", "apps/bench/micro/counters.py", program))):
        if run(*command):
            totals.passed += 1
        else:
            totals.failed.append(f"{stage}: {name}")
    return totals


def skipped_by_reason(skipped):
    """["dev: p.A.B/1 (why)", ...] -> [(count, why, {"dev: p.A.B": count})], the most frequent reason first."""
    reasons = {}
    for entry in skipped:
        name, _, reason = entry.partition(" (")
        cases = reasons.setdefault(reason.removesuffix(")"), {})
        # The parameter of "Instance/Suite.Case/parameter" is removed.
        case = re.sub(r"(\.[^./]+)/[^.]*$", r"\1", name)
        cases[case] = cases.get(case, 0) + 1
    return sorted(((sum(cases.values()), reason, cases) for reason, cases in reasons.items()),
                  key=lambda one: (-one[0], one[1]))


def print_summary(results):
    """Prints the summary. `results`: {stage: (Totals, seconds)}. Each reason for skipping is printed once."""
    everything = Totals()
    print(f"\n== summary\n{'stage':10}{'passed':>8}{'failed':>8}{'skipped':>8}{'build s':>9}{'tests s':>9}{'all s':>7}")
    for stage, (totals, seconds) in results.items():
        everything.add(totals)
        parts = "".join(f"{totals.seconds[part]:9.0f}" if part in totals.seconds else f"{'':9}" for part in ("build", "tests"))
        print(f"{stage:10}{totals.passed:8}{len(totals.failed):8}{len(totals.skipped):8}{parts}{seconds:7.0f}")
    if everything.skipped:
        print("\nskipped:")
    for count, reason, cases in skipped_by_reason(everything.skipped):
        names = ", ".join(case if times == 1 else f"{case} (x{times})" for case, times in sorted(cases.items()))
        print(f"{count:6}  {reason}")
        print(textwrap.fill(names, 120, initial_indent=" " * 10, subsequent_indent=" " * 10, break_long_words=False,
                            break_on_hyphens=False))
    omitted = [stage for stage in STAGES if stage not in results]
    if "dev" in results and omitted:
        print(f"\nnot run: {', '.join(omitted)} (make STAGE runs one of them, make test-all runs everything)")
    if everything.failed:
        print("\nfailed:\n  " + "\n  ".join(everything.failed))
    print(f"\n{everything}, {sum(seconds for _, seconds in results.values()):.0f} s", flush=True)
    return not everything.failed


def save_results(results):
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({stage: {"totals": vars(totals), "seconds": seconds}
                                   for stage, (totals, seconds) in results.items()}))


def load_results():
    results = {}
    if RESULTS.exists():
        for stage, saved in json.loads(RESULTS.read_text()).items():
            totals = Totals()
            vars(totals).update(saved["totals"])
            results[stage] = totals, saved["seconds"]
    return results


def run_stages(stages, short=False):
    """Yields (stage, Totals, seconds) for each stage when it ends. `short`: as of rdma_stage() and arm64_stage()."""
    stages = list(stages)
    background = None
    while stages:
        stage = stages.pop(0)
        names = [stage]

        def build_next():
            nonlocal background
            later = next((name for name in stages if name in BUILDS), None)
            background = BackgroundBuild(later) if later else None

        if stage == "dev" and "rdma" in stages:
            names += [name for name in ("rdma", THOROUGH, "gcc") if name in stages]
            stages = [name for name in stages if name not in names]
        print("".join(f"\n== {name}: {STAGES[name]}" for name in names), flush=True)
        started = time.monotonic()
        if background and stage in BUILDS:
            background.wait()
            background = None
        try:
            if len(names) > 1:
                outcomes = stages_beside_guest(names, short)
            elif stage == "rdma":
                outcomes = [rdma_stage(stage, None, short)]
            else:
                run_stage = {"thorough": labelled_stage("dev", THOROUGH), "fuzz": labelled_stage("asan", FUZZ), "gcc": gcc_stage,
                             "arm64": lambda stage: arm64_stage(stage, short), "asan": cases_stage, "tsan": cases_stage,
                             "counters": counters_stage}.get(stage, test_stage)
                outcomes = [run_stage(stage, build_next) if run_stage is cases_stage else run_stage(stage)]
        except Exception:  # A stage that raises an exception has failed. The others continue.
            traceback.print_exc()
            outcomes = [Totals() for _ in names]
            for name, totals in zip(names, outcomes):
                totals.failed.append(f"{name}: check.py itself")
        seconds = time.monotonic() - started
        for name, totals in zip(names, outcomes):
            print(f"-- {name}: {totals}, {seconds:.0f} s", flush=True)
            yield name, totals, seconds
            seconds = 0  # Two stages that run at once count once.


def main():
    stages = "\n".join(f"  {stage:10}{text}" for stage, text in STAGES.items())
    parser = argparse.ArgumentParser(description=f"{__doc__}\nstages:\n{stages}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    parser.add_argument("--with-earlier", action="store_true", help="sum up with the stages of the call before")
    parser.add_argument("--short", action="store_true", help="omit the tests of rdma and arm64 that take long, and the preset library")
    arguments = parser.parse_args()
    unknown = set(arguments.stages) - set(STAGES)
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")

    results = load_results() if arguments.with_earlier else {}
    for stage, totals, seconds in run_stages(arguments.stages or STAGES, arguments.short):
        results[stage] = totals, seconds
        save_results(results)
    return 0 if print_summary(results) else 1


if __name__ == "__main__":
    sys.exit(main())
