#!/usr/bin/env python3
"""Runs the units of packaging/systemd with a systemd of their own, as root of the guest:

  tools/rdma-guest --guest --devices 0 -- python3 -B apps/kv/test/systemd_guest_test.py HAWSER_KV HAWSER_BLOCK

`make kv-systemd` runs that, or one of the programs alone. The systemd of this machine is process 1 of a new PID
namespace, and starts this program again as a service. That starts hawser-kv by its unit and by its socket, restarts it,
and stops it. It also kills the process, and later suspends it, which the watchdog must notice. Then it starts
hawser-block, and `hawser-block nbd` by its socket, kills both, and compares what a client of NBD has written. The
programs and the units are copied to the folders for which the units are made, so use a guest, whose files are lost.
"""

import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

SYSTEMD = "/usr/lib/systemd/systemd"
PROGRAMS = pathlib.Path("/usr/bin")
UNITS = pathlib.Path(__file__).resolve().parents[3] / "packaging" / "systemd"
LOADED = pathlib.Path("/run/systemd/system")
DEFAULTS = pathlib.Path("/etc/default/hawser-kv")
BLOCK_DEFAULTS = pathlib.Path("/etc/default/hawser-block")
RESULT = pathlib.Path("/run/hawser-kv-checked")
SERVICE = "hawser-kv.service"
SOCKET = "hawser-kv.socket"
BLOCK, NBD, NBD_SOCKET = "hawser-block.service", "hawser-block-nbd.service", "hawser-block-nbd.socket"
ALL = (SERVICE, SOCKET, BLOCK, "hawser-block.socket", NBD, NBD_SOCKET)
ADDRESS = ("127.0.0.1", 6379)
SECONDS_MAX = 600
ALL_SECONDS_MAX = 1800  # The clock of an emulated guest is up to four times too fast.
WATCHDOG_SECONDS = 10
EXPOSURE_TENTHS_MAX = 20

CHECK_UNIT = """[Unit]
After=basic.target
FailureAction=exit-force
SuccessAction=exit-force
[Service]
Type=oneshot
ExecStart={python} -B {script} inside
StandardOutput=file:/run/hawser-kv-output
StandardError=inherit
"""


def check(holds, text):
    if not holds:
        raise AssertionError(text)


# ---- Outside: starts systemd ----

def leave_out_other_units():
    """Masks what this machine starts early, which takes minutes where the guest is emulated. The journal is needed."""
    for folder in ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"):
        for unit in pathlib.Path(folder).glob("*.target.wants/*"):
            masked = LOADED / unit.name
            if not unit.name.startswith("systemd-journald") and not masked.is_symlink():
                masked.symlink_to("/dev/null")


def install(programs):
    for program in programs:
        shutil.copy(program, PROGRAMS)
    LOADED.mkdir(parents=True)
    leave_out_other_units()
    for unit in ALL:
        if any(unit.startswith(pathlib.Path(program).name) for program in programs):
            shutil.copy(UNITS / unit, LOADED)
    # The watchdog is shorter, so that the test need not wait for two minutes. All else is as it is installed.
    (LOADED / f"{SERVICE}.d").mkdir()
    (LOADED / f"{SERVICE}.d" / "test.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\nRestartSec=1\n")
    DEFAULTS.write_text("HAWSER_KV_OPTIONS=--memory 1M --index 0 --threads 1\n")
    (LOADED / "check.service").write_text(CHECK_UNIT.format(python=sys.executable, script=pathlib.Path(__file__).resolve()))


def analyze():
    """The units have no mistake that systemd knows, and the services are exposed to little: at most 2.0 of 10."""
    exposure = ["security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_TENTHS_MAX}"]
    loaded = [unit for unit in ALL if (LOADED / unit).exists()]
    services = [[*exposure, str(LOADED / unit)] for unit in loaded if unit.endswith(".service")]
    for words in (["verify", "--man=no", *(str(LOADED / unit) for unit in loaded)], *services):
        ended = subprocess.run(["systemd-analyze", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(ended.returncode == 0, f"systemd-analyze {' '.join(words)}: {ended.stdout}")


def outside(programs):
    install(programs)
    analyze()
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"], check=True)
    command = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=guest",
               "unshare", "--pid", "--mount", "--mount-proc", "--cgroup", "--fork",
               SYSTEMD, "--unit=check.service", "--show-status=no"]
    ended = "systemd ended"
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, timeout=ALL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        ended = f"systemd had not ended after {ALL_SECONDS_MAX} s"
    output = pathlib.Path("/run/hawser-kv-output")
    print(output.read_text() if output.exists() else "", end="")
    check(RESULT.exists(), f"{ended}, and not all checks had passed; tools/rdma-guest --console shows what it wrote")


# ---- Inside: a service of that systemd ----

def systemctl(*words, status=0):
    ended = subprocess.run(["systemctl", "--no-pager", *words], capture_output=True, text=True, timeout=SECONDS_MAX)
    check(ended.returncode == status, f"systemctl {' '.join(words)}: {ended.returncode}: {ended.stdout}{ended.stderr}{journal(words[-1])}")
    return ended.stdout.strip()


def journal(unit=SERVICE):
    return subprocess.run(["journalctl", "--no-pager", "-u", unit, "-n", "40"], capture_output=True, text=True).stdout


def shown(name, unit=SERVICE):
    return systemctl("show", "--property", name, "--value", unit)


def wait_until(holds, what, unit=SERVICE):
    end = time.monotonic() + SECONDS_MAX / 3
    while not holds():
        state = f"{shown('ActiveState', unit)} {shown('Result', unit)}"
        check(time.monotonic() < end, f"{what} did not happen: {state}\n{journal(unit)}")
        time.sleep(0.1)


def ask(*words):
    with socket.create_connection(ADDRESS, SECONDS_MAX) as client:
        client.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
        return client.recv(4096).decode()


def starts_when_it_serves():
    systemctl("start", SERVICE)  # Returns when hawser-kv has notified systemd.
    check(ask("PING") == "+PONG\r\n", "no answer after the start")
    check(shown("StatusText").startswith("serving at"), shown("StatusText"))
    check(ask("SET", "key", "kept") == "+OK\r\n", "SET failed")


def has_a_user_without_capabilities(service=SERVICE, folder="hawser-kv"):
    status = pathlib.Path("/proc", shown("MainPID", service), "status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    user = int(fields["Uid"].split()[0])
    check(61184 <= user <= 65519, f"the user {user} is not one of DynamicUser")
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        check(int(fields[name], 16) == 0, f"{name} is {fields[name]}")
    check(fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", status)
    if folder:
        state = pathlib.Path("/var/lib/private", folder).stat()
        check(state.st_mode & 0o777 == 0o700 and state.st_uid == user, f"{state}")


def keeps_its_log():
    systemctl("restart", SERVICE)
    check(ask("GET", "key") == "$4\r\nkept\r\n", "the value was lost by a restart")
    systemctl("kill", "--signal=KILL", SERVICE)
    wait_until(lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active", "a start after SIGKILL")
    check(ask("GET", "key") == "$4\r\nkept\r\n", "the value was lost by SIGKILL")


def watchdog_ends_a_stopped_process():
    before = shown("MainPID")
    time.sleep(2 * WATCHDOG_SECONDS)
    check(shown("MainPID") == before, f"the watchdog ended a healthy process\n{journal()}")
    systemctl("kill", "--signal=STOP", SERVICE)
    wait_until(lambda: shown("NRestarts") == "2" and shown("ActiveState") == "active", "a start after the watchdog")
    check(shown("MainPID") not in ("0", before), "the process is the same")
    check("Watchdog timeout" in journal(), journal())
    check(ask("GET", "key") == "$4\r\nkept\r\n", "the value was lost by the watchdog")


def stops():
    systemctl("stop", SERVICE)
    check(shown("ActiveState") == "inactive" and shown("Result") == "success", f"{shown('ActiveState')} {shown('Result')}")


def starts_by_its_socket():
    systemctl("start", SOCKET)
    check(shown("ActiveState") == "inactive", "the socket started the service before a client came")
    check(ask("GET", "key") == "$4\r\nkept\r\n", "the first client got no answer")
    wait_until(lambda: shown("ActiveState") == "active", "a start by the socket")
    systemctl("stop", SERVICE)
    check(ask("PING") == "+PONG\r\n", "the socket did not start the service again")
    systemctl("stop", SOCKET, SERVICE)


def refuses_a_wrong_option():
    DEFAULTS.write_text("HAWSER_KV_OPTIONS=--memory nonsense\n")
    systemctl("start", SERVICE, status=1)
    systemctl("stop", SERVICE)


def block(*words):
    ended = subprocess.run([PROGRAMS / "hawser-block", *words], capture_output=True, text=True, timeout=SECONDS_MAX)
    check(ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}{journal(BLOCK)}")
    return ended.stdout


class NbdClient:
    """A client of NBD, as a user who may connect."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(path)
        check(self.receive(18)[:8] == b"NBDMAGIC", "no greeting")
        self.socket.sendall(b"\0\0\0\3IHAVEOPT\0\0\0\1\0\0\0\4disk")
        check(self.receive(10)[:8] == (1 << 20).to_bytes(8, "big"), "the volume has another size")

    def receive(self, size):
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            check(part, f"the connection has ended\n{journal(NBD)}{journal(BLOCK)}")
            got += part
        return got

    def call(self, kind, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, 0, length) + data)
        reply = self.receive(16)
        check(reply[4:8] == bytes(4), f"error {reply[4:8].hex()}\n{journal(NBD)}{journal(BLOCK)}")
        return self.receive(length) if kind == 0 else b""


def serves_volumes_that_stay():
    BLOCK_DEFAULTS.write_text("HAWSER_BLOCK_OPTIONS=--nbd unix:/run/hawser-block/nbd\n")
    systemctl("start", BLOCK)
    check(shown("StatusText", BLOCK).startswith("serving 0 volumes"), shown("StatusText", BLOCK))
    has_a_user_without_capabilities(BLOCK, "hawser-block")
    block("create", "disk", "1M")
    NbdClient("/run/hawser-block/nbd").call(1, 4096, b"k" * 4096)
    systemctl("kill", "--signal=KILL", BLOCK)
    wait_until(lambda: shown("NRestarts", BLOCK) == "1" and shown("ActiveState", BLOCK) == "active", "a start", BLOCK)
    check(NbdClient("/run/hawser-block/nbd").call(0, 4096) == b"k" * 4096, "a write was lost by SIGKILL")


def serves_nbd_by_its_socket():
    systemctl("start", NBD_SOCKET)
    check(shown("ActiveState", NBD) == "inactive", "the socket started the service before a client came")
    client = NbdClient("/run/hawser-block-nbd.sock")
    has_a_user_without_capabilities(NBD, None)
    systemctl("kill", "--signal=KILL", BLOCK)  # The client does not notice it.
    client.call(1, 4096, b"n" * 4096)
    systemctl("kill", "--signal=KILL", NBD)
    check(NbdClient("/run/hawser-block-nbd.sock").call(0, 4096) == b"n" * 4096, "a write was lost by SIGKILL")


def nbd_waits_for_its_server():
    systemctl("stop", BLOCK, NBD)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/run/hawser-block-nbd.sock")
        wait_until(lambda: int(shown("NRestarts", NBD)) >= 3, "starts without a server", NBD)
        systemctl("start", BLOCK)
        check(client.recv(8) == b"NBDMAGIC", "no greeting")
    systemctl("stop", NBD_SOCKET, NBD, BLOCK)
    for unit in (NBD_SOCKET, NBD, BLOCK):
        check(shown("ActiveState", unit) == "inactive" and shown("Result", unit) == "success", unit)


def inside():
    steps = {
        "hawser-kv": (starts_when_it_serves, has_a_user_without_capabilities, keeps_its_log, watchdog_ends_a_stopped_process,
                      stops, starts_by_its_socket, refuses_a_wrong_option),
        "hawser-block": (serves_volumes_that_stay, serves_nbd_by_its_socket, nbd_waits_for_its_server),
    }
    for program, of_program in steps.items():
        for step in of_program if (PROGRAMS / program).exists() else ():
            step()
            print(f"{step.__name__}: ok", flush=True)
    RESULT.touch()


if __name__ == "__main__":
    inside() if sys.argv[1] == "inside" else outside(sys.argv[1:])
