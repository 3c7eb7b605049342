#!/usr/bin/env python3
"""Runs the hawser command as a user would. smoke_test.py PROGRAM CASE; exits 77 where the machine can't."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


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
    expect(names == ["machine", "tcp", "shm", "ucx", "rdma"], result)
    for section in report["sections"]:
        for finding in section["findings"]:
            expect(finding["id"].startswith(section["name"] + ".") and finding["text"], result)


def doctor_rdma():
    """If there is a device, the report names it and the self-test sends data."""
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


def lab():
    """Both studies on a simulated device, and their page."""
    with tempfile.TemporaryDirectory() as folder:
        ladder, study, page = (f"{folder}/{name}" for name in ("ladder.json", "study.json", "page.html"))
        simulated = ("--simulated", "--repetitions", "2")
        result = run("lab", "ladder", *simulated, "--count", "100", "--size", "4K", "--json", ladder,
                     "--csv", f"{folder}/ladder.csv")
        expect(result.returncode == 0 and "Simulated" in result.stdout and "requests reused" in result.stdout, result)
        expect(len(pathlib.Path(f"{folder}/ladder.csv").read_text().splitlines()) > 12, result)
        result = run("lab", "sendrecv", *simulated, "--count", "500", "--connections", "4", "--json", study)
        expect(result.returncode == 0 and "(h)" in result.stdout and "Root mean square" in result.stdout, result)
        again = run("lab", "sendrecv", *simulated, "--count", "500", "--connections", "4")
        expect(result.stdout == again.stdout, again)  # The same seed.
        result = run("lab", "report", ladder, study, "-o", page, "--svg", f"{folder}/figures")
        expect(result.returncode == 0, result)
        root = xml.etree.ElementTree.parse(page).getroot()
        text = pathlib.Path(page).read_text()
        expect("simulated" in text and "http-equiv" not in text and "src=" not in text, result)
        drawings = list(pathlib.Path(f"{folder}/figures").glob("*.svg"))
        expect(len(drawings) >= 12, result)
        expect(len([one for one in root.iter() if one.tag.endswith("}svg")]) == len(drawings), result)
        for drawing in drawings:
            xml.etree.ElementTree.parse(drawing)
        result = run("lab", "report", f"{folder}/ladder.csv", "-o", page)
        expect(result.returncode == 1 and "ladder.csv" in result.stderr, result)


def lab_rdma():
    """On a device: a short ladder beside perftest where that is installed."""
    folder = pathlib.Path("/sys/class/infiniband")
    if not folder.is_dir() or not list(folder.iterdir()):
        print("no RDMA device")
        sys.exit(77)
    result = run("lab", "ladder", "--count", "50", "--repetitions", "2", "--steps", "1,8",
                 *(["--perftest"] if shutil.which("ib_write_bw") else []))
    expect(result.returncode == 0 and "Simulated" not in result.stdout, result)
    result = run("lab", "sendrecv", "--count", "50", "--repetitions", "1", "--experiments", "ab", "--size-max", "64")
    expect(result.returncode == 0 and "Root mean square" in result.stdout, result)


def demo_curl():
    """demo serve answers curl: JSON, protobuf bytes, routes, errors; and it ends on SIGTERM."""
    if not shutil.which("curl"):
        print("curl is not installed")
        sys.exit(77)
    with subprocess.Popen([sys.argv[1], "demo", "serve", "--threads", "2"], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().rpartition(" ")[2].strip()

            def curl(path, *arguments, data=None):
                result = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "30", *arguments,
                                         f"http://{address}{path}"], input=data, capture_output=True)
                result.stdout, result.stderr = (text.decode("latin-1") for text in (result.stdout, result.stderr))
                return result

            def expect_body(body, result):
                expect(result.returncode == 0 and result.stdout == body, result)

            echo = "/example.EchoService/Echo"
            expect_body("OK\n", curl("/health"))
            expect_body('{"message":"hi"}', curl(echo, "--data", '{"message": "hi"}', "-H", "Content-Type: application/json"))
            expect_body("{}", curl(echo, "--data", "{}", "-H", "Content-Type: application/json"))
            expect_body("\x0a\x02hi", curl(echo, "--data-binary", "\x0a\x02hi", "-H", "Content-Type: application/proto"))
            # Chunked, and long enough for curl to expect 100-continue.
            text = "x" * 2_000_000
            sent = json.dumps({"message": text}).encode()
            for fields in ((), ("-H", "Transfer-Encoding: chunked")):
                expect_body('{"message":"' + text + '"}',
                            curl(echo, "--data-binary", "@-", "-H", "Content-Type: application/json", *fields, data=sent))
            expect_body("404", curl("/nothing", "-o", "/dev/null", "-w", "%{http_code}"))
            expect_body("405", curl(echo, "-o", "/dev/null", "-w", "%{http_code}"))
            result = curl("/health", "--head")
            expect(result.returncode == 0 and "200 OK" in result.stdout and "Content-Length: 3" in result.stdout, result)
            # Two transfers over one connection.
            result = curl("/health", "-v", f"http://{address}/health")
            expect(result.stdout == "OK\nOK\n" and "Re-using existing connection" in result.stderr, result)
        finally:
            server.terminate()
    expect(server.returncode == 0, subprocess.CompletedProcess("demo serve", server.returncode, "", ""))


if __name__ == "__main__":
    cases = (version, wrong_options, demo_curl, doctor, doctor_json, doctor_rdma, lab, lab_rdma)
    {case.__name__: case for case in cases}[sys.argv[2]]()
