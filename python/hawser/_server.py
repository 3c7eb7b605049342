"""The server for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import traceback
from typing import Any, AsyncIterator, Awaitable, Callable, Iterable, Optional, TypeVar, Union, overload

from . import _errors, _hawser, _types
from ._client import Metadata, hub_of, require_at_least_one, transport_names
from ._memory import Exposed
from ._streams import Reader, Streams, Writer
from ._tls import Identity, ServerTls
from .services import Service

Handler = Callable[..., Union[Awaitable[Any], AsyncIterator[Any]]]
F = TypeVar("F", bound=Handler)
_log = logging.getLogger("hawser")


class Context:
    """The call of a handler, whose first parameter has this annotation: what came beside the arguments, and what is
    sent beside the result."""

    def __init__(self, call: _hawser.IncomingCall) -> None:
        self._call = call
        self._attachment: Any = None
        self._metadata: list[tuple[str, str]] = []

    @property
    def peer(self) -> str:
        """The caller's address."""
        return self._call.peer

    @property
    def identity(self) -> Identity:
        """Who the caller has proved to be: by TLS, or the process at the other end of a Unix socket."""
        return Identity(*self._call.identity)

    @property
    def attachment(self) -> Optional[memoryview]:
        """The caller's attachment, without a copy."""
        return self._call.attachment

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return self._call.metadata

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the caller stops waiting. None: the call has no deadline."""
        return self._call.remaining_s

    def set_attachment(self, memory: Any) -> None:
        """Sends memory (buffer protocol) beside the result, without a copy. It must not change any more."""
        self._attachment = memory

    def add_metadata(self, key: str, value: str) -> None:
        self._metadata.append((key, value))


class Server:
    """Serves coroutines::

        server = hawser.Server("127.0.0.1:9000")

        @server.method
        async def echo(text: str) -> str:
            return text

        async with server:
            await server.serve_forever()

    listen             "host:port", "unix:/path" or "unix:@name". Port 0 selects a free port: ``address`` has it.
    threads            Threads that receive and send. Handlers run on the event loop, whatever their number.
    transports         Transports beside the byte stream: "shm", "rdma", "ucx".
    message_bytes_max  Bytes of one request or reply with its attachment.
    calls_max          Calls in flight on the whole server. One more is refused with ``overloaded``.
    exception_texts    Sends the text of an exception to the caller. Otherwise it is in the log only.
    tls                Connections are within TLS. The files are read by start().
    grpc               Clients of gRPC are served on the same port. They call the methods of add_service().
    """

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        threads: int = 1,
        transports: Iterable[str] = ("shm",),
        message_bytes_max: int = 64 << 20,
        calls_max: int = 100_000,
        exception_texts: bool = False,
        tls: Optional[ServerTls] = None,
        grpc: bool = False,
    ) -> None:
        require_at_least_one(threads=threads, message_bytes_max=message_bytes_max, calls_max=calls_max)
        self._core = _hawser.make_server(
            listen=listen,
            threads=threads,
            transports=transport_names(transports),
            message_bytes_max=message_bytes_max,
            calls_max=calls_max,
            exception_texts=exception_texts,
            tls=tls,
            grpc=grpc,
        )
        self._methods: dict[str, tuple[_types.Signature, Handler]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: Optional[asyncio.Event] = None
        self._started = False

    @overload
    def method(self, function: F) -> F: ...
    @overload
    def method(self, function: Optional[str] = None, *, name: Optional[str] = None) -> Callable[[F], F]: ...
    def method(
        self, function: Union[F, str, None] = None, *, name: Optional[str] = None
    ) -> Union[F, Callable[[F], F]]:
        """Registers a coroutine function under its name, or under ``name``, such as "shop::order". Its annotations are
        the types of the method. Behind the arguments, a ``hawser.Reader[T]`` receives the items that the caller sends,
        and a ``hawser.Writer[T]`` sends items. A generator, which is declared to return ``AsyncIterator[T]``, sends
        what it yields."""
        if isinstance(function, str):
            function, name = None, function

        def decorate(coroutine: F) -> F:
            given: Any = coroutine
            generates = inspect.isasyncgenfunction(given)
            if not generates and not inspect.iscoroutinefunction(given):
                raise TypeError(f"hawser: {coroutine!r} is not a coroutine function: define it by `async def`")
            signature = _types.signature_of(coroutine, name, Context)
            if generates and (Writer in signature.ends or not signature.method.outgoing):
                raise TypeError(f"hawser: {coroutine!r} is a generator: declare it to return AsyncIterator[T], without a Writer")
            self._register(signature, coroutine)
            return coroutine

        return decorate if function is None else decorate(function)

    def _register(self, signature: _types.Signature, handler: Handler) -> None:
        if self._started:
            raise RuntimeError("hawser: register the methods before the server starts")
        if signature.method.name in self._methods:
            raise ValueError(f"hawser: the server has a method {signature.method.name} already")
        self._methods[signature.method.name] = (signature, handler)

    def add_service(self, service: Service) -> None:
        """Serves the methods of a service of a .proto file: ``service`` is of a class that is derived from the one that
        hawser.protoc has generated."""
        if not isinstance(service, Service):
            raise TypeError(f"hawser: {service!r} is not a service: give an object of a class that is derived from a generated one")
        for name, declared in service.hawser_methods.items():
            method = declared.method
            handler = getattr(service, name)
            if not method.outgoing and not inspect.iscoroutinefunction(handler):
                raise TypeError(f"hawser: {type(service).__name__}.{name} is not a coroutine function: define it by `async def`")
            if method.outgoing and inspect.iscoroutinefunction(handler):
                raise TypeError(f"hawser: {type(service).__name__}.{name} is not a generator: send the stream by `yield`")
            self._register(_types.Signature(method, True, (Reader,) if method.incoming else ()), handler)

    @property
    def address(self) -> str:
        """The address at which the server listens, with the selected port."""
        return self._core.address

    def expose(self, memory: Any, *, access: str = "read", lease: Optional[float] = None) -> Exposed:
        """Lets clients access memory (buffer protocol, such as a numpy array) that stays where it is. The result has
        the handle, which calls carry to clients.

        access  "read", "write" or "read_write".
        lease   Seconds after which it is revoked. None: until revoke() is called or the result is dropped.
        """
        return Exposed(self._core, memory, access, lease)

    async def start(self) -> None:
        """Listens. The handlers run on the event loop of the caller."""
        if self._started:
            raise RuntimeError("hawser: a server starts once")
        self._started = True
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        hub = hub_of(loop)
        for signature, coroutine in self._methods.values():
            serve = self._make_serve(loop, signature, coroutine)
            self._core.add(signature.method, hub, serve, signature.takes_context)
        self._core.start()

    def _make_serve(
        self, loop: asyncio.AbstractEventLoop, signature: _types.Signature, coroutine: Handler
    ) -> Callable[[_hawser.IncomingCall, tuple[Any, ...]], None]:
        tasks = self._tasks
        takes_context = signature.takes_context
        name = signature.method.name

        ends = signature.ends
        plain: Callable[..., Awaitable[Any]] = coroutine  # type: ignore[assignment]  # Unless it has streams.

        async def run(call: _hawser.IncomingCall, arguments: tuple[Any, ...]) -> None:
            streams = None if call.streams is None else Streams(loop, call.streams)
            try:
                if streams is not None:
                    context = Context(call)
                    value = await stream(streams, context, arguments)
                    call.reply(value, context._attachment, context._metadata)
                elif takes_context:
                    context = Context(call)
                    value = await plain(context, *arguments)
                    call.reply(value, context._attachment, context._metadata)
                else:
                    call.reply(await plain(*arguments), None, None)
            except _errors.Error as error:
                call.fail(int(error.code), error.application_code, error.text)
            except (asyncio.CancelledError, GeneratorExit):  # The latter if the coroutine is closed.
                cancelled(call)
                raise
            except BaseException as error:
                _log.error("the handler of %s raised\n%s", name, traceback.format_exc())
                call.threw(_errors.plain_text(f"{type(error).__name__}: {error}"))
                if not isinstance(error, Exception):
                    raise  # Such as SystemExit, which ends the event loop.
            finally:
                if streams is not None:
                    streams.finish(_errors.Error("the handler has returned", code=_errors.ErrorCode.CANCELLED))

        async def stream(streams: Streams, context: Context, arguments: tuple[Any, ...]) -> Any:
            leading = (context, *arguments) if takes_context else arguments
            made = coroutine(*leading, *(kind(streams) for kind in ends))
            try:
                value = await (send_all(streams, made) if isinstance(made, AsyncIterator) else made)
            except Exception:
                with contextlib.suppress(_errors.Error):  # The call has ended.
                    await streams.drain()
                raise
            await streams.drain()  # The items precede the answer.
            return value

        async def send_all(streams: Streams, items: AsyncIterator[Any]) -> None:
            try:
                async for item in items:
                    await streams.write(item)
            finally:
                await items.aclose()  # type: ignore[attr-defined]  # A generator.

        def cancelled(call: _hawser.IncomingCall) -> None:
            remaining = call.remaining_s
            if remaining is not None and remaining <= 0:
                call.fail(int(_errors.ErrorCode.DEADLINE_EXCEEDED), 0, "the deadline passed, and the handler was cancelled")
            else:
                call.fail(int(_errors.ErrorCode.CANCELLED), 0, "the handler was cancelled")

        def serve(call: _hawser.IncomingCall, arguments: tuple[Any, ...]) -> None:
            task = loop.create_task(run(call, arguments))
            tasks.add(task)
            task.add_done_callback(functools.partial(end, call))
            call.set_task(task)

        def end(call: _hawser.IncomingCall, task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if task.cancelled():  # Perhaps before its first step, so that run() has not answered. Otherwise no effect.
                cancelled(call)

        return serve

    async def stop(self, grace: float = 5) -> None:
        """Stops. Calls in flight may finish within ``grace`` seconds and are cancelled then."""
        await asyncio.get_running_loop().run_in_executor(None, self._core.stop, grace)
        self._core.release()
        if self._ended is not None:
            self._ended.set()

    async def serve_forever(self) -> None:
        """Waits until stop() has ended the server."""
        if self._ended is None:
            raise RuntimeError("hawser: the server has not started: use `async with server`, or await start()")
        await self._ended.wait()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        # After an exception, such as Ctrl-C, nothing is waited for.
        await self.stop(5 if kind is None else 0)


__all__ = ["Context", "Metadata", "Server"]
