#!/usr/bin/env python3
"""Checks docs/tests.md: each test program, folder of tests and fuzzer is in a table, and each path there exists. Each
`Suite.Case` that a page names must exist, too.

test_index.py [--root ROOT]    prints each finding with its remedy; exits 1 if there is any
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/tests.md"
CASE = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
MADE_BY = re.compile(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
PATH = re.compile(r"`((?:src|apps|tests|fuzz|tools)/[^`\s]+)`")


def tests(root):
    """Returns the paths that the page must have."""
    found = {path.relative_to(root).as_posix() for layer in ("src", "apps") for path in (root / layer).rglob("test")
             if path.is_dir() and any("_test." in child.name for child in path.iterdir())}
    programs = sorted((root / "tests").glob("*_test.cpp"))
    found |= {path.relative_to(root).as_posix() for path in programs}
    stems = {path.name.removesuffix("_test.cpp") for path in programs}
    found |= {path.relative_to(root).as_posix() for path in (root / "tests").iterdir()
              if path.is_dir() and path.name not in stems and not path.name.startswith("__")}
    found |= {path.relative_to(root).as_posix() for path in (root / "fuzz").glob("*_fuzz.cpp")}
    found |= {path.relative_to(root).as_posix() for path in (root / "tools").glob("*_test.py")}
    return found


def cases(root):
    """Returns the names of all cases of the C++ tests."""
    return {".".join(case) for layer in ("src", "apps", "tests") for path in (root / layer).rglob("*")
            if path.suffix in (".cpp", ".h") for case in MADE_BY.findall(path.read_text(encoding="utf-8"))}


def cases_that_do_not_exist(root):
    """Yields a line for each case that a page names and no test has."""
    known = cases(root)
    for page in sorted((root / "docs").rglob("*.md")):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for case in CASE.findall(line):
                if case not in known:
                    place = f"{page.relative_to(root)}:{number}"
                    yield f"{place}: the test {case} does not exist: name the one that replaces it"


def findings(root):
    """Yields a line for each test that the page does not have, and each path of the page that does not exist."""
    yield from cases_that_do_not_exist(root)
    named = set()
    for number, line in enumerate((root / PAGE).read_text(encoding="utf-8").splitlines(), 1):
        for path in PATH.findall(line):
            named.add(path)
            if not (root / path).exists():
                yield f"{PAGE}:{number}: {path} does not exist: name its new place, or remove it"
    for path in sorted(tests(root) - named):
        yield f"{PAGE}: {path} is not in a table: add it to the row of the feature that it tests"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    found = list(findings(parser.parse_args().root))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
