#!/usr/bin/env python3
"""Uses hawser-block over NBD with programs of others: nbd_test.py HAWSER_BLOCK CASE.

The cases are the functions below. Each one runs against volumes in memory, volumes on disk, and the command nbd in
front of them. Exit status 77: the program of the case is missing.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
SECONDS_MAX = 200
SKIPPED = 77
MIB = 1 << 20


def check(holds, text):
    if not holds:
        raise SystemExit(f"nbd_test.py: {text}")


# The Python of the system first, for which distributions install modules.
ENVIRONMENT = {**os.environ, "PATH": "/usr/bin:" + os.environ.get("PATH", "")}


def run(*words, status=0):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=SECONDS_MAX,
                          check=False, env=ENVIRONMENT)
    check(done.returncode == status, f"{words}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Server:
    """A process of hawser-block whose output has so many lines before it serves."""

    def __init__(self, *words, lines=1):
        self.process = subprocess.Popen([PROGRAM, *(str(word) for word in words)], stdout=subprocess.PIPE, text=True)
        self.lines = [self.process.stdout.readline().strip() for _ in range(lines)]
        check(" at " in self.lines[-1], f"hawser-block wrote {self.lines}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.process.terminate()
        check(self.process.wait(SECONDS_MAX) == 0, f"hawser-block ended with {self.process.returncode}")


def uri(socket, name="disk"):
    return f"nbd+unix:///{name}?socket={socket}"


def with_servers(use):
    """Calls use(socket, folder) with volumes "disk" of 64 MiB and "small" of 1 MiB, of each kind of server."""
    for place in (["--memory", "256M"], ["--data"]):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            native = f"unix:{folder}/native"
            words = place + ([folder / "volumes"] if place == ["--data"] else [])
            with Server("serve", *words, "--listen", native, "--nbd", f"unix:{folder}/nbd", lines=2) as server:
                run(PROGRAM, "create", "disk", "64M", "--connect", native)
                run(PROGRAM, "create", "small", "1M", "--connect", native)
                use(folder / "nbd", folder)
                with Server("nbd", "--connect", native, "--listen", f"unix:{folder}/remote", "--wait",
                            "event") as remote:
                    use(folder / "remote", folder)
                    remote.stop()
                if place == ["--data"]:  # Volumes in memory have no checksums.
                    check("0 damaged" in run(PROGRAM, "scrub", "disk", "--connect", native), "blocks are damaged")
                server.stop()


def qemu_io(socket, _):
    def commands(*given, status=0):
        return run("qemu-io", "-f", "raw", *(word for command in given for word in ("-c", command)), uri(socket),
                   status=status)

    written = commands("write -P 7 1000 5000", "read -P 7 1000 5000", "write -P 9 4096 1", "read -P 7 4097 1900",
                       "write -P 3 1M 32M", "read -P 3 1M 32M", "write -f -P 4 40M 512", "read -P 4 40M 512",
                       "write -z 2M 1M", "read -P 0 2M 1M", "write -z -u 4M 1M", "read -P 0 4M 1M",
                       "discard 8M 4M", "flush", "aio_write -P 1 50M 64k", "aio_write -P 2 51M 64k", "aio_flush",
                       "read -P 1 50M 64k", "read -P 2 51M 64k")
    check("error" not in written and "fail" not in written.lower(), written)


def qemu_img(socket, folder):
    source = folder / "source.raw"
    source.write_bytes(b"\x11" * MIB + bytes(MIB) + bytes(range(256)) * 4096 + bytes(61 * MIB))
    run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-W", source, uri(socket))
    check("identical" in run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri(socket)), "not identical")
    states = run("qemu-img", "map", "--output=json", "-f", "raw", uri(socket))
    check('"zero": true' in states and '"zero": false' in states, f"no zeros or no data: {states}")


def nbdinfo(socket, _):
    shown = run("nbdinfo", uri(socket))
    for expected in ("export-size: 67108864", "can_flush: true", "can_fua: true", "can_multi_conn: true",
                     "can_trim: true", "can_zero: true", "can_fast_zero: true", "block_size_minimum: 1",
                     "block_size_preferred: 4096", "block_size_maximum: 33554432", "base:allocation"):
        check(expected in shown, f"{expected} is not in {shown}")
    listed = run("nbdinfo", "--list", uri(socket, ""))
    check('export="disk"' in listed and 'export="small"' in listed, listed)
    check("zero" in run("nbdinfo", "--map", uri(socket, "small")), "no map")
    run("nbdinfo", uri(socket, "absent"), status=1)


def nbdcopy(socket, folder):
    source = folder / "copied.raw"
    source.write_bytes(bytes(3 * MIB) + b"\x77" * (5 * MIB) + bytes(48 * MIB) + bytes(range(256)) * 4096 * 8)
    run("nbdcopy", "--connections=4", "--requests=16", "--flush", source, uri(socket))
    back = folder / "back.raw"
    run("nbdcopy", "--connections=4", uri(socket), back)
    check(source.read_bytes() == back.read_bytes(), "the copy differs")


def fio(socket, folder):
    run("fio", "--ioengine=nbd", f"--uri={uri(socket)}", "--size=64M", "--direct=1", "--output", folder / "fio",
        "--verify=crc32c", "--verify_fatal=1", "--name=mixed", "--rw=randwrite", "--bsrange=4k-128k", "--iodepth=32",
        "--io_size=32M", "--fsync=64", "--verify_backlog=64", "--verify_state_save=0")


SHELL = """
def expect(number, action):
    try:
        action()
    except nbd.Error as error:
        assert error.errnum == number, error
    else:
        assert False, number

import errno
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri(URI)
assert h.get_structured_replies_negotiated() and h.can_meta_context("base:allocation")
size = h.get_size()
h.pwrite(b"x" * 4096, 0, nbd.CMD_FLAG_FUA)
assert h.pread(1, 4095) == b"x" and h.pread(4096, 0, nbd.CMD_FLAG_DF) == b"x" * 4096
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)
h.zero(8192, 4096, nbd.CMD_FLAG_FAST_ZERO)
expect(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.trim(8192, 0, nbd.CMD_FLAG_FUA)
assert h.pread(8192, 0) == bytes(8192)
h.flush()
found = []
h.pwrite(b"y", 100000)
h.block_status(size, 0, lambda name, offset, entries, error: found.append((name, entries)))
assert len(found) == 1 and found[0][0] == "base:allocation", found
entries = found[0][1]
assert entries[:2] == [98304, 3] and entries[2:4] == [4096, 0], entries
found = []
h.block_status(1000, 98304, lambda name, offset, entries, error: found.append(entries), nbd.CMD_FLAG_REQ_ONE)
assert found == [[1000, 0]], found
expect(errno.EINVAL, lambda: h.pread(2, size - 1))
expect(errno.EINVAL, lambda: h.pread(1, 2**63))
expect(errno.ENOSPC, lambda: h.pwrite(b"zz", size - 1))
expect(errno.ENOSPC, lambda: h.zero(4096, size))
expect(errno.EINVAL, lambda: h.block_status(2, size - 1, lambda *a: 0))
assert h.pread(1, 100000) == b"y"
h.shutdown()
simple = nbd.NBD()
simple.set_request_structured_replies(False)
simple.connect_uri(URI)
assert not simple.get_structured_replies_negotiated()
assert simple.pread(1, 100000) == b"y"
cookies = {simple.aio_pread(nbd.Buffer(4096), i * 4096) for i in range(64)}
while cookies:
    simple.poll(-1)
    cookies = {cookie for cookie in cookies if not simple.aio_command_completed(cookie)}
simple.shutdown()
"""


def nbdsh(socket, _):
    run("nbdsh", "-c", f"URI = {uri(socket, 'small')!r}", "-c", SHELL)


CASES = {"qemu-io": qemu_io, "qemu-img": qemu_img, "nbdinfo": nbdinfo, "nbdcopy": nbdcopy, "fio": fio, "nbdsh": nbdsh}


def main():
    case = sys.argv[2]
    usable = shutil.which(case) is not None
    if usable and case == "nbdsh":
        usable = subprocess.run([case, "-c", "pass"], capture_output=True, check=False, env=ENVIRONMENT).returncode == 0
    if not usable:
        print(f"the program {case} is missing (Debian: fio, qemu-utils, libnbd-bin, python3-libnbd)")
        return SKIPPED
    with_servers(CASES[case])
    return 0


if __name__ == "__main__":
    sys.exit(main())
