"""TLS between a client and a server in Python, and the identity of the caller."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import subprocess
from collections.abc import Coroutine
from typing import Any

import pytest

import hawser


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 500))


def make_certificate(folder: pathlib.Path, name: str) -> tuple[str, str]:
    """A certificate that signs itself, for 127.0.0.1, and its key."""
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key


def make_server(**options: Any) -> hawser.Server:
    server = hawser.Server(**options)

    @server.method
    async def who(context: hawser.Context) -> tuple[str, str, list[str]]:
        identity = context.identity
        return (identity.kind, identity.subject, list(identity.alt_names))

    return server


def test_certificates_of_both_sides(tmp_path: pathlib.Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl is not installed")
    certificate, key = make_certificate(tmp_path, "server")
    own, own_key = make_certificate(tmp_path, "storage-7")

    async def main() -> None:
        tls = hawser.ServerTls([hawser.Certificate(certificate, key)], client_ca_file=own)
        async with make_server(tls=tls) as server:
            given = hawser.ClientTls(ca_file=certificate, certificate=hawser.Certificate(own, own_key))
            async with hawser.connect(server.address, tls=given) as client:
                assert await client.call("who") == ("certificate", "CN=storage-7", ["IP:127.0.0.1"])

            def block() -> tuple[str, str, list[str]]:
                with hawser.blocking.connect(server.address, tls=given) as blocking:
                    result: tuple[str, str, list[str]] = blocking.call("who")
                    return result

            assert (await asyncio.to_thread(block))[1] == "CN=storage-7"
            for refused in (None, hawser.ClientTls(ca_file=certificate), hawser.ClientTls(ca_file=own)):
                with pytest.raises(hawser.Error):
                    async with hawser.connect(server.address, tls=refused) as client:
                        await client.call("who")

    run(main())


@pytest.mark.parametrize("transports", [["shm"], []])
def test_a_shared_key(tmp_path: pathlib.Path, transports: list[str]) -> None:
    for name in ("key", "other"):
        (tmp_path / name).write_text(os.urandom(32).hex(), encoding="ascii")
    key = hawser.SharedKey("store", str(tmp_path / "key"))

    async def main() -> None:
        async with make_server(tls=hawser.ServerTls(shared_keys=[key])) as server:
            tls = hawser.ClientTls(shared_key=key, protection="sealed_messages")
            async with hawser.connect(server.address, tls=tls, transports=transports) as client:
                assert await client.call("who") == ("shared_key", "store", [])
            wrong = hawser.ClientTls(shared_key=hawser.SharedKey("store", str(tmp_path / "other")))
            with pytest.raises(hawser.Error):
                await hawser.connect(server.address, tls=wrong)

    run(main())


def test_wrong_options_are_refused(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        absent = tmp_path / "absent.pem"
        server = make_server(tls=hawser.ServerTls([hawser.Certificate(absent, absent)]))
        with pytest.raises(hawser.Error, match="absent.pem"):
            await server.start()
        await server.stop()
        wrong: Any = "some"
        with pytest.raises(ValueError, match='protection is one of "authenticated", .* not "some"'):
            make_server(tls=hawser.ServerTls(protection=wrong))
        with pytest.raises(ValueError, match='policy is one of "required", .* not "some"'):
            make_server(tls=hawser.ServerTls(policy=wrong))
        for name, value, kind in [
            ("ca_file", 1, "int"),
            ("crl_files", "ab", "str"),
            ("crl_files", absent, "PosixPath"),
            ("crl_files", [1], "int"),
            ("tls12", "no", "str"),
        ]:
            options: dict[str, Any] = {name: value}
            with pytest.raises(TypeError, match=f"hawser: {name} is a .*, not {kind}"):
                await hawser.connect("127.0.0.1:1", tls=hawser.ClientTls(**options))
        with pytest.raises(AttributeError, match="ca_file"):
            await hawser.connect("127.0.0.1:1", tls=wrong)

    run(main())


def test_the_process_behind_a_unix_socket(tmp_path: pathlib.Path) -> None:
    seen = []

    async def main() -> None:
        server = hawser.Server(f"unix:{tmp_path / 'socket'}")

        @server.method
        async def ask(context: hawser.Context) -> bool:
            seen.append(context.identity)
            return bool(context.identity)

        async with server, hawser.connect(server.address, transports=[]) as client:
            assert await client.call("ask")

    run(main())
    assert (seen[0].kind, seen[0].pid, seen[0].uid, seen[0].gid) == ("unix_peer", os.getpid(), os.geteuid(), os.getegid())
    assert seen[0].text.startswith("unix uid")
