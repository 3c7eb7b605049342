#!/usr/bin/env python3
"""Uses hawser-block over NBD within TLS with nbdinfo, nbdcopy and qemu-img, and its rules for their certificates:
nbd_tls_test.py HAWSER_BLOCK. Exit status 77: a program is missing."""

import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile

from nbd_test import ENVIRONMENT, MIB, PROGRAM, SECONDS_MAX, SKIPPED, Server, check, run

NEEDED = ("openssl", "nbdinfo", "nbdcopy", "qemu-img", "nbdsh")


class Certificates:
    """An authority, and folders as libnbd and QEMU expect them: of the server, and of two clients."""

    def __init__(self, folder):
        self.folder = folder
        self.make("ca", "-x509", "-addext", "keyUsage=critical,keyCertSign")
        for name in ("localhost", "writer", "reader"):
            self.sign(name)

    def make(self, name, *words):
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem", *words)

    def sign(self, name):
        self.make(name)
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nkeyUsage=critical,digitalSignature\n")
        certificate = self.folder / f"{name}.signed.pem"
        run("openssl", "x509", "-req", "-in", self.folder / f"{name}.pem", "-CA", self.folder / "ca.pem", "-CAkey",
            self.folder / "ca.key", "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate)
        client = self.folder / name
        client.mkdir()
        for source, target in ((self.folder / "ca.pem", "ca-cert.pem"), (certificate, "client-cert.pem"),
                               (self.folder / f"{name}.key", "client-key.pem")):
            shutil.copy(source, client / target)

    def of_server(self, prefix):
        return [f"--{prefix}-cert", self.folder / "localhost.signed.pem", f"--{prefix}-key",
                self.folder / "localhost.key", f"--{prefix}-client-ca", self.folder / "ca.pem"]


def uri(port, client, scheme="nbds"):
    return f"{scheme}://localhost:{port}/disk" + (f"?tls-certificates={client}" if client else "")


def qemu_image(port, client):
    return ["--object", f"tls-creds-x509,id=tls,dir={client},endpoint=client", "--image-opts",
            f"driver=nbd,host=localhost,port={port},export=disk,tls-creds=tls"]


def port_of(server):
    return server.lines[-1].rpartition(":")[2]


def use_clients(port, certificates):
    folder = certificates.folder
    writer, reader = folder / "writer", folder / "reader"
    check("is_read_only: false" in run("nbdinfo", uri(port, writer)), "the writer cannot write")
    check("is_read_only: true" in run("nbdinfo", uri(port, reader)), "the reader can write")
    run("nbdinfo", uri(port, None, "nbd"), status=1)  # Plain text over TCP.
    source = folder / "source.raw"
    source.write_bytes(bytes(range(256)) * 4096 * 32 + bytes(32 * MIB))
    run("nbdcopy", "--connections=4", "--flush", source, uri(port, writer))
    back = folder / "back.raw"
    run("nbdcopy", "--connections=4", uri(port, reader), back)
    check(source.read_bytes() == back.read_bytes(), "the copy differs")
    run("nbdcopy", source, uri(port, reader), status=1)
    run("qemu-img", "convert", "-O", "raw", *qemu_image(port, reader), back)
    check(source.read_bytes() == back.read_bytes(), "the copy of qemu-img differs")


def option(number):
    return b"IHAVEOPT" + struct.pack(">II", number, 0)


STARTTLS = struct.pack(">I", 3) + option(5)


def begin(port):
    client = socket.create_connection(("127.0.0.1", int(port)))
    client.settimeout(SECONDS_MAX)
    return client


def first_message():
    """Returns what a client of TLS sends first."""
    out = ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def cut_handshakes(port):
    """Clients that end within their first message of TLS, or send other bytes. Returns one that stays in its midst."""
    message = first_message()
    for end in range(0, len(message), 29):
        with begin(port) as client:
            client.sendall(STARTTLS + message[:end])
    wrong = message[:60] + bytes(len(message) - 60)
    with begin(port) as client:
        client.sendall(STARTTLS + wrong)
        while client.recv(4096):
            pass
    stays = begin(port)
    stays.sendall(STARTTLS + message[:100])
    return stays


def plain_bytes_before_tls(port):
    """Plain text behind STARTTLS is not taken for bytes within TLS."""
    with begin(port) as client:
        client.sendall(STARTTLS + option(3))
        got = b""
        while part := client.recv(4096):
            got += part
        check(got[18:38] == struct.pack(">QIII", 0x3e889045565a9, 5, 1, 0), f"STARTTLS was not acknowledged: {got}")
        check(b"disk" not in got, "options in plain text were answered after STARTTLS")


WRITER_UNTIL_ITS_END = """
h.pwrite(b"x", 0)
print("connected", flush=True)
try:
    while True:
        h.poll(-1)
        h.pwrite(b"x", 0)
except nbd.Error:
    print("ended", flush=True)
"""


def new_rules(server, port, certificates):
    """A reload takes away a right, also from a client that is connected."""
    script = ["h.set_uri_allow_local_file(True)", f"h.connect_uri({uri(port, certificates.folder / 'writer')!r})",
              WRITER_UNTIL_ITS_END]
    with subprocess.Popen(["nbdsh", *(word for part in script for word in ("-c", part))], stdout=subprocess.PIPE,
                          text=True, env=ENVIRONMENT) as client:
        try:
            check(client.stdout.readline() == "connected\n", "the writer did not connect")
            certificates.rules.write_text("disk read certificate CN=writer\n")
            server.process.send_signal(signal.SIGHUP)
            check(client.stdout.readline() == "ended\n", "the writer is connected after it has lost its right")
        finally:
            client.kill()
    check("is_read_only: true" in run("nbdinfo", uri(port, certificates.folder / "writer")), "the writer can write")
    run("nbdinfo", uri(port, certificates.folder / "reader"), status=1)


def main():
    missing = [program for program in NEEDED if not shutil.which(program)]
    if missing:
        print(f"missing: {', '.join(missing)} (Debian: openssl, libnbd-bin, qemu-utils)")
        return SKIPPED
    if subprocess.run(["nbdsh", "-c", "pass"], capture_output=True, check=False, env=ENVIRONMENT).returncode != 0:
        print("nbdsh does not run (Debian: python3-libnbd)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        certificates = Certificates(pathlib.Path(name))
        certificates.rules = certificates.folder / "rules"
        first = "disk write certificate CN=writer\ndisk read certificate CN=reader\n"
        certificates.rules.write_text(first)
        native = f"unix:{name}/native"
        rules = ["--rules", certificates.rules]
        # The commands of this process are in plain text.
        certificates.rules.write_text(f"{first}disk manage uid {os.getuid()}\n")
        with Server("serve", "--memory", "256M", "--listen", native, "--nbd", "127.0.0.1:0", *rules,
                    *certificates.of_server("tls"), "--tls", "allowed", lines=2) as server:
            run(PROGRAM, "create", "disk", "1M", "--connect", native)
            for client, read_only in (("writer", "false"), ("reader", "true")):
                shown = run("nbdinfo", uri(port_of(server), certificates.folder / client))
                check(f"is_read_only: {read_only}" in shown, f"{client}: {shown}")
            run("nbdinfo", uri(port_of(server), None, "nbd"), status=1)  # Nobody, by the rules.
            server.stop()
        certificates.rules.write_text(first)
        with Server("serve", "--memory", "256M", "--listen", native) as server, \
                Server("nbd", "--connect", native, "--listen", "127.0.0.1:0", *rules,
                       *certificates.of_server("nbd-tls")) as front:
            run(PROGRAM, "create", "disk", "64M", "--connect", native)
            use_clients(port_of(front), certificates)
            plain_bytes_before_tls(port_of(front))
            stays = cut_handshakes(port_of(front))
            new_rules(front, port_of(front), certificates)
            front.stop()
            stays.close()
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
