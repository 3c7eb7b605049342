"""The server of tests/world, and helpers of the programs that run foreign clients against it."""

import contextlib
import pathlib
import subprocess
import sys
import time

SECONDS_MAX = 120  # Detects hangs only: nothing is expected to take nearly as long.


def check(condition, *what):
    if not condition:
        sys.exit("not true: " + " ".join(str(one) for one in what))


def soon(condition, *what):
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        check(time.monotonic() < end, "within", SECONDS_MAX, "s:", *what)
        time.sleep(0.02)


def make_certificate(folder):
    """Returns the files of a certificate for localhost and of its key."""
    certificate, key = str(pathlib.Path(folder) / "certificate.pem"), str(pathlib.Path(folder) / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key,
                    "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Server:
    """The server from its start to its end. `address` stays the same when it is started again."""

    def __init__(self, program, *tls, address="127.0.0.1:0"):
        self.words, self.address, self.process = [program], address, None
        self.tls = tls
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.words, self.address, *self.tls], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        check(line.startswith("listening on "), "the server says", repr(line))
        self.address = line.split()[-1]
        self.port = int(self.address.rpartition(":")[2])

    def begin_stop(self):
        self.process.terminate()

    def wait(self):
        status = self.process.wait(timeout=SECONDS_MAX)
        check(status == 0, "the server ended with", status)

    def stop(self):
        self.begin_stop()
        self.wait()

    def resident_mib(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
            if self.process.poll() is None:
                self.process.kill()
        if failure[0] is None:
            check(self.process.returncode == 0, "the server ended with", self.process.returncode)
