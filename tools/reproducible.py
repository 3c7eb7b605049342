#!/usr/bin/env python3
"""Builds the last commit twice, in two folders, and compares the installed files byte by byte.

usage: tools/reproducible.py [options for cmake]

Uses the preset `library`. The folders have names of different lengths, and the compiler cache is not used. Exits with
1 and names the files that differ. make reproducible.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def installed_files(folder):
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if not path.is_dir()}


def content(path):
    return os.readlink(path) if path.is_symlink() else path.read_bytes()


def differences(first, second):
    """Returns the names of the files that only one folder has, or that have different contents."""
    left, right = installed_files(first), installed_files(second)
    return sorted(name for name in left.keys() | right.keys()
                  if name not in left or name not in right or content(left[name]) != content(right[name]))


def build(folder, options):
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    for command in (["cmake", "--preset", "library", "-DCMAKE_INSTALL_PREFIX=/usr", *options],
                    ["cmake", "--build", "--preset", "library"],
                    ["cmake", "--install", "build/library"]):
        subprocess.run(command, cwd=source, check=True, env=environment | {"DESTDIR": str(folder / "installed")})
    return folder / "installed"


def main():
    work = ROOT / "build" / "reproducible"
    shutil.rmtree(work, ignore_errors=True)
    first, second = (build(work / name, sys.argv[1:]) for name in ("first", "second-with-a-longer-name"))
    differing = differences(first, second)
    for name in differing:
        print(f"differs: {name}", file=sys.stderr)
    print(f"{len(installed_files(first))} files, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
