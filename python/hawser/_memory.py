"""Memory of a server that clients access without a handler."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Optional

from . import _hawser
from ._types import Array, UInt32, UInt64


@dataclasses.dataclass(frozen=True)
class Place:
    """A region on one device."""

    domain: UInt64
    address: UInt64
    key: UInt32


@dataclasses.dataclass(frozen=True)
class Region:
    """The handle of memory that a server exposes: a value that calls carry, hawser::RemoteRegion of C++. Whoever has it
    may access the memory, so that it is as confidential as the memory."""

    bytes: UInt64
    readable: bool
    writable: bool
    owner: UInt64
    slot: UInt32
    generation: UInt32
    capability: UInt64 = dataclasses.field(repr=False)
    places: Annotated[list[Place], Array(16)] = dataclasses.field(repr=False)


class Batch:
    """Many blocks that are read or written together: ``await client.read(region, batch)``. It is prepared once and may
    be used any number of times, also by several accesses at a time. Over RDMA, accesses at the same time need memory
    that Client.register() has registered.

    memory  Local memory (buffer protocol), which neither moves nor is freed while the batch exists.
    local   The place of each block in it, in bytes.
    remote  The place of each block in the region, in bytes. The ``offset`` of an access is added.
    bytes   The length of each block, or one length for all.

    Sequences of int are converted; arrays of int64 or uint64 (numpy, array) are copied, which is faster.
    """

    def __init__(self, memory: Any, local: Any, remote: Any, bytes: Any) -> None:
        self._core = _hawser.MemoryBatch(memory=memory, local=local, remote=remote, bytes=bytes)

    def move(self, remote: Any) -> None:
        """Gives the blocks other places in the region, in the same order. No access may be in progress."""
        self._core.move(remote)

    def __len__(self) -> int:
        return self._core.blocks

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks."""
        return self._core.bytes


class Registered:
    """Memory that is registered with the RDMA devices of a client, which Client.register() returns. Reads, writes and
    batches with memory within it do not register it again. It neither moves nor is freed until close(), the end of a
    ``with`` block, or the end of this object."""

    def __init__(self, core: _hawser.RegisteredMemory) -> None:
        self._core = core

    @property
    def registered(self) -> bool:
        """True if a device has registered the memory. Otherwise it is ordinary memory."""
        return self._core.registered

    def close(self) -> None:
        """Deregisters the memory. No access to it may be in progress."""
        self._core.close()

    def __enter__(self) -> Registered:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def target_of(memory: Any) -> Any:
    """The memory, or the batch, of an access."""
    return memory._core if isinstance(memory, Batch) else memory


class Exposed:
    """Memory that clients may access until revoke(), the end of a ``with`` block, or the end of this object."""

    def __init__(self, core: _hawser.ServerCore, memory: Any, access: str, lease: Optional[float]) -> None:
        if access not in ("read", "write", "read_write"):
            raise ValueError(f'hawser: access is "read", "write" or "read_write", not {access!r}')
        self._server = core  # Exists as long as its memory is exposed.
        self._memory = _hawser.expose_memory(
            server=core, memory=memory, readable=access != "write", writable=access != "read", lease=lease
        )
        fields = self._memory.fields
        self.region: Region = Region(*fields[:7], [Place(*one) for one in fields[7]])

    def revoke(self) -> None:
        """After this, no client reads or changes the memory."""
        self._memory.revoke()

    def __enter__(self) -> Exposed:
        return self

    def __exit__(self, *_: object) -> None:
        self.revoke()
