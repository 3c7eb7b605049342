"""The client for scripts and threads without an event loop."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Iterable, Optional, TypeVar, Union, cast, overload

from . import _hawser
from ._client import Metadata, Remote, Reply, client_options, not_a_method, require_no_streams
from ._errors import Error, ErrorCode
from ._memory import Region, Registered, target_of
from ._tls import ClientTls

T = TypeVar("T")


class _Slot:
    """Stands for a future: receives one outcome on the thread that waits."""

    def __init__(self) -> None:
        self.ended = False
        self.value: Any = None
        self.error: Optional[BaseException] = None

    def done(self) -> bool:
        return self.ended

    def set_result(self, value: Any) -> None:
        self.ended, self.value = True, value

    def set_exception(self, error: BaseException) -> None:
        self.ended, self.error = True, error


_threads = threading.local()


def _forget_hubs() -> None:
    """In a child of fork(): the parent's hubs have descriptors that the parent reads too."""
    global _threads
    _threads = threading.local()


os.register_at_fork(after_in_child=_forget_hubs)


def _hub() -> _hawser.Hub:
    hub = getattr(_threads, "hub", None)
    if hub is None:
        hub = _threads.hub = _hawser.Hub()
    return cast(_hawser.Hub, hub)


def _wait(hub: _hawser.Hub, slot: _Slot, work: _hawser.Work) -> Any:
    try:
        while not slot.ended:
            hub.wait(-1)  # Returns early on a signal, whose handler runs before the next line.
            hub.drain()
    except BaseException:
        slot.ended = True
        work.cancel()
        raise
    if slot.error is not None:
        raise slot.error
    return slot.value


class Client:
    """One connection to a server. Any number of threads share it. When the connection is lost, the next call connects
    again."""

    def __init__(self, core: _hawser.ClientCore, address: str) -> None:
        self._core = core
        self._described: dict[str, _hawser.Method] = {}
        self.address = address

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Calls in flight end with an error."""
        hub, slot = _hub(), _Slot()
        with contextlib.suppress(Error):  # It is closed, the interpreter ends, or this is a child of fork().
            _wait(hub, slot, self._core.close(hub, slot))

    def _start(
        self,
        method: Union[str, Remote[Any]],
        arguments: tuple[Any, ...],
        timeout: Optional[float],
        attachment: Any,
        into: Any,
        metadata: Optional[Metadata],
        whole: bool,
        idempotent: bool,
    ) -> Any:
        hub = _hub()
        found = method.method if isinstance(method, Remote) else self._method(hub, method)
        require_no_streams(found)
        slot = _Slot()
        work = self._core.call(hub, slot, found, arguments, timeout, attachment, into, metadata, whole, idempotent, None)
        try:
            return _wait(hub, slot, work)
        except Error as error:
            if error.code in (ErrorCode.SIGNATURE_MISMATCH, ErrorCode.UNKNOWN_METHOD) and isinstance(method, str):
                self._described.pop(method, None)  # The server may have changed.
            raise

    def read(self, region: Region, into: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        """Reads memory that the server exposes: hawser.Client.read()."""
        self._access(region, into, offset, timeout, False)

    def write(self, region: Region, memory: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        """Writes into memory that the server exposes: hawser.Client.write()."""
        self._access(region, memory, offset, timeout, True)

    def _access(self, region: Region, memory: Any, offset: int, timeout: Optional[float], writes: bool) -> None:
        hub, slot = _hub(), _Slot()
        target = target_of(memory)
        _wait(hub, slot, _hawser.access_memory(self._core, hub, slot, region, target, offset, timeout, writes))

    def register(self, memory: Any) -> Registered:
        """Registers memory with the RDMA devices of this client: hawser.Client.register()."""
        hub, slot = _hub(), _Slot()
        return Registered(_wait(hub, slot, _hawser.register_memory(self._core, hub, slot, memory)))

    def _method(self, hub: _hawser.Hub, name: object) -> _hawser.Method:
        if not isinstance(name, str):
            raise not_a_method(name)
        found = self._described.get(name)
        if found is None:
            slot = _Slot()
            found = cast(_hawser.Method, _wait(hub, slot, self._core.describe(hub, slot, name)))
            self._described[name] = found
        return found

    @overload
    def call(
        self,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Any: ...
    @overload
    def call(
        self,
        method: Remote[T],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> T: ...
    def call(
        self,
        method: Union[str, Remote[Any]],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Any:
        """Calls a method and returns its result: hawser.Client.call()."""
        result = self._start(method, arguments, timeout, attachment, into, metadata, False, idempotent)
        return result

    @overload
    def call_with_reply(
        self,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Reply[Any]: ...
    @overload
    def call_with_reply(
        self,
        method: Remote[T],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Reply[T]: ...
    def call_with_reply(
        self,
        method: Union[str, Remote[Any]],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Reply[Any]:
        """Like call(), and returns the attachment and the metadata of the reply too."""
        result = self._start(method, arguments, timeout, attachment, into, metadata, True, idempotent)
        return cast("Reply[Any]", result)


def connect(
    address: str,
    *,
    connect_timeout: float = 5,
    call_timeout: Optional[float] = 30,
    transports: Iterable[str] = ("shm",),
    rdma: bool = False,
    message_bytes_max: int = 64 << 20,
    calls_in_flight_max: int = 4096,
    tls: Optional[ClientTls] = None,
) -> Client:
    """Connects, with the options of hawser.connect()."""
    core = _hawser.make_client(
        address=address,
        **client_options(
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            transports=transports,
            rdma=rdma,
            message_bytes_max=message_bytes_max,
            calls_in_flight_max=calls_in_flight_max,
            tls=tls,
        ),
    )
    client = Client(core, address)
    hub, slot = _hub(), _Slot()
    try:
        _wait(hub, slot, core.connect(hub, slot))
    except BaseException:
        client.close()
        raise
    return client
