#!/usr/bin/env python3
"""Installs the clients that tests/world names, and runs all of its cases: make_world.py SERVER FOLDER [CASE...].

The packages come from where pip, npm, go, mvn and cargo are set up to look. They lie in FOLDER, which is kept. Every
case is run; it is skipped, with the reason, if the tool that installs its packages is missing, and has failed if the
tool fails."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The tools that cases need. A case runs in the folder of its tool.
CASES = {"grpcio": "python", "requests": "python", "httpx": "python", "redis": "python", "go": "python", "curl": "python",
         "nghttp": "python", "node": "node", "node_packages": "node", "node_redis": "node", "grpc_java": "java",
         "java_redis": "java", "tonic": "rust", "redis_rs": "rust", "xds": "go", "nginx": "python", "haproxy": "python"}
PROGRAMS = {"python": (), "node": ("node", "npm"), "java": ("java", "mvn"), "rust": ("cargo",), "go": ("go",)}
SKIPPED = 77


def install(folder, declaration, *commands):
    """Runs the commands unless they have been run for this declaration."""
    wanted = hashlib.sha256(declaration.read_bytes()).hexdigest()
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(declaration, folder)
    for command in commands:
        subprocess.run([str(word) for word in command], cwd=folder, check=True)
    stamp.write_text(wanted)


def install_for(tool, folder):
    if tool == "python":
        install(folder, HERE / "requirements.txt", [sys.executable, "-m", "venv", folder / "venv"],
                [folder / "venv" / "bin" / "pip", "install", "--quiet", "-r", "requirements.txt"])
    elif tool == "node":
        install(folder, HERE / "package.json", ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
    elif tool == "java":
        install(folder, HERE / "java" / "pom.xml", ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=lib"])
    elif tool == "go":
        shutil.copytree(HERE / "go", folder, dirs_exist_ok=True)
        subprocess.run(["go", "build", "-mod=readonly", "-o", "hawser-world-xds", "."], cwd=folder, check=True,
                       env=dict(os.environ, CGO_ENABLED="0"))
    else:
        shutil.copytree(HERE / "rust", folder, dirs_exist_ok=True)
        subprocess.run(["cargo", "build", "--quiet"], cwd=folder, check=True)


def main():
    server, folder = (pathlib.Path(one).resolve() for one in sys.argv[1:3])
    chosen = sys.argv[3:] or CASES
    unknown = [case for case in chosen if case not in CASES]
    if unknown:
        sys.exit(f"there is no case {' '.join(unknown)}: the cases are {' '.join(CASES)}")
    failed, skipped = [], []
    broken, missing = set(), {}
    for tool in dict.fromkeys(["python", *(CASES[case] for case in chosen)]):
        missing[tool] = [program for program in PROGRAMS[tool] if not shutil.which(program)]
        try:
            if not missing[tool]:
                install_for(tool, folder / tool)
        except subprocess.CalledProcessError as error:
            print(f"the packages of {tool} are not installed: {error}", flush=True)
            broken.add(tool)
    for case in chosen:
        print(f"== {case}", flush=True)
        tool = CASES[case]
        if missing[tool]:
            print(f"{case}: skipped, since {' and '.join(missing[tool])} cannot be found", flush=True)
            skipped.append(case)
            continue
        words = [folder / "python" / "venv" / "bin" / "python3", "-B", HERE / "world_test.py", server, case]
        status = 1 if broken & {tool, "python"} else subprocess.run(
            [str(word) for word in words], cwd=folder / tool, env=dict(os.environ, PYTHONUNBUFFERED="1")).returncode
        if status != 0:
            (skipped if status == SKIPPED else failed).append(case)
    for outcome, cases in (("failed", failed), ("skipped", skipped)):
        if cases:
            print(f"{outcome}:", *cases)
    print(f"{len(chosen) - len(failed) - len(skipped)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
