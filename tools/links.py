#!/usr/bin/env python3
"""Checks the links between the pages of the project: files, and headings within them. Links to other sites are skipped.

links.py [--root ROOT]    prints each broken link with its page and line; exits 1 if there is any
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`[^`]*`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
OTHER_SITE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def lines_outside_code(text):
    """Yields (number, line) of each line that is in no fenced block."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    """Returns the anchors of a page's headings, as code forges and mkdocs make them."""
    found, counts = set(), {}
    for _, line in lines_outside_code(text):
        heading = HEADING.match(line)
        if heading is None:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        count = counts.get(anchor, 0)
        counts[anchor] = count + 1
        found.add(anchor if count == 0 else f"{anchor}-{count}")
    return found


def check_page(root, page):
    """Yields (line, problem) for each broken link of a page."""
    for number, line in lines_outside_code(page.read_text(encoding="utf-8")):
        for target in LINK.findall(CODE.sub("", line)):
            if OTHER_SITE.match(target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.is_relative_to(root.resolve()) or not file.exists():
                yield number, f"{target}: there is no such file"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                yield number, f"{target}: {file.name} has no such heading"


def pages(root):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root,
                            capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.split() if (root / name).exists()]
    return [page for page in root.rglob("*.md") if "build" not in page.relative_to(root).parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    arguments = parser.parse_args()
    broken = [(page, *problem) for page in pages(arguments.root) for problem in check_page(arguments.root, page)]
    for page, line, problem in broken:
        print(f"{page.relative_to(arguments.root)}:{line}: {problem}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
