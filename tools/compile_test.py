#!/usr/bin/env python3
"""Compiles files of snippets and compares the errors with the expectations in the files.

    compile_test.py COMPILER FILE...

A line of a file that ends in `// says: TEXT` must cause exactly one error, whose text contains TEXT, with every
compiler. After `// says first: TEXT` the compiler may add errors of its own, and after `// says among others: TEXT` also
before it. `// clang says: TEXT` holds for Clang alone. No other line may cause an error.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def expectations(path, clang):
    """Returns (which of its errors, text of that error) for each line that must cause one, by line number."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.search(r"// (clang )?says( first| among others)?: (.+)$", line)
        if match and (clang or not match[1]):
            found[number] = ((match[2] or " only").strip(), match[3])
    return found


def errors(output, path, clang):
    """Returns (line of `path`, 0 if unknown; text) for each error. GCC prints the line before the error, and Clang
    prints it behind the error, the outermost line last."""
    found = []
    line = 0
    for row in output.splitlines():
        here = re.search(re.escape(path.name) + r":(\d+):", row)
        error = re.search(r"(?<!• )error: (.*)", row)  # GCC 16 lists the errors of candidates below theirs.
        if error:
            found.append((int(here[1]) if here else 0 if clang else line, error[1]))
            line = 0
        elif here and clang and found and ": note:" in row:
            found[-1] = (int(here[1]), found[-1][1])
        elif here:
            line = int(here[1])
    return found


def check(compiler, path):
    """Returns the differences from the expectations, as texts."""
    clang = "clang" in pathlib.Path(compiler).name
    command = [compiler, "-std=c++23", "-fsyntax-only", "-w", "-I", str(ROOT / "include"), str(path)]
    result = subprocess.run(command + (["-ferror-limit=0"] if clang else []), capture_output=True, text=True, encoding="utf-8", errors="replace")
    expected = expectations(path, clang)
    texts = {}
    for line, text in errors(result.stderr, path, clang):
        texts.setdefault(line, []).append(text)
    faults = []
    for line in sorted(texts.keys() | expected.keys()):
        found = texts.get(line, [])
        which, wanted = expected.get(line, ("only", None))
        if wanted is None:
            faults += [f"{path}:{line}: unexpected error: {text}" for text in found]
        elif not found:
            faults.append(f"{path}:{line}: compiles, instead of: {wanted}")
        elif wanted not in found[0] and not (which == "among others" and any(wanted in text for text in found)):
            faults.append(f"{path}:{line}: the error is '{found[0]}', which does not contain '{wanted}'")
        elif which == "only":
            faults += [f"{path}:{line}: unexpected error: {text}" for text in found[1:]]
    if result.returncode != 0 and not result.stderr.count("error:"):
        faults.append(f"{path} does not compile:\n{result.stderr}")
    return faults


def main():
    compiler, *files = sys.argv[1:]
    faults = [fault for file in files for fault in check(compiler, pathlib.Path(file))]
    print("\n".join(faults) or f"{compiler}: {len(files)} files as expected")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
