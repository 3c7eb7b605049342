"""Calls between programs over TCP, Unix sockets, shared memory and RDMA. docs/python.md is the guide."""

from . import _interpreter  # First: it raises ImportError in a sub-interpreter.
from . import blocking, services
from ._client import Client, Connecting, Metadata, Remote, Reply, Retry, Transport, connect, declare
from ._errors import DeadlineExceeded, Error, ErrorCode, ErrorScope, Initiator
from ._memory import Batch, Exposed, Place, Region, Registered
from ._server import Context, Server
from ._streams import Reader, StreamingCall, Writer
from ._tls import Certificate, ClientTls, Identity, ServerTls, SharedKey
from ._types import (
    Array,
    Char,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Number,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)

__all__ = [
    "Array", "Batch", "Certificate", "Char", "Client", "ClientTls", "Connecting", "Context", "DeadlineExceeded", "Error",
    "ErrorCode", "ErrorScope", "Exposed", "Float32", "Float64", "Identity", "Initiator", "Int8", "Int16", "Int32", "Int64",
    "Metadata", "Number", "Place", "Reader", "Region", "Registered", "Remote", "Reply", "Retry", "Server", "ServerTls", "SharedKey",
    "StreamingCall", "Transport", "UInt8", "UInt16", "UInt32", "UInt64", "Writer", "blocking", "connect", "declare", "services",
]  # fmt: skip
