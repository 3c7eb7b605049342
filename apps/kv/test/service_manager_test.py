#!/usr/bin/env python3
"""Starts hawser-kv or hawser-block as systemd does, with a notification socket, a watchdog and sockets to listen at:
service_manager_test.py HAWSER_KV, or service_manager_test.py HAWSER_BLOCK block."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
BLOCK = sys.argv[2:] == ["block"]
SERVE = ("serve", "--memory", "1M", *(() if BLOCK else ("--index", "0")))
SECONDS_MAX = 60
# Starts a program with the process's own number in variables, and with these descriptors from 3 on.
LAUNCH = """import fcntl, os, sys
names, descriptors, command = sys.argv[1].split(), [int(word) for word in sys.argv[2].split()], sys.argv[3:]
moved = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 100) for one in descriptors]
for one in descriptors:
    os.close(one)
for place, one in enumerate(moved):
    os.dup2(one, 3 + place)
os.environ.update({name: str(os.getpid()) for name in names})
os.execv(command[0], command)
"""


class Manager:
    """Receives the notifications of one program."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.bind(address)
        self.name = address.replace("\0", "@", 1)

    def next(self):
        return self.socket.recv(4096).decode().split("\n")


@contextlib.contextmanager
def program(*words, command=SERVE, names="", sockets=(), variables=None):
    """A server, by default with a small store. `names`: the variables that have the number of its process."""
    launch = [sys.executable, "-c", LAUNCH, names, " ".join(str(one.fileno()) for one in sockets), PROGRAM, *command, *words]
    with subprocess.Popen(launch, env=os.environ | (variables or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, pass_fds=[one.fileno() for one in sockets]) as process:
        try:
            yield process
        finally:
            process.kill()


def listening(family, address):
    passed = socket.socket(family)
    passed.bind(address)
    passed.listen()
    return passed


def ends(manager, process):
    process.terminate()
    while (last := manager.next()) == ["WATCHDOG=1"]:
        pass
    assert last == ["STOPPING=1"], last
    assert process.wait(SECONDS_MAX) == 0


def notifies(manager):
    """READY comes when it serves, WATCHDOG while its loops run, and STOPPING when it ends."""
    variables = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "40000"}
    with program("--listen", "127.0.0.1:0", names="WATCHDOG_PID", variables=variables) as process:
        ready = manager.next()
        assert ready[0] == "READY=1" and ready[1].startswith("STATUS=serving at 127.0.0.1:"), ready
        assert f"hawser-kv: {ready[1].removeprefix('STATUS=')}\n" == process.stdout.readline()
        for _ in range(3):
            assert manager.next() == ["WATCHDOG=1"]
        ends(manager, process)


def leaves_others_alone(manager):
    """The watchdog and the sockets of another process, such as the parent, are not this one's."""
    variables = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "40000", "WATCHDOG_PID": "1", "LISTEN_FDS": "1", "LISTEN_PID": "1"}
    with program("--listen", "127.0.0.1:0", variables=variables) as process:
        assert manager.next()[0] == "READY=1"
        time.sleep(0.1)  # Two and a half of the watchdog's times.
        process.send_signal(signal.SIGTERM)
        assert manager.next() == ["STOPPING=1"]


def serves_passed_sockets(folder):
    for passed in (listening(socket.AF_INET, ("127.0.0.1", 0)), listening(socket.AF_UNIX, f"{folder}/passed")):
        client = socket.socket(passed.family)
        client.settimeout(SECONDS_MAX)
        client.connect(passed.getsockname())
        client.sendall(b"PING\r\n")  # A client may start the service.
        with (contextlib.closing(passed), contextlib.closing(client),
              program(names="LISTEN_PID", sockets=[passed], variables={"LISTEN_FDS": "1"}) as process):
            answer = client.recv(100)
            assert answer == b"+PONG\r\n", answer
            line = process.stdout.readline()
            address = passed.getsockname()
            assert f"serving at {f'unix:{address}' if isinstance(address, str) else f'127.0.0.1:{address[1]}'} " in line, line
    # A second start of the service uses the file of the first one.
    assert os.path.exists(f"{folder}/passed")


def serves_several_sockets():
    with (contextlib.closing(listening(socket.AF_INET, ("127.0.0.1", 0))) as one,
          contextlib.closing(listening(socket.AF_INET, ("127.0.0.1", 0))) as two,
          program(names="LISTEN_PID", sockets=[one, two], variables={"LISTEN_FDS": "2"})):
        for passed in (one, two):
            with socket.create_connection(passed.getsockname(), SECONDS_MAX) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"


def ignores_a_manager_that_has_gone():
    with program("--listen", "127.0.0.1:0", variables={"NOTIFY_SOCKET": "/nonexistent/notify"}) as process:
        assert "serving at" in process.stdout.readline()
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0


def serves_volumes(manager, folder):
    """`nbd` behind the server takes a Unix socket, and leaves its file."""
    passed, for_nbd = listening(socket.AF_INET, ("127.0.0.1", 0)), listening(socket.AF_UNIX, f"{folder}/nbd")
    server = f"127.0.0.1:{passed.getsockname()[1]}"
    with (contextlib.closing(passed), contextlib.closing(for_nbd),
          program(names="LISTEN_PID", sockets=[passed], variables={"LISTEN_FDS": "1", "NOTIFY_SOCKET": manager.name}) as process):
        assert manager.next() == ["READY=1", f"STATUS=serving 0 volumes at {server}"]
        socket.create_connection(passed.getsockname(), SECONDS_MAX).close()
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(SECONDS_MAX)
        client.connect(for_nbd.getsockname())  # A client may start the service.
        with (contextlib.closing(client),
              program("--connect", server, command=("nbd",), names="LISTEN_PID", sockets=[for_nbd],
                      variables={"LISTEN_FDS": "1", "NOTIFY_SOCKET": manager.name}) as nbd):
            assert manager.next() == ["READY=1", f"STATUS=serving the volumes of {server} for NBD at unix:{folder}/nbd"]
            assert client.recv(8) == b"NBDMAGIC"
            nbd.terminate()
            assert manager.next() == ["STOPPING=1"]
            assert nbd.wait(SECONDS_MAX) == 0
        assert os.path.exists(f"{folder}/nbd")
        process.terminate()
        assert manager.next() == ["STOPPING=1"]
        assert process.wait(SECONDS_MAX) == 0


def notifies_of_volumes(manager, folder):
    """WATCHDOG comes while the loops of `serve` run, also after the rules were read again."""
    rules = f"{folder}/rules"
    open(rules, "w").close()
    variables = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "40000"}
    with program("--listen", "127.0.0.1:0", "--rules", rules, names="WATCHDOG_PID", variables=variables) as process:
        assert manager.next()[0] == "READY=1"
        for _ in range(2):
            assert manager.next() == ["WATCHDOG=1"]
        process.send_signal(signal.SIGHUP)
        assert any("are in use" in line for line in process.stderr)
        assert manager.next() == ["WATCHDOG=1"]
        ends(manager, process)


def notifies_while_rules_change(manager, folder):
    """WATCHDOG also comes while the rules are read again all the time, more often than a notification is due."""
    rules = f"{folder}/rules"
    variables = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "400000"}
    with program("--listen", "127.0.0.1:0", "--rules", rules, names="WATCHDOG_PID", variables=variables) as process:
        assert manager.next()[0] == "READY=1"
        end = time.monotonic() + SECONDS_MAX
        for _ in range(2):
            while not select.select([manager.socket], [], [], 0)[0]:
                assert time.monotonic() < end, "no notification"
                process.send_signal(signal.SIGHUP)
                assert "are in use" in process.stderr.readline()
            assert manager.next() == ["WATCHDOG=1"]
        ends(manager, process)


def main():
    if BLOCK:
        with tempfile.TemporaryDirectory() as folder:
            serves_volumes(Manager(f"{folder}/notify"), folder)
            notifies_of_volumes(Manager(f"{folder}/watched"), folder)
            notifies_while_rules_change(Manager(f"{folder}/changing"), folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        notifies(Manager(f"{folder}/notify"))
        leaves_others_alone(Manager(f"\0hawser-kv-test-{os.getpid()}"))
        serves_passed_sockets(folder)
    serves_several_sockets()
    ignores_a_manager_that_has_gone()


main()
