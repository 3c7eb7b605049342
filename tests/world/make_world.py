#!/usr/bin/env python3
"""Installs the clients that tests/world names, and runs all of its cases: make_world.py SERVER FOLDER [CASE...].

The packages come from where pip, npm and go are set up to look. They lie in FOLDER, which is kept. Every case is run;
one whose program cannot be installed has failed."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CASES = ("grpcio", "requests", "httpx", "redis", "go", "curl", "nghttp", "node", "node_packages", "node_redis", "nginx", "haproxy")


def install(folder, declaration, *commands):
    """Runs the commands unless they have been run for this declaration."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(declaration.read_bytes()).hexdigest()
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.copy(declaration, folder)
    for command in commands:
        subprocess.run([str(word) for word in command], cwd=folder, check=True)
    stamp.write_text(wanted)


def main():
    server, folder = (pathlib.Path(one).resolve() for one in sys.argv[1:3])
    chosen = sys.argv[3:] or CASES
    python = folder / "python"
    install(python, HERE / "requirements.txt", [sys.executable, "-m", "venv", python / "venv"],
            [python / "venv" / "bin" / "pip", "install", "--quiet", "-r", "requirements.txt"])
    node = folder / "node"
    install(node, HERE / "package.json", ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
    failed = []
    for case in chosen:
        print(f"== {case}", flush=True)
        words = [python / "venv" / "bin" / "python3", "-B", HERE / "world_test.py", server, case]
        done = subprocess.run([str(word) for word in words], cwd=node, env=dict(os.environ, PYTHONUNBUFFERED="1"))
        if done.returncode != 0:
            failed.append(case)
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed", *failed)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
