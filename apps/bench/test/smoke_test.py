#!/usr/bin/env python3
"""Runs hawser-bench as a user would and checks what it prints, writes and returns.

smoke_test.py PROGRAM CASE   CASE: one of those in CASES below
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

SKIPPED = 77


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def run(program, *arguments, timeout_s=300):
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=timeout_s)
    print(f"$ hawser-bench {' '.join(arguments)}\n{result.stdout}{result.stderr}exit status {result.returncode}")
    return result


def children_of(pid):
    """Returns the process ids of the children of `pid` by name. Children that have not set their names are missing."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, rest = re.match(r"\d+ \((.*)\) (.*)", (entry / "stat").read_text(), re.DOTALL).groups()
        except OSError:  # The process has ended meanwhile.
            continue
        state, parent = rest.split()[:2]
        if int(parent) == pid and state != "Z":
            children[name] = int(entry.name)
    return children


def running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, text, timeout_s=60):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    sys.exit(f"FAILED: {text} within {timeout_s} s")


def start_long_run(program, *arguments):
    """Starts a run and waits until it measures. Returns the run and its children."""
    process = subprocess.Popen([program, "run", "--sizes", "4K", "--concurrency", "8", "--seconds", "60", *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    names = {"bench-server", "bench-client"}
    children = wait_for(lambda: (found := children_of(process.pid)).keys() >= names and found, "two children started")
    time.sleep(0.7)  # Until the measurement is under way.
    return process, children


def end_of(process, children, timeout_s=60):
    """Checks that the run and its children have ended. Returns its output on stderr."""
    try:
        _, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit("FAILED: the run hangs")
    print(f"{errors}exit status {process.returncode}")
    for name, pid in children.items():
        check(not running(pid), f"{name} was left behind")
    return errors


def check_cells(cells, expected, system="hawser"):
    seen = [(cell["mode"], cell["size_bytes"], cell["concurrency"]) for cell in cells]
    check(seen == expected, f"cells are {seen}, not {expected}")
    for cell in cells:
        check(cell["system"] == system and cell["transport"] == "tcp", f"another system: {cell}")
        check(cell["errors"] == 0, f"errors: {cell}")
        check(cell["calls"] > 0 and cell["calls_per_s"] > 0 and cell["gbit_per_s"] > 0, f"no calls: {cell}")
        latencies = [cell[name] for name in ("p50_us", "p90_us", "p99_us", "p999_us")]
        check(0 < latencies[0] and latencies == sorted(latencies), f"percentiles do not rise: {cell}")
        check(0.1 <= cell["seconds"] < 5, f"odd time: {cell}")
        check(cell["client_cpu_s"] > 0 and cell["server_cpu_s"] > 0, f"no processor time: {cell}")


def smoke(program, poller):
    with tempfile.TemporaryDirectory() as folder:
        json_file, csv_file = pathlib.Path(folder, "out.json"), pathlib.Path(folder, "out.csv")
        table = ["--sizes", "128,64K", "--concurrency", "1,8", "--seconds", "0.2", "--mode", "pipeline,connections",
                 "--poller", poller]
        result = run(program, "run", *table, "--json", str(json_file), "--csv", str(csv_file))
        check(result.returncode == 0, "exit status")
        written = json.loads(json_file.read_text())
        lines = csv_file.read_text().splitlines()
        check_cells(written["cells"], [(mode, size, concurrency) for mode in ("pipeline", "connections")
                                       for size in (128, 65536) for concurrency in (1, 8)])
        check(len(lines) == 9 and lines[0].startswith("system,transport,mode,wait,size_bytes"), "CSV")
        check(all(line.count(",") == lines[0].count(",") for line in lines), "CSV columns")
        meta = written["meta"]
        for name in ("version", "compiler", "build_type", "kernel", "cpu", "cores", "poller", "date", "command_line",
                     "reply"):
            check(meta[name] not in ("", None), f"meta lacks {name}")
        check(meta["complete"], "incomplete")
        check("| 64K |" in re.sub(" +", " ", result.stdout), "table")
        check("cell 8 of 8" in result.stderr, "progress")
        for kind in (["--reply", "ack"], ["--handler", "coroutine"], ["--reply", "ack", "--handler", "coroutine"],
                     ["--handler", "protobuf"], ["--protocol", "baidu_std"], ["--protocol", "grpc"], ["--protocol", "http"],
                     ["--wait", "event,busy_poll"]):
            result = run(program, "run", "--sizes", "1,64K", "--concurrency", "4", "--seconds", "0.1", "--poller", poller,
                         *kind)
            if "this build has no " in result.stderr:
                continue
            check(result.returncode == 0, f"exit status with {kind}")
        if meta["poller"] != poller or meta["server_poller"] != poller:
            print(f"{poller} is not to be had here: {meta['poller']} was used instead")
            sys.exit(SKIPPED)


def options(program):
    """Wrong options say what is accepted and end with 2."""
    for arguments, texts in [
        (["run", "--transport", "pigeon"], ["pigeon", "shm, ucx, rdma, auto"]),
        (["run", "--sizes", "0x10"], ["0x10", "such as 128, 4K or 8M"]),
        (["run", "--sizes", "65M"], ["65M", "1 to 64M"]),
        (["run", "--sizes", "128,128"], ["twice"]),
        (["run", "--sizes", ""], ["--sizes"]),
        (["run", "--concurrency", "0"], ["from 1 to"]),
        (["run", "--seconds", "0"], ["is not a number from"]),
        (["run", "--seconds", "nan"], ["is not a number from"]),
        (["run", "--mode", "pipeline,serial"], ["serial", "pipeline, connections"]),
        (["run", "--wait", "sleep"], ["sleep", "spin, busy_poll or event"]),
        (["run", "--poller", "kqueue"], ["kqueue", "auto, epoll or io_uring"]),
        (["run", "--reply", "none"], ["neither echo nor ack"]),
        (["run", "--handler", "thread"], ["neither function nor coroutine"]),
        (["run", "--protocol", "thrift"], ["thrift", "none of native, baidu_std, grpc and http"]),
        (["run", "--protocol", "http", "--mode", "pipeline"], ["its own connection"]),
        (["run", "--protocol", "http", "--rate", "10"], ["without --rate"]),
        (["run", "--loan", "--rate", "10"], ["loans are measured without --rate"]),
        (["run", "--loan", "--registered"], ["omit --registered"]),
        (["run", "--mode", "threads", "--loan"], ["--mode pipeline or connections"]),
        (["run", "--server-cpu", "9999"], ["9999", "-1 for no pinning"]),
        (["run", "--bytes-in-flight", "lots"], ["is not a size"]),
        (["run", "--call-timeout", "-1"], ["is not a number from"]),
        (["run", "--json", "/nowhere/out.json"], ["cannot write /nowhere/out.json"]),
        (["run", "--wrong"], ["--wrong"]),
        (["compare", "--peers", "baseline,thrift"], ["thrift", "baseline, grpc, capnp, ucx"]),
        (["compare", "--peers", "ucx", "--mode", "connections"], ["ucx_perftest has one connection"]),
        (["compare", "--peers", "grpc-client"], ["--protocol grpc"]),
        (["compare", "--peers", "grpc-server", "--protocol", "grpc", "--reply", "ack"], ["echoes only"]),
        (["run", "--rtt-table"], ["beside tcp"]),
        (["compare", "--repeat", "0"], ["from 1 to 99"]),
        (["compare", "--cells", "128"], ["SIZExCONCURRENCY"]),
        (["compare", "--cells", "128x0"], ["from 1 to 16384"]),
        (["baseline", "--transport", "rdma"], ["no baseline over rdma", "give --transport tcp, unix"]),
        (["baseline", "--transport", "shm", "--wait", "event"], ["never sleeps"]),
        (["run", "--rate", "0"], ["from 0.1 to"]),
        (["run", "--server-threads", "0"], ["from 1 to"]),
        (["report"], ["files is required"]),
        (["server", "--wait", "spin,event"], ["give one"]),
        (["client"], ["--connect is required"]),
        (["dance"], ["dance"]),
        ([], ["give run, baseline, compare, memory, report, server or client"]),
    ]:
        result = run(program, *arguments)
        check(result.returncode == 2, f"exit status {result.returncode}, not 2, for {arguments}")
        check(result.stdout == "", f"{arguments} printed to stdout")
        for text in texts:
            check(text in result.stderr, f'"{text}" is not said for {arguments}')
    check(run(program, "run", "--help").returncode == 0, "--help")
    check(run(program, "--version").returncode == 0, "--version")


def baseline(program):
    """Bare sockets have the cells and columns of the library."""
    with tempfile.TemporaryDirectory() as folder:
        json_file = pathlib.Path(folder, "out.json")
        result = run(program, "baseline", "--sizes", "128,300K", "--concurrency", "1,5", "--mode", "pipeline,connections",
                     "--seconds", "0.1", "--json", str(json_file))
        check(result.returncode == 0, "exit status")
        check_cells(json.loads(json_file.read_text())["cells"],
                    [(mode, size, concurrency) for mode in ("pipeline", "connections") for size in (128, 300 << 10)
                     for concurrency in (1, 5)], "baseline")
    result = run(program, "baseline", "--sizes", "1,300K", "--concurrency", "3", "--mode", "pipeline,connections", "--wait",
                 "event,busy_poll", "--reply", "ack", "--seconds", "0.05")
    check(result.returncode == 0, "exit status with ack")
    result = run(program, "baseline", "--transport", "unix,shm", "--sizes", "1,300K", "--concurrency", "1,20", "--mode",
                 "pipeline,connections", "--seconds", "0.05")
    check(result.returncode == 0, "exit status over others than TCP")
    result = run(program, "baseline", "--transport", "shm", "--reply", "ack", "--cells", "8Kx50", "--seconds", "0.05")
    check(result.returncode == 0, "exit status with ack through memory")


def compare(program):
    """Systems take turns; medians and repetitions are written."""
    with tempfile.TemporaryDirectory() as folder:
        json_file, csv_file = pathlib.Path(folder, "out.json"), pathlib.Path(folder, "out.csv")
        result = run(program, "compare", "--cells", "128x1,64Kx4", "--repeat", "2", "--seconds", "0.1", "--json",
                     str(json_file), "--csv", str(csv_file))
        check(result.returncode == 0, "exit status")
        written = json.loads(json_file.read_text())
        cells = [(128, 1), (65536, 4)]
        place = lambda one: (one["system"], one["size_bytes"], one["concurrency"], one["repetition"])
        check([place(one) for one in written["cells"]] ==
              [(system, *cell, 0) for cell in cells for system in ("hawser", "baseline")], "medians")
        check([place(one) for one in written["repetitions"]] ==
              [(system, *cell, number) for cell in cells for number in (1, 2) for system in ("hawser", "baseline")],
              "repetitions")
        check(all(one["errors"] == 0 and one["calls"] > 0 for one in written["cells"]), "errors")
        check(len(csv_file.read_text().splitlines()) == 1 + 4 + 8, "CSV")
        check(written["meta"]["poller"] in ("epoll", "io_uring"), "the poller is not ours")
        check("| baseline " in result.stdout and "cell 2 of 2" in result.stderr, "table and progress")
    # The error for a missing program names its packages.
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder, "hawser-bench")
        shutil.copy(program, alone)
        result = run(alone, "compare", "--peers", "baseline,capnp")
        check(result.returncode == 2 and "install libcapnp-dev capnproto" in result.stderr, "a peer that is not built")
        result = run(alone, "compare", "--transport", "tls", "--peers", "baseline,capnp")
        check(result.returncode == 2 and ("capnp is not measured within TLS" in result.stderr or
                                          "has no TLS" in result.stderr), "a peer without TLS")


def peers(program):
    """The other systems, where they are built."""
    for peer in ("grpc", "capnp"):
        if not (pathlib.Path(program).parent / "peers" / f"hawser-peer-{peer}").exists():
            print(f"hawser-peer-{peer} is not built")
            sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        json_file = pathlib.Path(folder, "out.json")
        for kind in ("echo", "ack"):
            result = run(program, "compare", "--peers", "grpc,capnp", "--cells", "1x1,128x40,1Mx3", "--mode",
                         "pipeline,connections", "--reply", kind, "--repeat", "1", "--seconds", "0.1", "--json", str(json_file))
            check(result.returncode == 0, "exit status")
            cells = json.loads(json_file.read_text())["cells"]
            check(len(cells) == 18 and all(cell["errors"] == 0 and cell["calls"] > 0 for cell in cells), "cells")
            check(all(cell["server_cpu_s"] > 0 and cell["client_cpu_s"] > 0 for cell in cells), "processor time")
        result = run(program, "compare", "--protocol", "grpc", "--peers", "grpc-client,grpc-server", "--cells", "1x1,1Mx3",
                     "--repeat", "1", "--seconds", "0.1", "--json", str(json_file))
        check(result.returncode == 0, "exit status of compare --protocol grpc")
        cells = json.loads(json_file.read_text())["cells"]
        check(len(cells) == 6 and all(cell["errors"] == 0 and cell["calls"] > 0 for cell in cells), "cells of gRPC")
        check(all(cell["server_cpu_s"] >= 0 and cell["client_cpu_s"] > 0 for cell in cells), "processor time of gRPC")
        for protocol, others in (("native", "grpc"), ("grpc", "grpc,grpc-client,grpc-server")):
            result = run(program, "compare", "--transport", "tls", "--protocol", protocol, "--peers", others, "--cells",
                         "1x1,128x40,1Mx3", "--repeat", "1", "--seconds", "0.1", "--json", str(json_file))
            check(result.returncode == 0, f"exit status of compare --transport tls --protocol {protocol}")
            cells = json.loads(json_file.read_text())["cells"]
            check(len(cells) == 3 * (2 + others.count(",")) and
                  all(cell["errors"] == 0 and cell["calls"] > 0 for cell in cells), "cells within TLS")


def observed(program):
    """The same calls while the server has pages, a tracer and a recorder, and its metrics are read."""
    with tempfile.TemporaryDirectory() as folder:
        json_file = pathlib.Path(folder, "out.json")
        result = run(program, "compare", "--peers", "observed", "--cells", "128x16", "--repeat", "1", "--seconds", "1.5",
                     "--json", str(json_file))
        check(result.returncode == 0, "exit status")
        cells = json.loads(json_file.read_text())["cells"]
        check({cell["system"] for cell in cells} == {"hawser", "observed"}, "systems")
        check(all(cell["errors"] == 0 and cell["calls"] > 0 for cell in cells), "cells")


def ucx(program):
    """ucx_perftest as a peer, where it is installed."""
    if shutil.which("ucx_perftest") is None:
        print("ucx_perftest is not installed")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        json_file = pathlib.Path(folder, "out.json")
        result = run(program, "compare", "--peers", "ucx", "--cells", "128x1,4Kx8", "--repeat", "2", "--seconds", "0.1",
                     "--json", str(json_file))
        check(result.returncode == 0, "exit status")
        cells = [cell for cell in json.loads(json_file.read_text())["cells"] if cell["system"] == "ucx"]
        check(len(cells) == 2 and all(cell["calls"] > 0 for cell in cells) and cells[0]["p50_us"] > 0, "cells")


def report(program):
    """The page is XML and has every cell; a file that is none is refused."""
    with tempfile.TemporaryDirectory() as folder:
        json_file, page_file = pathlib.Path(folder, "out.json"), pathlib.Path(folder, "out.html")
        result = run(program, "compare", "--cells", "128x1,128x4,8Kx1", "--repeat", "1", "--seconds", "0.05", "--json",
                     str(json_file))
        check(result.returncode == 0, "exit status of compare")
        result = run(program, "report", str(json_file), "-o", str(page_file))
        check(result.returncode == 0, "exit status")
        page = xml.etree.ElementTree.parse(page_file)
        texts = [element.text for element in page.iter() if element.text]
        cells = json.loads(json_file.read_text())["cells"]
        check(len(cells) == 6, "cells")
        for cell in cells:
            check(f"{round(cell['calls_per_s']):,}" in texts, f"{cell} is not on the page")
        check(sum(element.tag.endswith("}svg") for element in page.iter()) == 4, "plots")
        page_file.write_text("{}")
        result = run(program, "report", str(page_file), "-o", str(json_file))
        check(result.returncode == 1 and "is not a file of --json" in result.stderr, "a file that is none")
        check(json.loads(json_file.read_text())["cells"], "the output was touched")


def rate(program):
    """An open loop keeps its pace, and shows it when it can't; servers have several threads; connections are many."""
    with tempfile.TemporaryDirectory() as folder:
        def measure(*arguments):
            json_file = pathlib.Path(folder, "out.json")
            result = run(program, "run", *arguments, "--json", str(json_file))
            check(result.returncode == 0, "exit status")
            return json.loads(json_file.read_text())

        for kind in (["--mode", "pipeline,connections"], ["--wait", "event", "--reply", "ack", "--server-threads", "2"]):
            # A pause of the machine spoils the measurement during which it occurs, and not the next one.
            for _ in range(5):
                written = measure("--sizes", "128", "--concurrency", "64", "--rate", "500", "--seconds", "1", *kind)
                at_pace = all(400 < cell["calls_per_s"] < 600 for cell in written["cells"])
                if at_pace:
                    break
            check(at_pace, "another pace")
            check(written["meta"]["rate_per_s"] == 500, "meta")
        check(written["meta"]["server_threads"] == 2, "meta")
        # The rate is higher than one call in flight allows, so each call waits longer than the one before.
        cell = measure("--sizes", "4M", "--concurrency", "1", "--rate", "1e6", "--seconds", "0.5")["cells"][0]
        check(cell["p50_us"] > 100e3, "waiting does not count")
        # Others connect and disconnect beside the calls.
        result = run(program, "run", "--cells", "128x16", "--seconds", "0.5", "--connecting", "200")
        check(result.returncode == 0, "exit status with --connecting")
        others = re.search(r"(\d+) clients a second connected beside the cells for .* s; 0 failed$", result.stderr, re.M)
        check(others and int(others[1]) > 0, "no other clients")
        # A rate that leaves callers idle does not delay the end, although the last of them begins after 50 s.
        began = time.monotonic()
        measure("--sizes", "128", "--concurrency", "1000", "--rate", "20", "--seconds", "0.2")
        check(time.monotonic() - began < 40, "it ends late")
        cell = measure("--sizes", "128", "--concurrency", "2000", "--mode", "connections", "--seconds", "0.2")["cells"][0]
        check(cell["calls_at_once"] == 2000, "connections")


def refused(program):
    """No server to connect to, and no address to listen at."""
    result = run(program, "client", "--connect", "127.0.0.1:1", "--seconds", "0.1")
    check(result.returncode == 1 and "cannot connect to 127.0.0.1:1" in result.stderr, "client without a server")
    result = run(program, "server", "--listen", "192.0.2.1:9000")
    check(result.returncode == 1 and "cannot listen at 192.0.2.1:9000" in result.stderr, "server without the address")


def transports(program):
    """Each transport is measured, or refused with the reason; several make a table each."""
    for name in ("unix", "shm", "ucx", "rdma"):
        result = run(program, "run", "--transport", name, "--cells", "128x2,64Kx1", "--seconds", "0.1")
        check(result.returncode == 0 or "cannot listen" in result.stderr or
              f"TransportOptions::required is {name}" in result.stderr, f"{name} is neither measured nor refused with a reason")
    result = run(program, "run", "--transport", "auto,tcp", "--cells", "128x2", "--seconds", "0.1")
    check(result.returncode == 0 and "auto, pipeline" in result.stdout and "tcp, pipeline" in result.stdout, "tables")
    result = run(program, "run", "--rtt-table", "--transport", "auto", "--seconds", "0.05")
    check(result.returncode == 0 and "| Depth | auto (us) | tcp (us) | Ratio |" in result.stdout, "--rtt-table")
    check("auto took " in result.stdout, "what auto took is not said")
    # The line names the transport of "auto", and not the transport that was measured last.
    took = re.search(r"auto took (\w+)", run(program, "run", "--transport", "auto", "--cells", "128x1", "--seconds", "0.05").stdout)
    both = re.search(r"auto took (\w+)", run(program, "run", "--transport", "auto,unix", "--cells", "128x1", "--seconds", "0.05").stdout)
    check(took and both and took[1] == both[1] != "unix", "what unix took is said of auto")


def tls(program):
    """Calls within TLS beside bare OpenSSL, and TLS under another transport."""
    result = run(program, "run", "--transport", "tls", "--cells", "128x2,64Kx2", "--seconds", "0.1")
    if "this build has no TLS" in result.stderr:
        sys.exit(77)
    check(result.returncode == 0 and "tls, pipeline" in result.stdout, "--transport tls")
    result = run(program, "baseline", "--transport", "tls", "--cells", "128x2,300Kx3", "--seconds", "0.1")
    check(result.returncode == 0, "exit status of bare OpenSSL")
    result = run(program, "run", "--tls", "--protocol", "native", "--transport", "tcp,shm", "--cells", "128x2", "--seconds", "0.1")
    check(result.returncode == 0, "--tls")
    result = run(program, "run", "--protection", "encrypted", "--transport", "shm", "--cells", "128x2", "--seconds", "0.1")
    check(result.returncode != 0 and "encrypted_stream" in result.stderr, "--protection encrypted with shm")
    for level in "signed", "sealed":
        result = run(program, "run", "--protection", level, "--transport", "shm", "--cells", "128x2,64Kx2,12Mx1", "--seconds", "0.1")
        check(result.returncode == 0 and "shm" in result.stdout, f"--protection {level}")
    result = run(program, "run", "--tls-kernel", "automatic", "--cells", "128x2,64Kx2", "--seconds", "0.1")
    check(result.returncode == 0 and "64K |" in result.stdout, "--tls-kernel automatic")
    result = run(program, "run", "--tls-kernel", "some", "--cells", "128x2")
    check(result.returncode == 2 and "is none of off" in result.stderr, "--tls-kernel some")
    result = run(program, "run", "--protection", "secret", "--cells", "128x2")
    check(result.returncode == 2 and "is none of authenticated" in result.stderr, "--protection secret")


def two_parts(program):
    """Server and client as they are started on two machines."""
    server = subprocess.Popen([program, "server", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().removeprefix("listening at ").strip()
        with tempfile.TemporaryDirectory() as folder:
            json_file = pathlib.Path(folder, "out.json")
            result = run(program, "client", "--connect", address, "--sizes", "128,64K", "--concurrency", "1,8", "--seconds",
                         "0.2", "--json", str(json_file))
            check(result.returncode == 0, "exit status")
            check_cells(json.loads(json_file.read_text())["cells"],
                        [("pipeline", size, concurrency) for size in (128, 65536) for concurrency in (1, 8)])
        check(server.poll() is None, "the server ended with the client")
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(10)
    check(status == 0, f"the server's exit status is {status}")


def server_death(program):
    """The server dies while it is measured."""
    process, children = start_long_run(program)
    os.kill(children["bench-server"], signal.SIGKILL)
    errors = end_of(process, children)
    check(process.returncode == 1, "exit status")
    check("bench-server ended early: signal 9" in errors, "the reason is not said")


def interrupted(program):
    """Ctrl-C ends all three processes; SIGKILL does too."""
    process, children = start_long_run(program)
    process.send_signal(signal.SIGINT)
    errors = end_of(process, children)
    check(process.returncode == 130 and "interrupted after 0 of 1 cells" in errors, "interrupted")

    process, children = start_long_run(program)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(running, children.values())), "the children ended with a killed parent")


def watchdog(program):
    """A server that is stopped makes the calls fail, and then the run."""
    process, children = start_long_run(program, "--call-timeout", "1")
    os.kill(children["bench-server"], signal.SIGSTOP)
    errors = end_of(process, children, timeout_s=300)
    check(process.returncode == 1, "exit status")
    check("deadline_exceeded" in errors or "lost" in errors, "the reason is not said")


def memory(program):
    """Reads and writes of another process's memory, with the fields that its JSON promises."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "memory.json"
        for transport, op, more, runs in (("tcp", "write", ["--scattered"], 100), ("unix", "read", [], 1),
                                          ("shm", "write", ["--calls"], 1), ("tcp", "write", ["--baseline"], 1)):
            result = run(program, "memory", "--op", op, "--transport", transport, "--block", "4K", "--batch", "100",
                         "--seconds", "0.05", "--server-cpu", "-1", "--client-cpu", "-1", "--json", str(path), *more)
            check(result.returncode == 0, f"{transport} {op}")
            cells = json.loads(path.read_text())["cells"]
            cell = cells[0]
            check(cell["gbit_per_s"] > 0 and cell["post_us"] >= 0 and cell["validated"], f"{transport}: {cell}")
            check(cell["work_requests"] == runs, f"{cell['work_requests']} work requests")
            if "--baseline" in more:
                check(cells[1]["system"] == "sockets" and cells[1]["gbit_per_s"] > 0, f"{cells[1:]}")
        for clients, owners in ((3, 1), (1, 2), (2, 2)):
            result = run(program, "memory", "--op", "write", "--block", "64K", "--seconds", "0.05", "--server-cpu", "-1",
                         "--client-cpu", "-1", "--clients", str(clients), "--owners", str(owners), "--json", str(path))
            check(result.returncode == 0, f"{clients} clients, {owners} owners: {result.stderr}")
            cell = json.loads(path.read_text())["cells"][0]
            check(len(cell["path_gbit_per_s"]) == max(clients, owners) and min(cell["path_gbit_per_s"]) > 0, f"{cell}")
            check(cell["validated"] and f"({clients} clients, {owners} owners)" in result.stdout, result.stdout)
        page_file = pathlib.Path(folder) / "memory.html"
        result = run(program, "report", str(path), "-o", str(page_file))
        check(result.returncode == 0 and "2 to 2" in page_file.read_text(), f"report: {result.stderr}")
    for options, text in ((["--clients", "3", "--owners", "2"], "give as many as --clients, or 1 of either"),
                          (["--clients", "2", "--calls"], "measure one client and one owner")):
        result = run(program, "memory", *options)
        check(result.returncode != 0 and text in result.stderr, f"{options}: {result.stderr}")
    result = run(program, "memory", "--block", "64M", "--batch", "1000")
    check(result.returncode == 1 and "more than 4 GiB" in result.stderr, "too much memory")


CASES = {
    "memory": memory,
    "epoll": lambda program: smoke(program, "epoll"),
    "io_uring": lambda program: smoke(program, "io_uring"),
    "options": options,
    "baseline": baseline,
    "compare": compare,
    "peers": peers,
    "observed": observed,
    "ucx": ucx,
    "report": report,
    "rate": rate,
    "transports": transports,
    "tls": tls,
    "refused": refused,
    "two_parts": two_parts,
    "server_death": server_death,
    "interrupted": interrupted,
    "watchdog": watchdog,
}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in CASES:
        sys.exit(__doc__)
    CASES[sys.argv[2]](sys.argv[1])
