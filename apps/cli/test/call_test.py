#!/usr/bin/env python3
"""Runs the commands that call a server against `hawser demo serve`. call_test.py PROGRAM CASE; exits 77 where the build
lacks a protocol."""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

PROGRAM = sys.argv[1]
PROTO = pathlib.Path(__file__).resolve().parent.parent / "demo" / "shop.proto"


def run(*arguments, text=None):
    """The standard error is without the lines about a loop that a busy machine did not run."""
    result = subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, text=True, timeout=60)
    result.stderr = "".join(line for line in result.stderr.splitlines(True) if "(LoopOptions::blocked_max is" not in line)
    return result


def expect(arguments, status, out=None, error=None, text=None):
    """Runs the command. `out` is its whole standard output, `error` a part of the standard error."""
    result = run(*arguments, text=text)
    if result.returncode != status or (out is not None and result.stdout != out) or (error or "") not in result.stderr:
        sys.exit(f"{' '.join(arguments)}: status {result.returncode} instead of {status}\n{result.stdout}\n{result.stderr}")
    return result


class Server:
    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "demo", "serve", *self.options], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().rpartition(" ")[2].strip()
        return self.address

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def has_protobuf(address):
    return "demo.ShopService/Order" in run("list", address).stdout


def skip(why):
    print(why)
    sys.exit(77)


def functions():
    """Plain functions by their description."""
    with Server() as address:
        expect(("call", address, "demo::echo", '"hi"'), 0, '"hi"\n')
        expect(("call", address, "demo::echo", '["hi"]'), 0, '"hi"\n')
        expect(("call", address, "demo::echo", '["a, b"]'), 0, '"a, b"\n')
        expect(("call", address, "demo::echo", "[1,2]"), 2, "", "[0]: string")
        expect(("call", address, "demo::echo", "-"), 0, '"from stdin"\n', text='"from stdin"')
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('"from a file"')
            file.flush()
            expect(("call", address, "demo::echo", "@" + file.name), 0, '"from a file"\n')
        expect(("call", address, "demo::echo", "@/nowhere"), 2, "", "/nowhere")
        result = expect(("call", address, "demo::echo", "7"), 2, "", "string: give")
        assert "demo::echo(string)\n  returns string\n" in result.stderr, result.stderr
        expect(("call", address, "demo::echo", '"a', ), 2, "", "invalid JSON")
        expect(("call", address, "demo::echo"), 2, "")
        expect(("call", address, "demo::echo", '"a"', '"b"'), 2, "", "one JSON argument")
        expect(("call", address, "demo::nothing"), 5, "", "no method demo::nothing")
        result = expect(("call", address, "demo::nothing", "--json"), 5)
        assert json.loads(result.stdout)["error"]["code"] == "invalid_argument", result.stdout
        expect(("call", address), 2)
        assert "demo::echo" in expect(("list", address), 0).stdout.splitlines()
        assert "demo::echo" in json.loads(expect(("list", address, "--json"), 0).stdout)
        expect(("describe", address, "demo::echo"), 0, "demo::echo(string)\n  returns string\n")
        described = expect(("describe", address, "hawser::schema::list"), 0).stdout
        assert "struct hawser::schema::Names {\n  names: list of string\n  more: bool\n}" in described, described
        assert "demo::echo(string)" in expect(("describe", address), 0).stdout
        expect(("describe", address, "demo"), 0, "demo::echo(string)\n  returns string\n")
        expect(("describe", address, "dem"), 5, "", "no method dem:")
        expect(("health", address), 0, "serving\n")
        expect(("health", address, "--json"), 0, '{"health":"serving"}\n')
        expect(("health", address, "--protocol", "http"), 0, "serving\n")
        expect(("call", address, "demo::echo", '"hi"', "--protocol", "http"), 0, '"hi"\n')
        expect(("call", address, "demo::nothing", '"hi"', "--protocol", "http"), 5, "", "404")
        expect(("list", address, "--protocol", "http"), 2, "")
        assert expect(("ping", address, "--count", "3", "--interval", "0"), 0).stdout.startswith("tcp: 3 answers, min ")
        report = json.loads(expect(("ping", address, "--count", "3", "--interval", "0", "--json"), 0).stdout)
        assert report[0]["transport"] == "tcp" and report[0]["latency_us"]["count"] == 3, report
        expect(("ping", address, "--count", "0"), 2)
    # A port on which nobody listens, and which no other program gets meanwhile.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for command in (("call", address, "demo::echo", '""'), ("list", address), ("health", address), ("ping", address)):
            expect(command, 3, "", "hawser " + command[0])


def names():
    """A name in place of an address: the commands take an endpoint that they can reach."""
    with Server() as address, tempfile.TemporaryDirectory() as folder, contextlib.closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))  # Refuses connections: it does not listen.
        down = f"127.0.0.1:{closed.getsockname()[1]}"
        up = "127.0.0.1:" + address.rpartition(":")[2]
        assert run("list", f"list:{down},{up}").stdout == run("list", up).stdout
        endpoints = pathlib.Path(folder, "endpoints")
        endpoints.write_text(f"{down} priority=1\n{up}\n")
        method = next(line for line in run("list", up).stdout.splitlines() if "::" in line)
        assert run("describe", f"file:{endpoints}", method).stdout == run("describe", up, method).stdout
        expect(("health", f"file:{endpoints}"), 0, "serving\n")
        expect(("ping", f"list:{up}", "--count", "2"), 0)
        expect(("top", f"list:{down},{up}", "--once"), 0)
        expect(("health", f"list:{down},{up}", "--protocol", "http"), 0, "serving\n")
        expect(("call", f"list:{down},{up}", "demo::echo", '"hi"', "--protocol", "http"), 0, '"hi"\n')
        refused = run("list", down)
        assert refused.returncode != 0
        expect(("list", f"list:{down}"), refused.returncode, error=refused.stderr)
        for name in "list:nothing", f"file:{folder}/missing":
            failed = run("list", name, "--timeout", "1")
            assert failed.returncode != 0 and name.partition(":")[2] in failed.stderr, failed.stderr


def load():
    """Calls at intended times and in a closed loop. The number of calls does not depend on the machine."""
    with Server() as address:
        echo = ("load", address, "demo::echo", '"hi"')
        report = json.loads(expect((*echo, "--rate", "1000", "--duration", "0.2", "--json"), 0).stdout)
        assert report["sent"] == report["latency_us"]["count"] == 200 and not report["failed"], report
        report = json.loads(expect((*echo, "--rate", "1000", "--duration", "0.2", "--ramp", "0.2", "--json"), 0).stdout)
        assert report["sent"] == 100, report
        report = json.loads(expect((*echo, "--concurrency", "4", "--duration", "0.1", "--connections", "2", "--json"), 0).stdout)
        assert report["latency_us"]["count"] >= 4, report
        assert "answers/s" in expect((*echo, "--rate", "100", "--duration", "0.05"), 0).stdout
        expect(echo, 2, "", "--rate")
        expect((*echo, "--rate", "1", "--concurrency", "1"), 2, "", "--rate")
        expect(("load", address, "demo::nothing", "--rate", "1"), 5, "")


class Answering:
    """A server that answers the first bytes of each connection with the same bytes. Nothing: it keeps silent."""

    def __init__(self, answer):
        self.answer = answer

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self):
        with contextlib.suppress(OSError):
            kept = []
            while True:
                kept.append(self.listener.accept()[0])
                kept[-1].recv(65536)
                kept[-1].sendall(self.answer)

    def __exit__(self, *_):
        self.listener.close()


def read_until(terminal, text):
    """Reads what a program draws until `text` is there."""
    drawn = b""
    while text not in drawn:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, drawn
        drawn += os.read(terminal, 65536)
    return drawn


def top():
    """One view, views that follow each other, a terminal, and servers that are none of Hawser's."""
    quick = ("--interval", "0.05", "--timeout", "60")
    with Server() as address:
        for _ in range(3):
            expect(("call", address, "demo::echo", '"hi"'), 0)
        report = json.loads(expect(("top", address, "--once", "--json", *quick), 0).stdout)
        method = next(one for one in report["methods"] if one["method"] == "demo::echo")
        assert method["calls"] == 3 and method["errors"] == 0 and method["calls_per_second"] == 0, report
        assert report["status"] == "serving" and report["connections"] and len(report["loops"]) == 1, report
        text = expect(("top", address, "--once", *quick), 0).stdout
        assert text.startswith(address + "  serving") and "demo::echo" in text and "\x1b" not in text, text
        expect(("top", address, "--interval", "0"), 2)
        expect(("top", address, "--sort", "beauty"), 2)

        with subprocess.Popen([PROGRAM, "top", address, "--json", *quick], stdout=subprocess.PIPE, text=True) as views:
            for _ in range(3):
                assert json.loads(views.stdout.readline())["status"] == "serving"
            views.send_signal(signal.SIGINT)
            views.stdout.read()
            assert views.wait(timeout=60) == 0, views.returncode

        process, terminal = pty.fork()
        if process == 0:
            os.environ["TERM"] = "xterm"
            os.execv(PROGRAM, [PROGRAM, "top", address, *quick])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        drawn = read_until(terminal, b"demo::echo")
        assert b"\x1b[?1049h" in drawn, drawn
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 3, 20, 0, 0))
        read_until(terminal, b"\x1b[H" + f"{address}  serving"[:19].encode() + b"~")
        os.write(terminal, b"\x03")  # Ctrl-C
        read_until(terminal, b"\x1b[?1049l")
        _, status = os.waitpid(process, 0)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 0, status

    with Server("--pages", "off") as address:
        expect(("top", address, "--once"), 1, "", "enable_pages()")
    for answer, status, error in ((b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 1, "is it another server?"),
                                  (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 1, "not a Hawser server"),
                                  (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nno\x1b\nno", 1, "refuses /status: no?"),
                                  (b"SSH-2.0-Other\r\n\r\n", 1, "is it another server?"),
                                  (b"", 4, "does not answer /status")):
        with Answering(answer) as address:
            result = expect(("top", address, "--once", "--timeout", "0.5" if status == 4 else "60"), status, "", error)
            assert len(result.stderr.splitlines()) == 1, result.stderr
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        expect(("top", f"127.0.0.1:{silent.getsockname()[1]}", "--once"), 3, "", "does not answer")


def wait_for(path):
    end = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < end, path
        time.sleep(0.01)


def limited(which, limit, *arguments):
    """Runs the command with a limit of its resources. Writing beyond that of a file is an error, not a signal."""
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, restore_signals=False,
                          preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))


def endless_file(address):
    """A file that has no end and is not a recording is refused before memory is full."""
    refused = limited(resource.RLIMIT_DATA, 1 << 30, "replay", "/dev/zero", address)
    assert refused.returncode == 2 and "is not a recording" in refused.stderr, refused


def full_disk(address, folder):
    """A file that can't grow keeps its complete records."""
    path = f"{folder}/full"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        recording = pool.submit(limited, resource.RLIMIT_FSIZE, 30000, "record", address, path, "--seconds", "60")
        wait_for(path)
        for _ in range(2):
            expect(("call", address, "demo::echo", json.dumps("x" * 20000)), 0)
        ended = recording.result(timeout=60)
    assert ended.returncode == 1 and "File too large" in ended.stderr, ended
    assert 20000 < os.path.getsize(path) < 30000, os.path.getsize(path)
    expect(("replay", path, address, "--speed", "100", "--timeout", "60"), 0)


def recorded(address, path, calls, *options):
    """Makes the calls while hawser record runs, and returns its report."""
    with subprocess.Popen([PROGRAM, "record", address, path, "--seconds", "600", "--timeout", "60", "--json", *options],
                          stdout=subprocess.PIPE, text=True) as recording:
        wait_for(path)
        calls()
        recording.send_signal(signal.SIGINT)
        report = json.loads(recording.stdout.read())
        assert recording.wait(timeout=60) == 0, report
    return report


def record_streams(folder, address):
    """Streams of all kinds are recorded and replayed, and another server's items are noticed."""
    if not has_protobuf(address):
        return
    shop = "demo.ShopService/"

    def calls():
        expect(("call", address, shop + "Watch", '{"events": 3, "intervalMs": 10}'), 0)
        expect(("call", address, shop + "Buy", '{"name": "a"}', '{"name": "b", "count": 2}'), 0)
        expect(("call", address, shop + "Chat", '{"name": "a"}', '{"name": "b"}'), 0)

    path = f"{folder}/streams"
    report = recorded(address, path, calls)
    assert report["streams"] == 3 and report["truncated"] == 0 and report["skipped"] == 0, report
    replay = ("replay", path, address, "--speed", "10", "--timeout", "60", "--compare")
    again = json.loads(expect((*replay, "--json"), 0).stdout)
    assert again["streams"] == 3 and again["truncated"] == 0 and again["compared"] >= 3, again
    assert again["different"] == 0 and again["changed_outcomes"] == {}, again
    text = expect(replay, 0).stdout
    assert "3 of the calls have streams" in text and "all outcomes and replies" in text, text
    none = recorded(address, f"{folder}/none", calls, "--no-streams")
    assert none["streams"] == 0 and none["skipped"] == 3, none

    # A stream that has not ended when the recording ends is recorded and replayed in part.
    def watch():
        watching.append(subprocess.Popen([PROGRAM, "call", address, shop + "Watch",
                                          '{"events": 100000, "intervalMs": 20}', "--timeout", "600"],
                                         stdout=subprocess.PIPE, text=True))
        for _ in range(3):
            watching[0].stdout.readline()

    watching = []
    part = f"{folder}/part"
    report = recorded(address, part, watch)
    with watching[0]:
        watching[0].kill()
    assert report["streams"] == 1 and report["truncated"] == 1, report
    text = expect(("replay", part, address, "--timeout", "60", "--compare"), 0).stdout
    assert "1 of these were recorded in part" in text, text


def crc32c(content):
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def hostile_streams(folder, address):
    """A replay in part ends with its call, and takes items that were not recorded."""
    if not has_protobuf(address):
        return
    header = b"HAWSREC\n" + struct.pack("<I", 2)
    for name, items in (("late", ((0, b"\xff\xff"), (10**15, b""))),  # Malformed; then one after days.
                        ("long", ((0, b"\n\x64" + b"a" * 100),) * 9000)):
        events = b"".join(struct.pack("<BqII", 0, at, len(item), 0) + item for at, item in items)
        content = struct.pack("<qqHHIQ", 0, 0, 0, 0, 0, 0)
        for part in (b"demo.ShopService/Chat", b"hawser", b"", b"", b"", b""):
            content += struct.pack("<I", len(part)) + part
        content += struct.pack("<II", 1, len(events)) + events
        length = struct.pack("<I", len(content))
        path = pathlib.Path(folder, name)
        checksums = [struct.pack("<I", crc32c(part)) for part in (header, length + content)]
        path.write_bytes(header + checksums[0] + length + checksums[1] + content)
        report = json.loads(expect(("replay", str(path), address, "--timeout", "50", "--json"), 0).stdout)
        assert report["truncated"] == 1 and report["ended_early"] == (name == "late"), report


def ended_while_the_server_does_not_answer():
    """Ctrl-C does not wait for the timeout of a request in flight."""
    with socket.socket() as silent, tempfile.TemporaryDirectory() as folder:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen([PROGRAM, "record", address, f"{folder}/calls", "--timeout", "3600"],
                              stderr=subprocess.PIPE, text=True) as recording:
            with silent.accept()[0]:  # The connection stays open.
                recording.send_signal(signal.SIGINT)
                assert recording.wait(timeout=60) == 4, recording.returncode
                assert "before this command was ended" in recording.stderr.read()


def record():
    """A recording, its replay, differences that the replay finds, and damaged files."""
    with (tempfile.TemporaryDirectory() as folder,
          Server("--recorder", "--token-file", f"{folder}/token") as address):
        path = f"{folder}/calls"
        expect(("record", address, path), 1, "", "Hawser-Token")
        os.environ["HAWSER_TOKEN"] = pathlib.Path(folder, "token").read_text().strip()
        with subprocess.Popen([PROGRAM, "record", address, path, "--seconds", "600", "--timeout", "60", "--json"], stdout=subprocess.PIPE,
                              text=True) as recording:
            wait_for(path)  # From now on calls are recorded.
            for text in ("one", "two", "x" * 20000):
                expect(("call", address, "demo::echo", json.dumps(text)), 0)
            expect(("record", address, f"{folder}/other", "--seconds", "0"), 1, "", "another recording")
            recording.send_signal(signal.SIGINT)
            report = json.loads(recording.stdout.read())
            assert recording.wait(timeout=60) == 0 and report["recorded"] >= 3 and report["dropped"] == 0, report
        assert os.path.getsize(path) == report["bytes"] and os.stat(path).st_mode & 0o77 == 0, report
        replay = ("replay", path, address, "--speed", "100", "--timeout", "60")
        again = json.loads(expect((*replay, "--compare", "--json"), 0).stdout)
        assert again["sent"] == report["recorded"] and again["compared"] >= 3 and again["different"] == 0, again
        assert "all outcomes are the recorded ones" in expect(replay, 0).stdout
        shared = expect((*replay, "--compare", "--transport", "shm"), 0).stdout
        assert "all outcomes and replies are the recorded ones" in shared, shared
        with Server() as other:
            # The connections are spread over the endpoints of a name: the second one is of the second endpoint.
            both = f"list:{other},{address}"
            spread = recorded(address, f"{folder}/spread", lambda: expect(
                ("replay", path, both, "--connections", "2", "--speed", "100", "--timeout", "60"), 0))
            assert 1 <= spread["recorded"] < report["recorded"], (spread, report)
        expect(("replay", path, address, "--speed", "101"), 2, "", "--speed")
        expect(("record", address, path), 2, "", "it exists")
        whole = pathlib.Path(path).read_bytes()
        flipped = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
        for name, content, error in (("short", whole[:-1], "offset"), ("flipped", flipped, "offset 16"),
                                     ("other", b"GIF89a", "is not a recording"), ("empty", whole[:16], "has no calls")):
            pathlib.Path(folder, name).write_bytes(content)
            expect(("replay", f"{folder}/{name}", address), 2, "", error)
        expect(("replay", "/nowhere", address), 2, "", "/nowhere")
        endless_file(address)
        full_disk(address, folder)
        record_streams(folder, address)
        hostile_streams(folder, address)
    with Server() as address:
        expect(("record", address, "/nowhere/file"), 1, "", "PagesOptions::recorder")
    ended_while_the_server_does_not_answer()
    with Answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") as address, tempfile.TemporaryDirectory() as folder:
        expect(("record", address, f"{folder}/calls"), 1, "", "something else than records")


def services():
    """Methods of .proto files over the native protocol, with streams of all kinds."""
    with Server() as address:
        if not has_protobuf(address):
            skip("this build has no protobuf")
        all_kinds(address, ())
        described = expect(("describe", address, "demo.ShopService/Order"), 0).stdout
        assert "OrderRequest" in described, described


def all_kinds(address, options):
    shop = "demo.ShopService/"
    result = expect(("call", address, shop + "Order", '{"item": "rope", "count": 2}', *options), 0)
    assert json.loads(result.stdout)["text"] == "2 x rope", result.stdout
    expect(("call", address, shop + "Order", '{"count": 0}', *options), 1, "", "count is 0")
    expect(("call", address, shop + "Order", '{"nothing": 0}', *options), 2, "", "nothing")
    expect(("call", address, shop + "Nothing", "{}", *options), 5, "")
    expect(("call", address, shop + "Watch", '{"events": 2}', *options), 0,
           '{"number":1,"text":"event 1 of 2"}\n{"number":2,"text":"event 2 of 2"}\n')
    expect(("call", address, shop + "Watch", '{"events": 2, "intervalMs": 60000}', "--timeout", "2", *options), 4, "")
    expect(("call", address, shop + "Buy", '{"name": "a"}', '{"name": "b", "count": 2}', *options), 0,
           '{"items":3,"names":["a","b"]}\n')
    expect(("call", address, shop + "Chat", "-", *options), 0,
           '{"number":1,"text":"a is in stock"}\n{"number":2,"text":"b is in stock"}\n',
           text='{"name": "a"}\n\n{"name": "b"}\n')
    expect(("call", address, shop + "Chat", *options), 0, "")


def grpc():
    """Methods over gRPC by reflection, and with a .proto file."""
    with Server() as address:
        if not has_protobuf(address):
            skip("this build has no protobuf")
        over = ("--protocol", "grpc")
        if run("health", address, *over).returncode == 2:
            skip("this build has no gRPC")
        all_kinds(address, over)
        all_kinds(address, (*over, "--proto", str(PROTO)))
        names = expect(("list", address, *over), 0).stdout.splitlines()
        assert "demo.ShopService/Order" in names and "grpc.health.v1.Health/Check" in names, names
        expect(("call", address, "grpc.health.v1.Health/Check", "{}", *over), 0, '{"status":"SERVING"}\n')
        assert "rpc Watch" in expect(("describe", address, "demo.ShopService", *over), 0).stdout
        assert "string item = 1;" in expect(("describe", address, "demo.OrderRequest", *over), 0).stdout
        expect(("describe", address, "demo.Nothing", *over), 5, "")
        expect(("health", address, *over), 0, "serving\n")
        expect(("health", address, "--service", "nothing", *over), 1, "", "nothing")
        expect(("call", address, "demo.ShopService/Order", "{}", *over, "--proto", "/nowhere.proto"), 2, "", "nowhere")


def baidu_std():
    with Server() as address:
        if not has_protobuf(address):
            skip("this build has no protobuf")
        over = ("--protocol", "baidu_std")
        order = ("call", address, "demo.ShopService/Order", '{"item": "rope", "count": 2}', *over)
        result = run(*order, "--proto", str(PROTO))
        if "this build of hawser has no baidu_std" in result.stderr:
            skip("this build has no baidu_std")
        assert json.loads(result.stdout)["text"] == "2 x rope", result
        expect(order, 2, "", "--proto FILE")


if __name__ == "__main__":
    cases = (functions, names, load, top, record, services, grpc, baidu_std)
    {case.__name__: case for case in cases}[sys.argv[2]]()
