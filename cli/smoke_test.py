#!/usr/bin/env python3
"""Runs the hawser command as a user would. smoke_test.py PROGRAM CASE; exits 77 where the machine can't."""

import json
import pathlib
import subprocess
import sys


def run(*arguments):
    return subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True)


def expect(condition, result):
    if not condition:
        sys.exit(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")


def version():
    result = run("--version")
    expect(result.returncode == 0 and result.stdout.count(".") == 2, result)


def wrong_options():
    for arguments in ((), ("dance",), ("doctor", "--nonsense"), ("doctor", "--require", "carrier-pigeon")):
        result = run(*arguments)
        expect(result.returncode == 2 and "hawser" in result.stderr and not result.stdout, result)


def doctor():
    result = run("doctor")
    expect(result.returncode in (0, 1) and "This machine" in result.stdout and not result.stderr, result)
    expect("\x1b" not in result.stdout, result)  # No colours into a pipe.


def doctor_json():
    result = run("doctor", "--json")
    expect(result.returncode in (0, 1), result)
    report = json.loads(result.stdout)
    expect((result.returncode == 0) == (report["worst"] in ("good", "note")), result)
    names = [section["name"] for section in report["sections"]]
    expect(names == ["machine", "tcp", "shm", "rdma"], result)
    for section in report["sections"]:
        for finding in section["findings"]:
            expect(finding["id"].startswith(section["name"] + ".") and finding["text"], result)


def doctor_rdma():
    """Where there is a device, it is named and carries data."""
    folder = pathlib.Path("/sys/class/infiniband")
    devices = sorted(device.name for device in folder.iterdir()) if folder.is_dir() else []
    if not devices:
        print("no RDMA device")
        sys.exit(77)
    result = run("doctor", "--json", "--require", "rdma")
    section = next(section for section in json.loads(result.stdout)["sections"] if section["name"] == "rdma")
    expect(section["usable"], result)
    tested = [finding for finding in section["findings"] if finding["id"] == "rdma.self_test"]
    expect(tested and all(finding["subject"].split("/")[0] in devices for finding in tested), result)
    expect(not [finding for finding in section["findings"] if finding["severity"] == "problem"], result)
    print(run("doctor").stdout)


if __name__ == "__main__":
    {case.__name__: case for case in (version, wrong_options, doctor, doctor_json, doctor_rdma)}[sys.argv[2]]()
