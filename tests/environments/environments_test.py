#!/usr/bin/env python3
"""Runs the programs in environments that machines and service managers have: without standard descriptors, with a log
that nobody reads, with small limits, with system calls that the kernel refuses.

environments_test.py CASE HAWSER HAWSER_BENCH HAWSER_KV REFUSE; exits 77 where the machine lacks what the case needs."""

import contextlib
import fcntl
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

HAWSER, BENCH, KV, REFUSE = sys.argv[2:6]
SECONDS_MAX = 120  # Nothing is expected to take nearly as long.
MIB = 1 << 20


def check(condition, *what):
    if not condition:
        sys.exit("not true: " + " ".join(str(one) for one in what))


def skip(why):
    print(why)
    sys.exit(77)


def run(*words, timeout=SECONDS_MAX, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(words, text=True, timeout=timeout, **options)


def limited(**limits):
    """Returns what sets these limits, such as FSIZE=(soft, hard), in a child."""
    return lambda: [resource.setrlimit(getattr(resource, "RLIMIT_" + name), value) for name, value in limits.items()]


def close_standard_descriptors():
    for fd in (0, 1, 2):
        os.close(fd)


class Connection:
    """A Unix socket. connected is False if nobody listens."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.connected = False
        with contextlib.suppress(OSError):
            self.socket.connect(str(path))
            self.connected = True

    def resp(self, *words):
        """Sends a command of Redis and returns its reply, which is one line or one value."""
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        reply = b""
        while reply.count(b"\r\n") < (2 if reply.startswith(b"$") and not reply.startswith(b"$-1") else 1):
            part = self.socket.recv(65536)
            check(part, "the server has closed the connection after", reply)
            reply += part
        return reply


class Server:
    """A server at a Unix socket, from its start until it answers, and to its end."""

    def __init__(self, words, path, **options):
        self.words, self.path, self.options = words, path, options

    def __enter__(self):
        self.process = subprocess.Popen([*self.words, "--listen", f"unix:{self.path}"], **self.options)
        end = time.monotonic() + SECONDS_MAX
        while not Connection(self.path).connected:
            check(self.process.poll() is None, self.words, "has ended with", self.process.poll())
            check(time.monotonic() < end, self.words, "does not listen")
            time.sleep(0.01)
        return self

    def alive(self):
        return self.process.poll() is None

    def __exit__(self, *_):
        self.process.terminate()
        self.status = self.process.wait(timeout=SECONDS_MAX)


def servers(folder):
    """The servers of all programs."""
    yield [HAWSER, "demo", "serve"], folder / "demo"
    yield [KV, "serve", "--memory", "16M", "--log", str(folder / "log")], folder / "kv"


def garbage(path):
    with contextlib.suppress(OSError):
        peer = Connection(path).socket
        peer.sendall(b"\x00nonsense of no protocol at all\r\n\r\n" * 4)
        peer.recv(4096)


# ---- Cases ----

def closed_descriptors(folder):
    for words, path in servers(folder):
        with Server(words, path, preexec_fn=close_standard_descriptors) as server:
            for fd in (0, 1, 2):
                target = os.readlink(f"/proc/{server.process.pid}/fd/{fd}")
                check(target == "/dev/null", words, "has", target, "as descriptor", fd)
            garbage(path)
            check(server.alive(), words, "has ended")
    for words in ([HAWSER, "--version"], [BENCH, "--version"], [KV, "--version"]):
        done = subprocess.run(words, preexec_fn=close_standard_descriptors, timeout=SECONDS_MAX, check=False)
        check(done.returncode == 0, words, "has ended with", done.returncode)


def closed_descriptors_and_data(folder):
    """Messages of the program do not reach its log of data."""
    words = [KV, "serve", "--memory", "16M", "--log", str(folder / "log"), "--fsync", "always"]
    for descriptors in ((0, 1, 2), (1,), (2,), (0,)):
        keys = [f"{descriptors}:{i}" for i in range(100)]
        with Server(words, folder / "kv", preexec_fn=lambda closed=descriptors: [os.close(fd) for fd in closed]):
            peer = Connection(folder / "kv")
            for key in keys:
                check(peer.resp("SET", key, "value of " + key) == b"+OK\r\n", key)
        with Server(words, folder / "kv"):
            peer = Connection(folder / "kv")
            for key in keys:
                value = peer.resp("GET", key)
                check(b"value of " + key.encode() in value, key, "is lost with", descriptors, "closed:", value)


def log_without_reader(folder):
    for words, path in servers(folder):
        reader, writer = os.pipe()
        with Server(words, path, stderr=writer, stdout=writer) as server:
            os.close(writer)
            os.close(reader)
            for _ in range(3):
                garbage(path)
            check(Connection(path).connected and server.alive(), words, "has ended")
        check(server.status == 0, words, "has ended with", server.status)


def log_that_nobody_reads(folder):
    """A full pipe does not stop a server."""
    for words, path in servers(folder):
        reader, writer = os.pipe()
        with Server(words, path, stderr=writer) as server:
            fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writer, b"." * 4096)
            fcntl.fcntl(writer, fcntl.F_SETFL, 0)
            for _ in range(30):
                garbage(path)
                time.sleep(0.05)
            status = run(HAWSER, "ping", f"unix:{path}", "--count", "1")
            check(status.returncode == 0, words, "does not answer:", status.stderr)
            check(server.alive(), words)
        os.close(reader)
        os.close(writer)


def full_output(folder):
    with open("/dev/full", "w") as full:
        for words in ([HAWSER, "help"], [HAWSER, "--version"], [HAWSER, "help", "--completion", "bash"], [KV, "help"],
                      [KV, "--version"], [BENCH, "help"], [BENCH, "--version"], [HAWSER, "doctor"]):
            done = run(*words, stdout=full)
            check(done.returncode == 1, words, "with a full disk has status", done.returncode)
            check("standard output" in done.stderr and done.stderr.count("\n") == 1, words, done.stderr)
        # Errors are lost, and the exit status stays.
        for words in ([HAWSER, "nothing"], [KV, "serve", "--memory", "1"], [BENCH, "nothing"]):
            done = run(*words, stderr=full)
            check(done.returncode == 2, words, "with a full standard error has status", done.returncode)
    # Servers serve without their output.
    with open("/dev/full", "w") as full:
        for words, path in servers(folder):
            with Server(words, path, stdout=full, stderr=full) as server:
                garbage(path)
                check(server.alive(), words, "has ended")
            check(server.status == 0, words, "has ended with", server.status)
    # A reader that has seen enough.
    done = run("/bin/sh", "-c", f"{HAWSER} help --man | head -n 1")
    check(done.returncode == 0 and done.stderr == "", done.stderr)


def memory_limit(folder):
    """A store that does not fit ends with one line."""
    words = [KV, "serve", "--memory", "4G", "--listen", f"unix:{folder}/kv"]
    done = run(*words, preexec_fn=limited(AS=(2048 * MIB, 2048 * MIB)))
    check(done.returncode == 1, "status", done.returncode, done.stderr)
    check(done.stderr.startswith("hawser-kv: ") and done.stderr.count("\n") == 1, done.stderr)
    with open("/dev/full", "w") as full:
        done = run(*words, stderr=full, preexec_fn=limited(AS=(2048 * MIB, 2048 * MIB)))
        check(done.returncode == 1, "status", done.returncode)
    done = run(*words, stderr=None, preexec_fn=lambda: (limited(AS=(2048 * MIB, 2048 * MIB))(), os.close(2)))
    check(done.returncode == 1, "status", done.returncode)


def exchange(folder, server_before=(), client_before=(), **options):
    """Calls a server with small and large messages, over each transport that it selects. The words before a program
    run it in an environment."""
    large = folder / "large.json"
    large.write_text('"' + "x" * (3 * MIB) + '"')
    with Server([*server_before, HAWSER, "demo", "serve"], folder / "demo", **options) as server:
        address = f"unix:{folder}/demo"
        for transport in ([], ["--transport", "shm"], ["--transport", "shm", "ucx"]):
            for _ in range(2):
                done = run(*client_before, HAWSER, "call", address, "demo::echo", f"@{large}", *transport, **options)
                check(done.returncode == 0, transport, "a large call has failed:", done.returncode, done.stderr[-2000:])
                check(len(done.stdout) > 3 * MIB, transport, "the reply has", len(done.stdout), "bytes")
            done = run(*client_before, HAWSER, "call", address, "demo::echo", '"small"', *transport, **options)
            check(done.returncode == 0 and done.stdout == '"small"\n', transport, done.returncode, done.stderr[-2000:])
        check(server.alive(), "the server has ended")


def file_size_limit(folder):
    exchange(folder)
    limit = limited(FSIZE=(64 * 1024, 64 * 1024))
    large = folder / "large.json"
    with Server([HAWSER, "demo", "serve"], folder / "demo", preexec_fn=limit, stdout=subprocess.DEVNULL) as server:
        for transport in ([], ["--transport", "shm"]):
            done = run(HAWSER, "call", f"unix:{folder}/demo", "demo::echo", f"@{large}", *transport, preexec_fn=limit)
            check(done.returncode == 0, transport, done.returncode, done.stderr[-2000:])
        check(server.alive(), "the server has ended")


def small_stack(folder):
    limit = limited(STACK=(64 * 1024, 64 * 1024))
    exchange(folder, preexec_fn=limit)
    words = [KV, "serve", "--memory", "16M", "--threads", "2", "--log", str(folder / "log")]
    with Server(words, folder / "kv", preexec_fn=limit) as server:
        check(Connection(folder / "kv").resp("SET", "a", "b") == b"+OK\r\n")
        check(server.alive(), "the store has ended")
    check(server.status == 0, "SIGTERM has ended the store with status", server.status)


def closed_terminal(folder):
    """SIGHUP ends a server in order, and not if nohup has started it."""
    for words, path in servers(folder):
        for ignored in (False, True):
            action = signal.SIG_IGN if ignored else signal.SIG_DFL
            with Server(words, path, preexec_fn=lambda action=action: signal.signal(signal.SIGHUP, action)) as server:
                server.process.send_signal(signal.SIGHUP)
                if not ignored:
                    status = server.process.wait(timeout=SECONDS_MAX)
                    check(status == 0, words, "has ended with", status)
            check(server.status == 0, words, "has ended with", server.status)
            check(not path.exists(), words, "has left", path)


def refused(call, error):
    def case(folder):
        words = (REFUSE, call, error)
        probe = run(*words, "/bin/true")
        if probe.returncode == 77:
            skip(probe.stderr)
        (folder / "both").mkdir()
        (folder / "server").mkdir()
        (folder / "client").mkdir()
        exchange(folder / "both", words, words)
        exchange(folder / "server", words)
        exchange(folder / "client", (), words)
        if call == "process_vm_readv":  # UCX would select reads of memory, and fail in the first large call.
            done = run(*words, BENCH, "run", "--transport", "ucx", "--sizes", "1M", "--concurrency", "1", "--seconds", "0.2")
            check(done.returncode == 0 or "can't be loaded" in done.stderr, done.stdout, done.stderr)
        with Server([*words, KV, "serve", "--memory", "16M", "--log", str(folder / "log")], folder / "kv") as server:
            check(Connection(folder / "kv").resp("SET", "a", "b") == b"+OK\r\n")
            check(server.alive(), "the store has ended")
    return case


def without_ipv6(folder):
    words = (REFUSE, "socket", "EAFNOSUPPORT")
    probe = run(*words, "/bin/true")
    if probe.returncode == 77:
        skip(probe.stderr)
    serve = (*words, KV, "serve", "--memory", "16M", "--listen")
    failed = run(*serve, "[::]:0")
    check(failed.returncode == 1 and "cannot listen on [::]:0" in failed.stderr and "0.0.0.0" in failed.stderr, failed)
    for address, host in (("*:0", "0.0.0.0"), ("localhost:0", "127.0.0.1")):
        with subprocess.Popen([*serve, address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            line = server.stdout.readline()
            server.terminate()
        check(f"serving at {host}:" in line, line)


CASES = {one.__name__: one for one in (closed_descriptors, closed_descriptors_and_data, log_without_reader,
                                       log_that_nobody_reads, full_output, memory_limit, file_size_limit, small_stack, closed_terminal,
                                       without_ipv6)}
for refused_call, with_error in (("process_vm_readv", "EPERM"), ("madvise", "EPERM"), ("getrandom", "ENOSYS"),
                                 ("memfd_create", "EPERM"), ("io_uring_setup", "EPERM"), ("pidfd_open", "ENOSYS"),
                                 ("membarrier", "EPERM"), ("sched_setaffinity", "EPERM"), ("inotify_init1", "EPERM")):
    CASES[f"refused_{refused_call}"] = refused(refused_call, with_error)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        CASES[sys.argv[1]](pathlib.Path(name))
