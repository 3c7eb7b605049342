"""TLS of clients and servers, and who a caller is. docs/security.md has the meaning of each option."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal, Optional, Union

Protection = Literal["authenticated", "signed_messages", "sealed_messages", "encrypted_stream"]
Policy = Literal["required", "required_from_hosts", "allowed"]
File = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Files in PEM format. The certificates of the issuers follow the own one, without the root."""

    certificate_file: File
    key_file: File
    """A file, or the URI of a key in a PKCS #11 token."""
    ocsp_file: File = ""
    """For servers: the responder's answer about this certificate, in DER format."""


@dataclasses.dataclass(frozen=True)
class SharedKey:
    """A key that both sides have, in place of certificates. ``file`` has 64 to 128 hexadecimal digits."""

    name: str
    file: File


@dataclasses.dataclass(frozen=True)
class ClientTls:
    """TLS of a client: ``hawser.connect(address, tls=hawser.ClientTls(ca_file="ca.pem"))``. Files are read when the
    client connects, and changed files are used by later connections."""

    ca_file: File = ""
    """Issuers of server certificates. Empty: those of the system."""
    certificate: Optional[Certificate] = None
    """For servers that demand one."""
    shared_key: Optional[SharedKey] = None
    """The server must have this key, and no certificate is accepted instead."""
    server_name: str = ""
    """The name that the server's certificate must have. Empty: the host of the address."""
    crl_files: Sequence[File] = ()
    ocsp_required: bool = False
    protection: Protection = "authenticated"
    tls12: bool = True
    accept_any_server: bool = False
    """For experiments only: anybody in the network may be the peer."""


@dataclasses.dataclass(frozen=True)
class ServerTls:
    """TLS of a server: ``hawser.Server(tls=hawser.ServerTls([hawser.Certificate("server.pem", "server.key")]))``."""

    certificates: Sequence[Certificate] = ()
    shared_keys: Sequence[SharedKey] = ()
    client_ca_file: File = ""
    """Issuers of client certificates. Empty: clients are not asked for any."""
    client_certificate_required: bool = True
    crl_files: Sequence[File] = ()
    policy: Policy = "required"
    protection: Protection = "authenticated"
    tls12: bool = True


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who the caller of a handler has proved to be. It is false if nothing is proved."""

    kind: str
    """"none", "unix_peer", "certificate", "token" or "shared_key"."""
    pid: int
    uid: Optional[int]
    """The user and the group of the process, with the kind unix_peer."""
    gid: Optional[int]
    subject: str
    """Such as "CN=storage-7", or the name of the shared key."""
    issuer: str
    alt_names: tuple[str, ...]
    """The names of the certificate, such as "DNS:a.example"."""
    spiffe_id: str
    claims: tuple[tuple[str, str], ...]
    text: str
    """One line for logs."""

    def __bool__(self) -> bool:
        return self.kind != "none"
