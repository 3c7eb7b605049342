#!/usr/bin/env python3
"""Keeps the code in the documentation equal to code that is compiled and run.

snippets.py           fails if a block of C++ in README.md, docs/testing.md or docs/guide/ differs from its source, or has none
snippets.py --write   replaces such blocks by their source

A block of C++ in a page names its source in the line before it:

    <!-- snippet: examples/guide/hello.cpp#handler -->

The source is a file, or a region of it between the lines `// [handler]` and `// [/handler]`. The region loses its common
indentation. Where a block cannot be a program, the line `<!-- no snippet: REASON -->` stands in place of the source.
"""

import argparse
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = re.compile(r"<!-- snippet: (?P<path>[^#\s]+)(?:#(?P<region>[\w-]+))? -->")
EXCUSE = re.compile(r"<!-- no snippet: \S.* -->")
REGION_MARK = re.compile(r"^\s*// \[/?[\w-]+\]$")


class Fault(Exception):
    pass


def source_text(root, path, region):
    """Returns the lines of a file, or of a region of it, without the marks of regions."""
    try:
        lines = (root / path).read_text(encoding="utf-8").splitlines()
    except OSError:
        raise Fault(f"{path} does not exist")
    if region is not None:
        begin = [i for i, line in enumerate(lines) if line.strip() == f"// [{region}]"]
        end = [i for i, line in enumerate(lines) if line.strip() == f"// [/{region}]"]
        if len(begin) != 1 or len(end) != 1 or begin[0] > end[0]:
            raise Fault(f"{path} has no region {region}: it begins with `// [{region}]` and ends with `// [/{region}]`")
        lines = lines[begin[0] + 1:end[0]]
    kept = [line for line in lines if not REGION_MARK.match(line)]
    return textwrap.dedent("\n".join(kept)).strip("\n").splitlines()


def check_page(root, page, text):
    """Returns the faults of a page as (line, text), and the page with all blocks replaced by their sources."""
    faults, result = [], []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        result.append(line)
        at += 1
        if not line.startswith("```"):
            continue
        begin = at
        while at < len(lines) and not lines[at].startswith("```"):
            at += 1
        block = lines[begin:at]
        expected = block
        if line.strip() == "```cpp":
            before = result[-2].strip() if len(result) > 1 else ""
            source = SOURCE.fullmatch(before)
            try:
                if source is not None:
                    expected = source_text(root, source["path"], source["region"])
                elif not EXCUSE.fullmatch(before):
                    raise Fault("this block names no source: write `<!-- snippet: FILE#REGION -->` in the line before it")
                if expected != block:
                    faults.append((begin, f"this block differs from {before[5:-4]}: run tools/snippets.py --write"))
            except Fault as fault:
                faults.append((begin, str(fault)))
        result += expected
        if at < len(lines):
            result.append(lines[at])
            at += 1
        else:
            faults.append((begin, "this block has no end"))
    return faults, "\n".join(result) + "\n"


def pages(root):
    return [root / "README.md", *sorted((root / "docs").glob("testing.md")),
            *sorted((root / "docs" / "guide").glob("*.md"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    arguments = parser.parse_args()
    failed = False
    for page in pages(arguments.root):
        text = page.read_text(encoding="utf-8")
        faults, written = check_page(arguments.root, page, text)
        if arguments.write and written != text:
            page.write_text(written, encoding="utf-8")
            faults, _ = check_page(arguments.root, page, written)
        for line, problem in faults:
            print(f"{page.relative_to(arguments.root)}:{line}: {problem}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
