"""The client for asyncio."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import weakref
from typing import Any, AsyncIterator, Callable, Generator, Generic, Iterable, Mapping, Optional, TypeVar, Union, cast, overload

from . import _errors, _hawser, _types
from ._errors import ErrorCode
from ._memory import Region, Registered, target_of
from ._streams import StreamingCall, Streams
from ._tls import ClientTls

T = TypeVar("T")
Item = TypeVar("Item")
Metadata = Union[Mapping[str, str], Iterable[tuple[str, str]]]


@dataclasses.dataclass(frozen=True)
class Reply(Generic[T]):
    """A whole reply."""

    value: T
    attachment: Optional[memoryview]
    """Memory that was received, without a copy. None: the handler sent none."""
    metadata: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Remote(Generic[T]):
    """A method of a server that declare() has declared. ``T`` is its result."""

    method: _hawser.Method


@dataclasses.dataclass(frozen=True)
class Transport:
    """The transport that carries the messages of a connection."""

    name: str
    """Such as "rdma", "shm" or "tcp". Empty: there is no connection now."""
    refused: dict[str, str]
    """The other transports of connect(), each with the reason why it does not."""


@dataclasses.dataclass(frozen=True)
class Retry:
    """When a call to a name is made again, perhaps at another server: if its error has one of the codes, and if the
    call was certainly not executed or is idempotent. ``timeout`` limits all attempts together. The attempts of a call
    with streams end when it is open."""

    attempts_max: int = 3
    """With the first one. 1: none is made again."""
    backoff_first: float = 0.05
    """Seconds until the second attempt, about. They double with each further attempt."""
    backoff_max: float = 2
    codes: tuple[ErrorCode, ...] = (
        ErrorCode.OVERLOADED,
        ErrorCode.NOT_SENT,
        ErrorCode.UNAVAILABLE,
        ErrorCode.OUTCOME_UNKNOWN,
    )

    def __post_init__(self) -> None:
        require_at_least_one(attempts_max=self.attempts_max)


def declare(name: Optional[str] = None) -> Callable[[Callable[..., T]], Remote[T]]:
    """Declares a method of a server by a function whose body is not used::

        @hawser.declare("shop::order")
        def order(item: str, count: hawser.Int32) -> Receipt: ...

        receipt = await client.call(order, "rope", 2)
    """

    def decorate(function: Callable[..., T]) -> Remote[T]:
        return Remote(_types.signature_of(function, name, None).method)

    return decorate


def require_no_streams(method: _hawser.Method) -> None:
    if method.incoming or method.outgoing:
        raise TypeError(f"hawser: {method.name} has streams: use client.open()")


def require_streams(method: _hawser.Method) -> None:
    if not (method.incoming or method.outgoing):
        raise TypeError(f"hawser: {method.name} has no streams: use call()")


def not_a_method(method: object) -> TypeError:
    return TypeError(f"hawser: a method is a str or a result of hawser.declare(), not {type(method).__name__}")


def forget_if_stale(
    described: dict[str, Any], method: Union[str, Remote[Any]], error: Optional[BaseException]
) -> None:
    """Forgets the types of a method that the server does not have any more, as the error of a call says."""
    stale = (ErrorCode.SIGNATURE_MISMATCH, ErrorCode.UNKNOWN_METHOD)
    if isinstance(method, str) and isinstance(error, _errors.Error) and error.code in stale:
        described.pop(method, None)


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _hawser.Hub] = weakref.WeakKeyDictionary()


def hub_of(loop: asyncio.AbstractEventLoop) -> _hawser.Hub:
    """The queue from the threads of Hawser to this loop."""
    hub = _hubs.get(loop)
    if hub is None:
        hub = _hubs[loop] = _hawser.Hub()
        loop.add_reader(hub.descriptor, hub.drain)
    return hub


class Client:
    """One connection to a server, or connections to the servers of a name. Any number of calls share it. It belongs to
    the event loop that connected it. When a connection is lost, the next call connects again."""

    def __init__(self, core: _hawser.ClientCore, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self._core = core
        self._loop = loop
        self._hub = hub_of(loop)
        self._described: dict[str, Union[_hawser.Method, asyncio.Future[_hawser.Method]]] = {}
        self.address = address

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. Calls in flight end with an error."""
        future = self._loop.create_future()
        with contextlib.suppress(_errors.Error):  # It is closed, the interpreter ends, or this is a child of fork().
            self._core.close(self._hub, future)
            await future

    async def _start(
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
        found = await self._find(method)
        require_no_streams(found)
        future = self._loop.create_future()
        work = self._core.call(
            self._hub, future, found, arguments, timeout, attachment, into, metadata, whole, idempotent, None
        )
        try:
            return await future
        except asyncio.CancelledError:
            work.cancel()
            raise
        except _errors.Error as error:
            forget_if_stale(self._described, method, error)
            raise

    async def _find(self, method: Union[str, Remote[Any]]) -> _hawser.Method:
        self._require_loop()
        if isinstance(method, Remote):
            return method.method
        if not isinstance(method, str):
            raise not_a_method(method)
        described = self._described.get(method)
        return described if isinstance(described, _hawser.Method) else await self._describe(method)

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
        """Calls a method that has streams::

            async with client.open("shop::watch", "rope") as call:
                async for change in call:
                    print(change)

        The parameters are those of call(), but without a timeout there is no deadline. Items are sent by write(), and
        result() waits for the handler's result. Leaving the block, such as by an exception or because the task is
        cancelled, cancels the call at the server.
        """

        async def start() -> tuple[Streams, asyncio.Future[Any], _hawser.Work]:
            found = await self._find(method)
            require_streams(found)
            core = _hawser.make_streams(method=found, hub=self._hub)
            streams = Streams(self._loop, core)
            future = self._loop.create_future()
            try:
                work = self._core.call(
                    self._hub, future, found, arguments, timeout, attachment, None, metadata, True, False, core
                )
            except BaseException:
                core.release()  # It refers to `streams`, unseen by the collector of cycles.
                raise
            future.add_done_callback(
                lambda done: forget_if_stale(self._described, method, None if done.cancelled() else done.exception())
            )
            return streams, future, work

        return StreamingCall(start)

    def _require_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("hawser: the client belongs to the event loop that connected it: connect another one here")

    async def read(self, region: Region, into: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        """Reads memory that the server exposes, from ``offset`` on, into writable memory (buffer protocol, such as a
        numpy array), and as many bytes as this has. No handler runs at the server. When the task is cancelled or fails,
        a part may have been read. ``into`` may be a Batch, whose blocks are read together."""
        await self._access(region, into, offset, timeout, False)

    async def write(self, region: Region, memory: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        """Writes into memory that the server exposes. Calls that begin afterwards find it written. ``memory`` may be a
        Batch."""
        await self._access(region, memory, offset, timeout, True)

    async def _access(self, region: Region, memory: Any, offset: int, timeout: Optional[float], writes: bool) -> None:
        self._require_loop()
        future = self._loop.create_future()
        work = _hawser.access_memory(self._core, self._hub, future, region, target_of(memory), offset, timeout, writes)
        try:
            await future
        except asyncio.CancelledError:
            work.cancel()
            raise

    async def transport(self) -> Transport:
        """Returns the transport that carries the messages now. A client of a name has several connections, and raises
        hawser.Error."""
        self._require_loop()
        future: asyncio.Future[tuple[str, dict[str, str]]] = self._loop.create_future()
        self._core.carrier(self._hub, future)
        return Transport(*await future)

    async def register(self, memory: Any) -> Registered:
        """Registers memory (buffer protocol) with the RDMA devices of this client, so that reads, writes and batches
        need not do it each time. Over other transports it changes nothing."""
        self._require_loop()
        future: asyncio.Future[_hawser.RegisteredMemory] = self._loop.create_future()
        _hawser.register_memory(self._core, self._hub, future, memory)
        return Registered(await future)

    async def _describe(self, name: str) -> _hawser.Method:
        waiting = self._described.get(name)
        if not isinstance(waiting, asyncio.Future):
            waiting = self._loop.create_future()
            waiting.add_done_callback(lambda done: self._on_described(name, done))
            try:
                self._core.describe(self._hub, waiting, name)
            except BaseException:
                waiting.cancel()
                raise
            self._described[name] = waiting
        return await asyncio.shield(waiting)

    def _on_described(self, name: str, done: asyncio.Future[_hawser.Method]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._described.pop(name, None)
        else:
            self._described[name] = done.result()

    @overload
    async def call(
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
    async def call(
        self,
        method: Remote[T],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> T: ...
    async def call(
        self,
        method: Union[str, Remote[Any]],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Any:
        """Calls a method and returns its result.

        method      A name, whose types the server is asked for once; or a method that declare() has declared.
        timeout     Seconds until the call fails with DeadlineExceeded. None: call_timeout of connect().
        attachment  Memory (buffer protocol) that is sent beside the arguments, without a copy. It must not change
                    until the call has ended.
        into        Writable memory into which a result of bytes is received. The result is a memoryview of it.
        metadata    Pairs of key and value.
        idempotent  The call may be executed more than once without harm.

        Raises hawser.Error. When the task is cancelled, the call is cancelled at the server.
        """
        result = await self._start(method, arguments, timeout, attachment, into, metadata, False, idempotent)
        return result

    @overload
    async def call_with_reply(
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
    async def call_with_reply(
        self,
        method: Remote[T],
        *arguments: Any,
        timeout: Optional[float] = None,
        attachment: Any = None,
        into: Any = None,
        metadata: Optional[Metadata] = None,
        idempotent: bool = False,
    ) -> Reply[T]: ...
    async def call_with_reply(
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
        result = await self._start(method, arguments, timeout, attachment, into, metadata, True, idempotent)
        return cast("Reply[Any]", result)


class Connecting:
    """The outcome of connect(): ``async with connect(...) as client`` or ``client = await connect(...)``."""

    def __init__(self, address: str, options: dict[str, Any]) -> None:
        self._address = address
        self._options = options
        self._client: Optional[Client] = None

    async def _connect(self) -> Client:
        core = _hawser.make_client(address=self._address, **self._options)
        client = Client(core, asyncio.get_running_loop(), self._address)
        future = client._loop.create_future()
        core.connect(client._hub, future)
        try:
            await future
        except BaseException:
            await client.close()
            raise
        return client

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()


def transport_names(transports: Iterable[str]) -> list[str]:
    if isinstance(transports, str):
        raise TypeError(f'hawser: transports is a list of names, such as ["{transports}"], not str')
    return list(transports)


def require_at_least_one(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise ValueError(f"hawser: {name} is {value}: give 1 or more")


def client_options(
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
) -> dict[str, Any]:
    """The options of connect(), checked."""
    require_at_least_one(message_bytes_max=message_bytes_max, calls_in_flight_max=calls_in_flight_max)
    names = transport_names(transports)
    if grpc and (rdma or (require or "stream") != "stream"):
        raise ValueError("hawser: gRPC needs a byte stream: omit rdma and require, or use Hawser's own protocol without grpc")
    for needed in (["rdma"] if rdma else []) + ([require] if require is not None and require != "stream" else []):
        if needed not in names:
            names.append(needed)
    return {
        "connect_timeout": connect_timeout,
        "call_timeout": call_timeout,
        "transports": names,
        "require": require or "",
        "message_bytes_max": message_bytes_max,
        "calls_in_flight_max": calls_in_flight_max,
        "tls": tls,
        "grpc": grpc,
        "balancing": balancing,
        "retry": retry,
    }


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
) -> Connecting:
    """Connects to "host:port", "unix:/path" or "unix:@name", or to the servers of a name, such as
    "list:host:port,host:port", "dns:host:port", "file:/path" or "etcd://member:port/service"::

        async with hawser.connect("127.0.0.1:9000") as client:
            reply = await client.call("echo", "hello")

    connect_timeout      Seconds for resolving the name, connecting and the HELLO together.
    call_timeout         Seconds until a call without a timeout of its own fails. None: no deadline.
    transports           Transports that are offered beside the byte stream: "shm", "rdma", "ucx".
    rdma                 Adds "rdma" to the transports. Where it cannot be used, another one is: transport() says why.
    require              A transport, or "stream" for the byte stream alone. Where it cannot be used, connecting fails
                         with the reason.
    message_bytes_max    Bytes of one request or reply with its attachment.
    calls_in_flight_max  More calls wait for their turn.
    tls                  The connection is within TLS.
    grpc                 The server speaks gRPC, over TCP or a Unix socket. Its methods are those of services in .proto
                         files (hawser.protoc).
    balancing            For a name, how the server of a call is chosen: "p2c", the default, "least_request",
                         "round_robin", "weighted_round_robin", "random" or "pick_first".
    retry                For a name, which calls are made again. None: Retry().

    With a name, a connection is made when a call needs it, and no server need be reachable now.
    """
    return Connecting(
        address,
        client_options(
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


_hawser.set_hooks(_errors._make, Reply, _types.make_struct)
# Before the interpreter is taken down: the threads of Hawser end, and with them all calls.
atexit.register(_hawser.shut_down)
