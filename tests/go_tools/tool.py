#!/usr/bin/env python3
"""Runs a program of the Go module in this folder; builds all of them first, once for each version of the module.

tool.py build             builds, and prints the seconds
tool.py NAME ARGUMENT...  runs client, server and http2 (gRPC's interoperability tests in Go), grpcurl, ghz, h2spec, or
                          world (the folder world: clients of tests/world)
tool.py serve ARGUMENT... runs server on a free port; prints its process id and its port first, and ends upon SIGTERM

Exits 77 and prints the reason if there is no Go, or if the modules can neither be found nor downloaded. Modules are
downloaded as `go env GOPROXY` says. The programs lie in build/go-tools, which all presets share.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / "build" / "go-tools"
NAMES = ("client", "server", "http2", "grpcurl", "ghz", "h2spec", "world")
SKIPPED = 77
DOWNLOAD_SECONDS_MAX = 300
# A test program starts this script often. It does not try to download again for this long after a failure.
FAILURE_SECONDS_MAX = 600


class Skip(Exception):
    """The programs are not available on this machine."""


def go_program():
    """Returns the first Go that is at least as new as the module asks, or that downloads such a one itself."""
    found = [path for path in (shutil.which("go"), "/usr/local/go/bin/go") if path and os.access(path, os.X_OK)]
    for path in found:
        if subprocess.run([path, "list", "-m"], cwd=HERE, env=environment(), capture_output=True).returncode == 0:
            return path
    needed = re.search(r"^go (\S+)", (HERE / "go.mod").read_text(), re.MULTILINE).group(1)
    if not found:
        raise Skip(f"there is no Go: install Go {needed}")
    version = subprocess.run([found[-1], "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
    raise Skip(f"{version} is too old: install Go {needed}")


def environment():
    """CGO_ENABLED=0: the programs use no C library, which saves its compilation."""
    given = dict(os.environ, CGO_ENABLED="0", GOFLAGS="-mod=readonly -buildvcs=false")
    if "HOME" not in given:
        given.setdefault("GOPATH", str(OUTPUT / "path"))
        given.setdefault("GOCACHE", str(OUTPUT / "cache"))
    return given


def run_go(go, *arguments, timeout=None):
    """Returns the exit status and the output."""
    try:
        result = subprocess.run([go, *arguments], cwd=HERE, env=environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return 1, f"no end within {timeout} s"
    return result.returncode, result.stdout


def download(go):
    """Downloads the modules of the programs and no others, which "go mod download" would."""
    failure = OUTPUT / "failure"
    if failure.exists() and time.time() - failure.stat().st_mtime < FAILURE_SECONDS_MAX:
        raise Skip(failure.read_text())
    status, output = run_go(go, "list", "-deps", "tool", "./world", timeout=DOWNLOAD_SECONDS_MAX)
    if status != 0:
        errors = [line.strip() for line in output.splitlines() if not line.startswith("go: downloading ")]
        failure.write_text(f"the Go modules cannot be downloaded: {'; '.join(dict.fromkeys(errors[:2])) or 'no reason given'}")
        raise Skip(failure.read_text())
    failure.unlink(missing_ok=True)


def build():
    """Builds the programs unless they are those of this module already."""
    sources = (HERE / "go.mod", HERE / "go.sum", *sorted((HERE / "world").glob("*.go")))
    module = b"".join(path.read_bytes() for path in sources)
    wanted = hashlib.sha256(module).hexdigest()
    stamp = OUTPUT / "stamp"

    def built():
        return stamp.exists() and stamp.read_text() == wanted and all((OUTPUT / name).exists() for name in NAMES)

    if built():
        return
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with open(OUTPUT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built():
            return
        go = go_program()
        stamp.unlink(missing_ok=True)
        download(go)
        # Optimisation takes a third of the time of the compilation.
        status, output = run_go(go, "build", "-ldflags=-s -w", "-gcflags=all=-N -l", "-o", f"{OUTPUT}/", "tool", "./world")
        if status != 0:
            sys.exit(output)
        stamp.write_text(wanted)


def end_with_parent():
    """The program ends if the process that started it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def serve(arguments):
    """The server prints its address in its log, if the log has this level."""
    end_with_parent()
    process = subprocess.Popen([OUTPUT / "server", "--port=0", *arguments], stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, GRPC_GO_LOG_SEVERITY_LEVEL="info"), preexec_fn=end_with_parent)
    lines = []
    for line in process.stderr:
        lines.append(line)
        address = re.search(r"interop server listening on \S*:(\d+)\s*$", line)
        if address:
            print(process.pid, address.group(1), flush=True)
            break
    else:
        print("".join(lines))
        sys.exit(1)
    with contextlib.suppress(KeyboardInterrupt):
        for _ in process.stderr:
            pass
    sys.exit(process.wait())


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in (*NAMES, "build", "serve"):
        sys.exit(__doc__)
    started = time.monotonic()
    try:
        build()
    except Skip as reason:
        print(reason)
        sys.exit(SKIPPED)
    if name == "build":
        print(f"{OUTPUT}: {', '.join(NAMES)}, {time.monotonic() - started:.1f} s")
    elif name == "serve":
        serve(sys.argv[2:])
    else:
        sys.stdout.flush()
        os.execv(OUTPUT / name, [name, *sys.argv[2:]])


if __name__ == "__main__":
    main()
