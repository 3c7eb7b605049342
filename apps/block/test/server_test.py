#!/usr/bin/env python3
"""Starts hawser-block, uses its commands, and kills it: server_test.py HAWSER_BLOCK."""

import json
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

PROGRAM = sys.argv[1]
SECONDS_MAX = 100


def check(holds, text):
    if not holds:
        raise SystemExit(f"server_test.py: {text}")


class Server:
    """A server, and the address of its first line."""

    def __init__(self, *words, listen="127.0.0.1:0", descriptors=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)

        self.process = subprocess.Popen([PROGRAM, "serve", "--listen", listen, *words], stdout=subprocess.PIPE,
                                        text=True, preexec_fn=limit if descriptors else None)
        line = self.process.stdout.readline()
        check(" at " in line, f"the server wrote {line!r}")
        self.address = line.split(" at ")[1].strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        check(self.process.wait(SECONDS_MAX) == 0, f"the server ended with {self.process.returncode}")

    def finished(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words, "--connect", self.address], capture_output=True, text=True,
                              timeout=SECONDS_MAX, check=False)
        check(done.returncode == status, f"{words}: status {done.returncode} instead of {status}: {done.stdout}{done.stderr}")
        return done

    def run(self, *words, status=0):
        done = self.finished(*words, status=status)
        return done.stdout + done.stderr

    def list(self, *words):
        """Returns the output of the command without its log, which has warnings on a busy machine."""
        return self.finished("list", *words).stdout


def use_volumes(folder):
    with Server("--data", str(folder)) as server:
        server.run("create", "a", "8M")
        server.run("create", "b", "1M", "--preallocate")
        check("already" in server.run("create", "a", "8M", status=1), "a second volume of a name was made")
        check("4096" in server.run("create", "c", "1000", status=1), "a size that is not possible was accepted")
        check(server.list() == "a 8388608\nb 1048576\n", "the list is wrong")
        check("--shrink" in server.run("resize", "a", "4M", status=1), "a volume was shrunk without --shrink")
        server.run("resize", "a", "4M", "--shrink")
        server.run("resize", "a", "16M")
        check("16777216" in server.run("info", "a"), "info has not the new size")
        check("4096 blocks verified, 0 damaged" in server.run("scrub", "a"), "scrub has found damage")
        second = subprocess.run([PROGRAM, "serve", "--data", str(folder), "--listen", "127.0.0.1:0"],
                                capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        check(second.returncode == 1 and "another process" in second.stderr, f"two servers: {second}")
        server.kill()


def find_damage(folder):
    with Server("--data", str(folder)) as server:
        check(server.list() == "a 16777216\nb 1048576\n", "the volumes are not there after a kill")
        server.run("remove", "b")
        server.stop()
    with (folder / "a" / "data").open("r+b") as data:
        data.seek(5 * 4096 + 9)
        data.write(b"x")
    with Server("--data", str(folder), "--read-only") as server:
        found = server.run("scrub", "a", status=3)
        check("block 5 is damaged" in found and "1 damaged" in found, f"scrub wrote {found}")
        check("read-only" in server.run("create", "c", "1M", status=1), "a read-only server made a volume")
        server.stop()


def listen_in_the_folder(folder):
    """The socket of a killed server is replaced, also if it is in the folder of the volumes, which a server locks."""
    for _ in range(2):
        with Server("--data", str(folder), listen=f"unix:{folder}/socket") as server:
            check(server.list() == "a 16777216\n", "the volume is not there")
            server.kill()


def use_many_volumes(folder):
    """A soft limit of open files is raised, and a hard one is reported."""
    with Server("--data", str(folder), descriptors=(64, 1024)) as server:
        for number in range(60):
            server.run("create", f"v{number}", "1M")
        server.stop()
    with Server("--data", str(folder), descriptors=(64, 64)) as server:
        check("RLIMIT_NOFILE" in server.run("list"), "a volume that has no descriptors is not reported")


def nbd_size(address, name):
    """The size of a volume, which a server of NBD announces."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), SECONDS_MAX) as client, client.makefile("rb") as reader:
        check(reader.read(16) == b"NBDMAGICIHAVEOPT", "this is not a server of NBD")
        reader.read(2)
        client.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name.encode())
        return struct.unpack(">QH", reader.read(10))[0]


def use_tls(folder):
    """The commands within TLS, with a certificate that openssl makes. A client without TLS is refused."""
    if not shutil.which("openssl"):
        print("server_test.py: openssl is not installed: TLS is not tested")
        return
    certificate, key = str(folder / "server.pem"), str(folder / "server.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "30", "-subj", "/CN=block", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out",
                    certificate], capture_output=True, check=True, timeout=SECONDS_MAX)
    with Server("--memory", "16M", "--tls-cert", certificate, "--tls-key", key) as server:
        server.run("create", "v", "1M", "--tls-ca", certificate)
        check(server.list("--tls-ca", certificate) == "v 1048576\n", "the list within TLS is wrong")
        check("TLS" in server.run("list", status=1), "a client without TLS is not told of it")
        gateway = subprocess.Popen([PROGRAM, "nbd", "--connect", server.address, "--tls-ca", certificate, "--listen",
                                    "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        try:
            line = gateway.stdout.readline().strip()
            check(nbd_size(line.rsplit(" at ", 1)[1], "v") == 1 << 20, "the gateway does not use TLS")
        finally:
            gateway.kill()
            gateway.wait()
        server.stop()


def use_rules(folder):
    """A client does only what a rule allows, and wrong rules prevent a start."""
    rules = folder / "rules"
    rules.write_text("mine manage anyone\nopen read anyone\n", encoding="ascii")
    with Server("--memory", "16M", "--rules", str(rules)) as server:
        server.run("create", "mine", "1M")
        check("--rules" in server.run("create", "open", "1M", status=1), "a volume was made without a rule")
        server.run("remove", "mine")
        server.stop()
    rules.write_text("mine look anyone\n", encoding="ascii")
    wrong = subprocess.run([PROGRAM, "serve", "--memory", "16M", "--rules", str(rules)], capture_output=True, text=True,
                           timeout=SECONDS_MAX, check=False)
    check(wrong.returncode == 2 and "line 1" in wrong.stderr, f"wrong rules: {wrong}")


def measure_a_volume():
    """With --seconds 0, each of the requests at once is made one time."""
    with Server("--memory", "16M") as server:
        server.run("create", "v", "64K")
        written = server.finished("measure", "v", "--write", "--bytes", "64K", "--seconds", "0", "--transport", "tcp").stdout
        check(written.startswith("writes of 65536 bytes, depth 1: ") and "P99" in written, f"measure wrote {written}")
        check("allocated         65536" in server.run("info", "v"), "measure --write has not written the volume")
        read = server.finished("measure", "v", "--depth", "16", "--seconds", "0").stdout
        check(read.startswith("reads of 4096 bytes, depth 16: "), f"measure wrote {read}")
        check("has 65536 bytes" in server.run("measure", "v", "--bytes", "128K", status=1), "a request exceeds the volume")
        check("--depth" in server.run("measure", "v", "--bytes", "32M", "--depth", "33", status=1), "too much memory is used")
        check("absent" in server.run("measure", "absent", status=1), "a volume that is absent was measured")
        server.stop()


def show_pages():
    """The page of the volumes counts requests. The functions of the service are not served over HTTP."""
    with Server("--memory", "16M", "--pages") as server:
        server.run("create", "v", "64K")
        server.run("create", "w", "4K")
        server.run("measure", "v", "--write", "--bytes", "64K", "--seconds", "0")
        server.run("measure", "v", "--depth", "3", "--seconds", "0")
        with urllib.request.urlopen(f"http://{server.address}/volumes?format=json", timeout=SECONDS_MAX) as page:
            v, w = json.load(page)["rows"]
        check(v == {"name": "v", "state": "in use", "size": 65536, "allocated_bytes": 65536, "reads": 3, "read_bytes": 12288,
                    "writes": 1, "written_bytes": 65536, "flushes": 0, "checksum_errors": 0, "known_damaged": 0}, f"the page has {v}")
        check((w["name"], w["writes"]) == ("w", 0), f"the page has {w}")
        for name in ("hawser::block::VolumeService::remove", "hawser.block.VolumeService/remove"):
            request = urllib.request.Request(f"http://{server.address}/{name}", b'["v"]', {"Content-Type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=SECONDS_MAX)
                check(False, "a function of the service was called over HTTP")
            except urllib.error.HTTPError as error:
                check(error.code == 404, f"{name}: {error.code}")
        check(server.list() == "v 65536\nw 4096\n", "a volume is missing")
        server.stop()


def page_names(server, query):
    with urllib.request.urlopen(f"http://{server.address}/volumes?format=json{query}", timeout=SECONDS_MAX) as page:
        return [row["name"] for row in json.load(page)["rows"]]


def show_many_volumes():
    """A page has 100 volumes that its client may read, and says where the next one begins."""
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules"
        rules.write_text("v* manage anyone\n", encoding="ascii")
        names = [f"v{number}" for number in range(100, 201)]
        with Server("--memory", "16M", "--pages", "--rules", str(rules)) as server:
            for name in names[:100]:
                server.run("create", name, "4K")
            check(page_names(server, "") == names[:100], "a page of all volumes is wrong")
            server.run("create", names[100], "4K")
            check(page_names(server, "") == names[:100] + ["further ones: /volumes?after=v199"], "the first page is wrong")
            check(page_names(server, "&after=v199") == ["v200"], "the second page is wrong")
            check(page_names(server, "&after=v1985") == ["v199", "v200"], "a page after a volume that is absent is wrong")
            check(page_names(server, "&after=v200") == [], "a page behind the last volume is not empty")
            server.stop()


def main():
    with tempfile.TemporaryDirectory() as folder:
        volumes = pathlib.Path(folder) / "volumes"
        use_volumes(volumes)
        find_damage(volumes)
        listen_in_the_folder(volumes)
        use_tls(pathlib.Path(folder))
        use_rules(pathlib.Path(folder))
        measure_a_volume()
        show_pages()
        show_many_volumes()
        use_many_volumes(pathlib.Path(folder) / "many")
    with Server("--memory", "16M", "--memory-in-flight", "32M") as server:
        server.run("create", "m", "1G")
        check(server.list() == "m 1073741824\n", "the list of volumes in memory is wrong")
        check("--checksums" in server.run("scrub", "m", status=1), "a volume without checksums was verified")
        server.stop()
    with Server("--memory", "16M", "--checksums") as server:
        server.run("create", "m", "1M")
        check("256 blocks verified, 0 damaged" in server.run("scrub", "m"), "a volume in memory was not verified")
        server.stop()
    wrong = subprocess.run([PROGRAM, "serve"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    check(wrong.returncode == 2, f"serve without a place of volumes: {wrong}")


if __name__ == "__main__":
    main()
