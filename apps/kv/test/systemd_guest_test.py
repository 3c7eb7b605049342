#!/usr/bin/env python3
"""Runs the units of packaging/systemd with a systemd of their own, as root of the guest:

  tools/rdma-guest --guest --devices 0 -- python3 -B apps/kv/test/systemd_guest_test.py HAWSER_KV

`make kv-systemd` runs that. The systemd of this machine is process 1 of a new PID namespace, and starts this program
again as a service. That starts hawser-kv by its unit and by its socket, restarts it, and stops it. It also kills the
process, and later suspends it, which the watchdog must notice. The program and the units are copied to the folders for
which the units are made, so use a guest, whose files are lost.
"""

import pathlib
import shutil
import socket
import subprocess
import sys
import time

SYSTEMD = "/usr/lib/systemd/systemd"
PROGRAM = pathlib.Path("/usr/bin/hawser-kv")
UNITS = pathlib.Path(__file__).resolve().parents[3] / "packaging" / "systemd"
LOADED = pathlib.Path("/run/systemd/system")
DEFAULTS = pathlib.Path("/etc/default/hawser-kv")
RESULT = pathlib.Path("/run/hawser-kv-checked")
SERVICE = "hawser-kv.service"
SOCKET = "hawser-kv.socket"
ADDRESS = ("127.0.0.1", 6379)
SECONDS_MAX = 600
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


def install(program):
    shutil.copy(program, PROGRAM)
    LOADED.mkdir(parents=True)
    leave_out_other_units()
    for unit in (SERVICE, SOCKET):
        shutil.copy(UNITS / unit, LOADED)
    # The watchdog is shorter, so that the test need not wait for two minutes. All else is as it is installed.
    (LOADED / f"{SERVICE}.d").mkdir()
    (LOADED / f"{SERVICE}.d" / "test.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\nRestartSec=1\n")
    DEFAULTS.write_text("HAWSER_KV_OPTIONS=--memory 1M --index 0 --threads 1\n")
    (LOADED / "check.service").write_text(CHECK_UNIT.format(python=sys.executable, script=pathlib.Path(__file__).resolve()))


def analyze():
    """The units have no mistake that systemd knows, and the service is exposed to little: at most 2.0 of 10."""
    units = [str(LOADED / unit) for unit in (SERVICE, SOCKET)]
    exposure = ["security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_TENTHS_MAX}", units[0]]
    for words in (["verify", "--man=no", *units], exposure):
        ended = subprocess.run(["systemd-analyze", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(ended.returncode == 0, f"systemd-analyze {' '.join(words)}: {ended.stdout}")


def outside(program):
    install(program)
    analyze()
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"], check=True)
    command = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=guest",
               "unshare", "--pid", "--mount", "--mount-proc", "--cgroup", "--fork",
               SYSTEMD, "--unit=check.service", "--show-status=no"]
    ended = "systemd ended"
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        ended = f"systemd had not ended after {SECONDS_MAX} s"
    output = pathlib.Path("/run/hawser-kv-output")
    print(output.read_text() if output.exists() else "", end="")
    check(RESULT.exists(), f"{ended}, and not all checks had passed; tools/rdma-guest --console shows what it wrote")


# ---- Inside: a service of that systemd ----

def systemctl(*words, status=0):
    ended = subprocess.run(["systemctl", "--no-pager", *words], capture_output=True, text=True, timeout=SECONDS_MAX)
    check(ended.returncode == status, f"systemctl {' '.join(words)}: {ended.returncode}: {ended.stdout}{ended.stderr}{journal()}")
    return ended.stdout.strip()


def journal():
    return subprocess.run(["journalctl", "--no-pager", "-u", SERVICE, "-n", "40"], capture_output=True, text=True).stdout


def shown(name, unit=SERVICE):
    return systemctl("show", "--property", name, "--value", unit)


def wait_until(holds, what):
    end = time.monotonic() + SECONDS_MAX / 3
    while not holds():
        check(time.monotonic() < end, f"{what} did not happen: {shown('ActiveState')} {shown('Result')}\n{journal()}")
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


def has_a_user_without_capabilities():
    status = pathlib.Path("/proc", shown("MainPID"), "status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    user = int(fields["Uid"].split()[0])
    check(61184 <= user <= 65519, f"the user {user} is not one of DynamicUser")
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        check(int(fields[name], 16) == 0, f"{name} is {fields[name]}")
    check(fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", status)
    log = pathlib.Path("/var/lib/private/hawser-kv")
    check(log.stat().st_mode & 0o777 == 0o700 and log.stat().st_uid == user, f"{log.stat()}")


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


def inside():
    for step in (starts_when_it_serves, has_a_user_without_capabilities, keeps_its_log, watchdog_ends_a_stopped_process, stops,
                 starts_by_its_socket, refuses_a_wrong_option):
        step()
        print(f"{step.__name__}: ok", flush=True)
    RESULT.touch()


if __name__ == "__main__":
    inside() if sys.argv[1] == "inside" else outside(sys.argv[1])
