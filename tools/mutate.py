#!/usr/bin/env python3
"""Checks the tests: injects single faults into the library and lists the faults that no test detects.

mutate.py                      faults in the lines that differ from origin/main (--base), committed or not
mutate.py --seed 7             faults in lines chosen at random from all files; the same seed chooses the same
mutate.py src/wire src/exec    faults in these files and folders
mutate.py --list ...           prints the faults and runs nothing

Each fault is one change of one line: a bound off by one, a negated or swapped condition, a missing release,
notification or early return, a weaker memory order, a generation that is not compared or not advanced. The tool does
not change the user's files: it works in a worktree in build/mutate, which is kept, so that the next call builds little.
The worktree includes uncommitted changes of tracked files.

A fault is run against the test program of the file's folder (or of the nearest folder above that has one), then against
the programs of --tests. A test detects it by failing, by crashing, or by running longer than --timeout-factor times its
usual time. A fault that does not compile is not counted. When --minutes have passed, the other faults are left out. The
order of the faults alternates between files and kinds.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLACK_S = 20  # A pause of the machine must not count as a hang.

# Files in which faults are injected: the library, and not its tests and their helpers.
SOURCE = re.compile(r"^(src|include)/.*\.(cpp|h)$")
NO_SOURCE = re.compile(r"_(test|testing)\.(cpp|h)$|/(test|conformance)/")

LITERAL = re.compile(r"""//.*$ | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+'""", re.VERBOSE)
# Lines that state types, names or impossible conditions: a fault there does not compile or changes nothing.
INERT = re.compile(r"^\s*(#|//|\*|template\b|using\b|namespace\b|static_assert|assert\(|HAWSER_ASSERT|case\b|public:|private:|"
                   r"class\b|struct\b|enum\b|friend\b|operator\b)")
STATEMENT = re.compile(r"^(\s*)(?P<if>if \(.*\) )?((?:[\w:>.*&\[\]()-]+(?:\.|->|::))?(\w+)\([^;{}]*\);)\s*$")
RELEASES = re.compile(r"release|free|close|reset|erase|clear|pop_|return_|give_|put_back|deregister|unmap|revoke|discard|drop|"
                      r"destroy|detach|retire|cancel|remove|unlink|abort|fail", re.IGNORECASE)
NOTIFIES = re.compile(r"notify|wake|signal|resume|ring|post|kick|flush|arm|schedule|set$|on_|publish|tell|request|poke|push",
                      re.IGNORECASE)  # Checked after RELEASES: "reset" does not mean "set".


@dataclasses.dataclass(frozen=True)
class Fault:
    path: str
    line: int  # From 1.
    kind: str
    before: str
    after: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.kind}\n    - {self.before.strip()}\n    + {self.after.strip()}"


def blank(line):
    """Returns the line with blanks instead of literals and comments, so that columns are the same."""
    return LITERAL.sub(lambda match: (match.group()[0] + " " * (len(match.group()) - 2) + match.group()[-1]
                                      if match.group()[0] != "/" else " " * len(match.group())), line)


def substitutions(code):
    """Yields (kind, start, end, replacement) for each operator of `code` that can be replaced."""
    for match in re.finditer(r" (<=|>=|<|>) ", code):
        other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match.group(1)]
        yield "bound off by one", match.start(1), match.end(1), other
    for match in re.finditer(r" ([+-]) 1\b(?![\d.'])", code):
        yield "bound off by one", match.start(), match.end(), ""
    for match in re.finditer(r" (==|!=) ", code):
        generation = re.search(r"generation", code)
        other = "!=" if match.group(1) == "==" else "=="
        yield "stale generation" if generation else "swapped condition", match.start(1), match.end(1), other
    for match in re.finditer(r" (&&|\|\|) ", code):
        yield "swapped condition", match.start(1), match.end(1), "||" if match.group(1) == "&&" else "&&"
    for match in re.finditer(r"\b(if|while) \((?!(?:const|auto|int|bool)\b|std::|!)(?=[^;=]*\)(?: \{| return| continue| break| co_|$))",
                             code):
        end = closing(code, match.end() - 1)
        if end is not None and not re.search(r" (&&|\|\||==|!=|<=?|>=?) ", code[match.end():end]):
            yield "swapped condition", match.end(), end, "!(" + code[match.end():end] + ")"
    for match in re.finditer(r"\(!(?=[\w(])", code):
        yield "swapped condition", match.end() - 1, match.end(), ""
    for match in re.finditer(r"memory_order_(acquire|release|acq_rel|seq_cst)\b", code):
        yield "weaker memory order", match.start(1), match.end(1), "relaxed"
    for match in re.finditer(r"memory_order::(acquire|release|acq_rel|seq_cst)\b", code):
        yield "weaker memory order", match.start(1), match.end(1), "relaxed"
    for match in re.finditer(r"(\+\+|--)(?=[\w.>()-]*generation)", code):
        yield "stale generation", match.start(), match.end(), ""


def closing(code, start):
    """Returns the position at which the parenthesis at `start` is closed, or None."""
    depth = 0
    for at in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return None


def removals(code):
    """Returns the kind of fault that removing the line would be, or None."""
    if re.match(r"^\s*(if \([^;]*\) )?(co_)?return;\s*$", code):
        return "missing return"
    if re.match(r"^\s*(\+\+|--)[\w.>()\[\]-]+;\s*$|^\s*[\w.>()\[\]-]+ [+-]= [^;]+;\s*$", code):
        return "stale generation" if "generation" in code else "missing update of a counter"
    statement = STATEMENT.match(code)
    if not statement or code.count("(") != code.count(")"):
        return None
    name = statement.group(4)
    if RELEASES.search(name):
        return "missing release"
    return "lost wake-up" if NOTIFIES.search(name) else None


def faults_of(path, text, lines=None):
    """Returns all faults of a file, or those in the given lines."""
    in_block_comment = False
    begins_statement = True
    for number, line in enumerate(text.split("\n"), 1):
        code = blank(line)
        if in_block_comment or "/*" in code:
            in_block_comment = "*/" not in code
            continue
        if not code.strip():
            continue
        if (lines is not None and number not in lines) or INERT.match(code):
            begins_statement = code.rstrip().endswith((";", "{", "}", ":", ">"))
            continue
        for kind, start, end, replacement in substitutions(code):
            changed = line[:start] + (line[start:end] if replacement is None else replacement) + line[end:]
            if replacement.startswith("!("):  # Literals are blank in `code`.
                changed = line[:start] + "!(" + line[start:end] + ")" + line[end:]
            yield Fault(path, number, kind, line, changed)
        kind = removals(code) if begins_statement else None
        begins_statement = code.rstrip().endswith((";", "{", "}", ":"))
        if kind:
            yield Fault(path, number, kind, line, re.match(r"\s*", line).group() + ";")


def in_turn(faults, seed):
    """Returns the faults in an order that alternates between files and kinds, so that a short run has some of each."""
    chance = random.Random(seed)
    queues = {}
    for fault in faults:
        queues.setdefault((fault.path, fault.kind), []).append(fault)
    for queue in queues.values():
        chance.shuffle(queue)
    order = []
    keys = sorted(queues)
    while keys:
        chance.shuffle(keys)
        order += [queues[key].pop() for key in keys]
        keys = sorted(key for key in keys if queues[key])
    return order


def changed_lines(diff):
    """Returns {path: set of line numbers} of a diff without context. The numbers are those of the new file."""
    changed, path = {}, None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif (hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)) and path:
            first, count = int(hunk.group(1)), int(hunk.group(2) or 1)
            changed.setdefault(path, set()).update(range(first, first + count))
    return changed


def is_source(path):
    return bool(SOURCE.search(path)) and not NO_SOURCE.search(path)


def git(*arguments, tree=None):
    result = subprocess.run(["git", *arguments], cwd=tree or ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"git {shlex.join(arguments)}: {result.stderr.strip()}")
    return result.stdout.strip()


def choose_faults(options, snapshot):
    """Returns the faults that the options select, in the order in which they are run."""
    files = [path for path in git("ls-tree", "-r", "--name-only", snapshot).splitlines() if is_source(path)]
    lines = {}
    if options.paths:
        wanted = [os.path.relpath(path, ROOT) if os.path.isabs(path) else path.rstrip("/") for path in options.paths]
        files = [path for path in files if any(path == one or path.startswith(one + "/") for one in wanted)]
    elif options.seed is None:
        base = git("merge-base", options.base, snapshot)
        lines = changed_lines(git("diff", "--unified=0", "--no-color", base, snapshot))
        files = [path for path in files if path in lines]
    found = [fault for path in files for fault in faults_of(path, git("show", f"{snapshot}:{path}") + "\n", lines.get(path))
             if not options.kind or options.kind in fault.kind]
    return in_turn(found, options.seed or 0)


class Tree:
    """The worktree in which faults are injected, with its build folder."""

    def __init__(self, options):
        self.folder = ROOT / "build" / "mutate"
        self.preset = options.preset
        self.jobs = options.jobs
        self.build_folder = self.folder / "build" / options.preset

    def check_out(self, snapshot):
        if (self.folder / ".git").exists():
            git("checkout", "--force", "--detach", snapshot, tree=self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            git("worktree", "prune")
            git("worktree", "add", "--force", "--detach", str(self.folder), snapshot)

    def configure(self):
        return self.run(["cmake", "--preset", self.preset, "-DHAWSER_WERROR=OFF", "-DHAWSER_BUILD_BENCH=OFF",
                         "-DHAWSER_BUILD_CLI=OFF", "-DHAWSER_BUILD_EXAMPLES=OFF"])

    def build(self, targets):
        return self.run(["cmake", "--build", "--preset", self.preset, "--parallel", str(self.jobs), "--target", *targets,
                         "--", "--quiet"])

    def run(self, command):
        """Returns None on success, else the output."""
        result = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace")
        return None if result.returncode == 0 else result.stdout

    def programs(self):
        """Returns {test program: the folders of its sources}."""
        found = {}
        for entry in json.loads((self.build_folder / "compile_commands.json").read_text()):
            if target := re.search(r" -o \S*CMakeFiles/(\w+_test)\.dir/", entry["command"]):
                found.setdefault(target.group(1), set()).update(folders_of(entry, self.folder))
        return found

    def program_path(self, program):
        return next(self.build_folder.rglob(program))


def folders_of(entry, root):
    """Returns the folders, relative to the root, of the files of a compilation: a batch of sources has several. A
    folder "test" belongs to the folder that contains it."""
    files = [entry["file"]]
    if "/Unity/" in entry["file"]:
        files = re.findall(r'#include "([^"]+)"', pathlib.Path(entry["file"]).read_text())
    return {os.path.dirname(os.path.relpath(file, root)).removesuffix("/test") for file in files}


def program_for(path, programs):
    """Returns the test program of the nearest folder, or None. Headers of include/hawser have no folder of tests."""
    folder = os.path.dirname(path)
    while folder:
        for program, folders in sorted(programs.items()):
            if folder in folders:
                return program
        folder = os.path.dirname(folder)
    return None


def run_program(program, limit_s):
    """Returns (status, seconds). The status is "timeout" if the program was ended after its time."""
    started = time.monotonic()
    process = subprocess.Popen([program, "--gtest_brief=1", "--gtest_fail_fast"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        status = "timeout"
    # The children of the program are in its session.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return status, time.monotonic() - started


class Judge:
    """Runs tests with a fault. Stores how long the tests take without a fault."""

    def __init__(self, tree, options):
        self.tree = tree
        self.factor = options.timeout_factor
        self.extra = options.tests
        self.usual_s = {}  # None: the program fails without a fault.
        self.programs = tree.programs()

    def tests_for(self, path):
        near = program_for(path, self.programs)
        return [program for program in dict.fromkeys([near, *self.extra]) if program]

    def prepare(self, program):
        """Builds the program without a fault and measures its time. Returns why it can't be used, or None."""
        if program not in self.usual_s:
            output = self.tree.build([program])
            if output is not None:
                return f"{program} does not build: {output[-2000:]}"
            status, seconds = run_program(self.tree.program_path(program), 900)
            self.usual_s[program] = seconds if status == 0 else None
        return None if self.usual_s[program] is not None else f"{program} fails without a fault"

    def judge(self, fault, programs):
        """"invalid", "survived", or which program noticed it."""
        file = self.tree.folder / fault.path
        original = file.read_text()
        lines = original.split("\n")
        lines[fault.line - 1] = fault.after
        file.write_text("\n".join(lines))
        try:
            for program in programs:
                if self.tree.build([program]) is not None:
                    return "invalid"
                status, _ = run_program(self.tree.program_path(program), self.factor * self.usual_s[program] + SLACK_S)
                if status != 0:
                    return f"{program} ({'hangs' if status == 'timeout' else 'fails' if status == 1 else 'crashes'})"
            return "survived"
        finally:
            file.write_text(original)


def judge_all(faults, judge, deadline):
    """Returns {verdict: [fault, ...]}. Faults that were not run in the time are "left out"."""
    verdicts = {"survived": [], "noticed": [], "invalid": [], "no tests": [], "left out": []}
    for number, fault in enumerate(faults, 1):
        if time.monotonic() > deadline:
            verdicts["left out"] += faults[number - 1:]
            break
        programs = judge.tests_for(fault.path)
        problems = [problem for problem in map(judge.prepare, programs) if problem]
        if problems or not programs:
            print("\n".join(problems) or f"{fault.path}: no test program beside it; name one with --tests", flush=True)
            verdicts["no tests"].append(fault)
            continue
        verdict = judge.judge(fault, programs)
        verdicts[verdict if verdict in verdicts else "noticed"].append(fault)
        print(f"{number:4} {verdict:34} {fault.path}:{fault.line}: {fault.kind}", flush=True)
    return verdicts


def summary(verdicts):
    """Returns the text at the end: the faults that no test detects, then the counts."""
    lines = []
    if verdicts["survived"]:
        lines += ["", "no test notices:", *(f"  {fault}" for fault in sorted(verdicts["survived"], key=lambda one:
                                                                            (one.path, one.line)))]
    judged = len(verdicts["survived"]) + len(verdicts["noticed"])
    lines += ["", f"{len(verdicts['noticed'])} of {judged} faults noticed, {len(verdicts['survived'])} not; "
              f"{len(verdicts['invalid'])} did not compile, {len(verdicts['no tests'])} without tests, "
              f"{len(verdicts['left out'])} left out for want of time"]
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders to inject faults into")
    parser.add_argument("--base", default="origin/main", help="judge the lines that differ from it (origin/main)")
    parser.add_argument("--seed", type=int, help="judge all files, or PATHs, in an order that follows from this number")
    parser.add_argument("--kind", help="only the kinds of faults whose names contain this, such as 'wake-up'")
    parser.add_argument("--tests", nargs="*", default=[], metavar="PROGRAM", help="further programs, such as conformance_test")
    parser.add_argument("--minutes", type=float, default=10, help="time limit, without the first build (10)")
    parser.add_argument("--count", type=int, help="at most so many faults")
    parser.add_argument("--preset", default="dev", help="the preset to build with (dev)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at once")
    parser.add_argument("--timeout-factor", type=float, default=5, help="times the usual time that mean a hang (5)")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    options.paths = [path.replace(os.sep, "/") for path in options.paths]
    return options


def main():
    options = parse()
    # A commit of the uncommitted changes, which belongs to no branch. Empty if there are none.
    snapshot = git("stash", "create") or git("rev-parse", "HEAD")
    faults = choose_faults(options, snapshot)[:options.count]
    if not faults:
        print(f"no faults to inject: nothing differs from {options.base}; --seed chooses from all files")
        return 0
    if options.list:
        print("\n".join(map(str, faults)))
        print(f"{len(faults)} faults")
        return 0
    tree = Tree(options)
    tree.check_out(snapshot)
    if (output := tree.configure()) is not None:
        print(output)
        return 1
    judge = Judge(tree, options)
    programs = {program for fault in faults for program in judge.tests_for(fault.path)}
    print(f"{len(faults)} faults against {', '.join(sorted(programs))}", flush=True)
    for program in sorted(programs):
        if problem := judge.prepare(program):
            print(problem, flush=True)
    verdicts = judge_all(faults, judge, time.monotonic() + 60 * options.minutes)
    print(summary(verdicts))
    print("again: tools/mutate.py " + shlex.join(sys.argv[1:]))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
