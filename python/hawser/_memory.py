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
        self.region = Region(*fields[:7], [Place(*one) for one in fields[7]])

    def revoke(self) -> None:
        """After this, no client reads or changes the memory."""
        self._memory.revoke()

    def __enter__(self) -> Exposed:
        return self

    def __exit__(self, *_: object) -> None:
        self.revoke()
