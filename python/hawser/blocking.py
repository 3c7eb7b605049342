"""The client for scripts and threads without an event loop."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, AsyncIterator, Callable, Generic, Iterable, Optional, TypeVar, Union, cast, overload

from . import _hawser
from ._client import (
    Metadata,
    Remote,
    Reply,
    Retry,
    Transport,
    client_options,
    forget_if_stale,
    not_a_method,
    require_no_streams,
    require_streams,
)
from ._errors import Error
from ._memory import Region, Registered, target_of
from ._streams import StreamState, ended_because, left_early
from ._tls import ClientTls

T = TypeVar("T")
Item = TypeVar("Item")


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


WAIT_S = 1.0
"""A signal that arrives just before a thread waits does not wake it. Its handler runs after this time."""


def _wait_once(hub: _hawser.Hub) -> None:
    hub.wait(int(1000 * WAIT_S))  # Returns early on a signal, whose handler runs before the next line.
    hub.drain()


def _wait(hub: _hawser.Hub, slot: _Slot, work: _hawser.Work) -> Any:
    try:
        while not slot.ended:
            _wait_once(hub)
    except BaseException:
        slot.ended = True
        work.cancel()
        raise
    if slot.error is not None:
        raise slot.error
    return slot.value


class _Streams(StreamState):
    """The streams of a call that threads wait for, and its outcome. One thread reads, and one writes."""

    def __init__(
        self, core: _hawser.CallStreams, hub: _hawser.Hub, on_error: Callable[[BaseException], None]
    ) -> None:
        super().__init__(core)
        self._on_error = on_error
        self._hub = hub  # This call alone has it: its threads take turns in waiting for it.
        self._changed = threading.Condition()
        self._waits = False  # A thread waits for the hub. The others wait until it has delivered something.
        self._sent_events = 0
        self.outcome = _Slot()
        self.work: Optional[_hawser.Work] = None

    def _on_sent(self, error: Optional[BaseException]) -> None:
        super()._on_sent(error)
        self._sent_events += 1

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            waits = False
            try:
                with self._changed:
                    if self._waits:
                        self._changed.wait(WAIT_S)
                        continue
                    waits = self._waits = not ready()
                if waits:
                    _wait_once(self._hub)
            finally:
                if waits:
                    self._waits = False  # First, since the handler of a signal may raise in the next line.
                    with self._changed:
                        self._changed.notify_all()

    def done(self) -> bool:
        return self.outcome.done()

    def set_result(self, value: Any) -> None:
        self.outcome.set_result(value)
        self.finish(ended_because(None))

    def set_exception(self, error: BaseException) -> None:
        self.outcome.set_exception(error)
        self._on_error(error)
        self.finish(error)

    def next(self) -> Any:
        if not self._readable():
            with self._only("_reading"):
                self._ask()
                self._wait_until(self._readable)
        return self._take(StopIteration)

    def write(self, item: Any) -> None:
        if not self._enqueue(item):
            with self._only("_writing"):
                self._wait_until(self._has_room)
                self._require_writable()

    def drain(self) -> None:
        before = self._sent_events  # Another thread may deliver the event at once.
        while self._write_error is None and not self._core.flush():
            self._wait_until(lambda: self._sent_events != before)
            before = self._sent_events
        self._require_writable()

    def result(self) -> Any:
        self.end()
        self._wait_until(self.done)
        if self.outcome.error is not None:
            raise self.outcome.error.with_traceback(None)
        return self.outcome.value

    def cancel(self) -> None:
        """Cancels the call, unless it has ended, and waits until nothing of this process refers to its memory."""
        if self.done() or self.work is None:
            return
        self.finish(left_early())
        self.work.cancel()
        if self._core.own_process:
            self._wait_until(self.done)


class StreamingCall(Generic[Item, T]):
    """A call with streams: what ``with client.open(...)`` returns. ``Item`` is what the handler sends, ``T`` its
    result. One thread reads, and one writes. Leaving the block cancels the call, unless it has ended."""

    def __init__(self, start: Callable[[], _Streams]) -> None:
        self._start = start
        self._begun: Optional[_Streams] = None

    def __enter__(self) -> StreamingCall[Item, T]:
        if self._begun is not None:
            raise RuntimeError("hawser: a call with streams is opened once")
        self._begun = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._streams().cancel()

    def _streams(self) -> _Streams:
        if self._begun is None:
            raise RuntimeError("hawser: the call has not begun: write `with client.open(...) as call`")
        return self._begun

    def __iter__(self) -> StreamingCall[Item, T]:
        return self

    def __next__(self) -> Item:
        """The next item of the handler. Raises hawser.Error if the call fails; received items come before that."""
        return cast(Item, self._streams().next())

    def write(self, item: Any) -> None:
        """Queues an item for the handler. While the handler does not read and 256 KiB wait, this waits, too: a handler
        that answers each item needs a thread that reads meanwhile. Memory of 8 KiB and more is not copied: it must not
        change until the call has ended or drain() has returned."""
        self._streams().write(item)

    def drain(self) -> None:
        """Waits until all items have been sent, so that their memory may change."""
        self._streams().drain()

    def end(self) -> None:
        """Ends this side's stream, behind the items that were written: the handler's loop over them ends."""
        self._streams().end()

    def result(self) -> T:
        """Ends this side's stream and waits for the handler's result. Raises the error of the call."""
        return self.reply().value

    def reply(self) -> Reply[T]:
        """Like result(), and returns the attachment and the metadata of the reply too."""
        return cast("Reply[T]", self._streams().result())


class Client:
    """One connection to a server, or connections to the servers of a name. Any number of threads share it. When a
    connection is lost, the next call connects again."""

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
        found = self._method(hub, method)
        require_no_streams(found)
        slot = _Slot()
        work = self._core.call(hub, slot, found, arguments, timeout, attachment, into, metadata, whole, idempotent, None)
        try:
            return _wait(hub, slot, work)
        except Error as error:
            forget_if_stale(self._described, method, error)
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

    def transport(self) -> Transport:
        """Returns the transport that carries the messages now: hawser.Client.transport()."""
        hub, slot = _hub(), _Slot()
        return Transport(*_wait(hub, slot, self._core.carrier(hub, slot)))

    def register(self, memory: Any) -> Registered:
        """Registers memory with the RDMA devices of this client: hawser.Client.register()."""
        hub, slot = _hub(), _Slot()
        return Registered(_wait(hub, slot, _hawser.register_memory(self._core, hub, slot, memory)))

    def _method(self, hub: _hawser.Hub, name: Union[str, Remote[Any]]) -> _hawser.Method:
        if isinstance(name, Remote):
            return name.method
        if not isinstance(name, str):
            raise not_a_method(name)
        found = self._described.get(name)
        if found is None:
            slot = _Slot()
            found = cast(_hawser.Method, _wait(hub, slot, self._core.describe(hub, slot, name)))
            self._described[name] = found
        return found

    @overload
    def open(
        self,
        method: str,
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        metadata: Optional[Metadata] = None,
    ) -> StreamingCall[Any, Any]: ...
    @overload
    def open(
        self,
        method: Remote[AsyncIterator[Item]],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        metadata: Optional[Metadata] = None,
    ) -> StreamingCall[Item, None]: ...
    @overload
    def open(
        self,
        method: Remote[T],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        metadata: Optional[Metadata] = None,
    ) -> StreamingCall[Any, T]: ...
    def open(
        self,
        method: Union[str, Remote[Any]],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        metadata: Optional[Metadata] = None,
    ) -> StreamingCall[Any, Any]:
        """Calls a method that has streams: hawser.Client.open()::

            with client.open("shop::watch", "rope") as call:
                for change in call:
                    print(change)
        """

        def start() -> _Streams:
            found = self._method(_hub(), method)
            require_streams(found)
            hub = _hawser.Hub()
            core = _hawser.make_streams(method=found, hub=hub)
            streams = _Streams(core, hub, lambda error: forget_if_stale(self._described, method, error))
            try:
                streams.work = self._core.call(
                    hub, streams, found, arguments, timeout, attachment, None, metadata, True, False, core
                )
            except BaseException:
                core.release()  # It refers to `streams`, unseen by the collector of cycles.
                raise
            return streams

        return StreamingCall(start)

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
    require: Optional[str] = None,
    message_bytes_max: int = 64 << 20,
    calls_in_flight_max: int = 4096,
    tls: Optional[ClientTls] = None,
    grpc: bool = False,
    balancing: Optional[str] = None,
    retry: Optional[Retry] = None,
) -> Client:
    """Connects, with the options of hawser.connect()."""
    core = _hawser.make_client(
        address=address,
        **client_options(
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            transports=transports,
            rdma=rdma,
            require=require,
            message_bytes_max=message_bytes_max,
            calls_in_flight_max=calls_in_flight_max,
            tls=tls,
            grpc=grpc,
            balancing=balancing,
            retry=retry,
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
