"""Streams of calls: a client's side, and a handler's side."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Generic, Iterator, Optional, TypeVar, cast

from . import _errors, _hawser

if TYPE_CHECKING:
    from ._client import Reply

T = TypeVar("T")
Item = TypeVar("Item")


class StreamState:
    """The streams of one call, without waiting: what has arrived, and why reading and writing fail."""

    def __init__(self, core: _hawser.CallStreams) -> None:
        self._core = core
        self._items: collections.deque[Any] = collections.deque()
        self._asked = False
        self._ended = False
        self._error: Optional[BaseException] = None  # The reason why reading fails.
        self._write_error: Optional[BaseException] = None
        self._reading = False
        self._writing = False
        core.set_sinks(self._on_items, self._on_sent)

    def _on_items(self, items: list[Any], ended: bool, error: Optional[BaseException]) -> None:
        self._asked = False
        self._items.extend(items)
        if ended and not self._ended:
            self._ended, self._error = True, error

    def _on_sent(self, error: Optional[BaseException]) -> None:
        if self._write_error is None:
            self._write_error = error

    def finish(self, error: BaseException) -> None:
        """The call has ended. What was received may still be read; then ``error``, unless the stream has ended."""
        self._on_items([], True, error)
        self._on_sent(error)
        self._core.release()

    def _readable(self) -> bool:
        return self._ended or bool(self._items)

    def _take(self, end: type[Exception]) -> Any:
        """The next item, ``end`` behind the last one, or the error of the call."""
        if self._items:
            return self._items.popleft()
        if self._error is not None:
            raise self._error.with_traceback(None)
        raise end

    def _ask(self) -> None:
        if not self._asked or not self._core.own_process:  # In a child of fork(), ask() raises.
            self._asked = True  # First: another thread may deliver the items before ask() returns.
            try:
                self._core.ask()
            except BaseException:
                self._asked = False
                raise

    def _require_writable(self) -> None:
        if self._write_error is not None:
            raise self._write_error.with_traceback(None)

    def _enqueue(self, item: Any) -> bool:
        """False: the caller waits, within _only("_writing"), until _has_room()."""
        self._require_writable()
        if self._writing:
            raise _two("write to")
        return self._core.write(item)

    def _has_room(self) -> bool:
        """Or no item is sent any more."""
        return self._write_error is not None or not self._core.full

    @contextlib.contextmanager
    def _only(self, direction: str) -> Iterator[None]:
        """Refuses others while one waits for a direction: "_reading" or "_writing"."""
        if getattr(self, direction):
            raise _two("read" if direction == "_reading" else "write to")
        setattr(self, direction, True)
        try:
            yield
        finally:
            setattr(self, direction, False)

    def end(self) -> None:
        self._core.end()


class Streams(StreamState):
    """Streams on the event loop of their call. One task reads, and one writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, core: _hawser.CallStreams) -> None:
        self._loop = loop
        self._reader: Optional[asyncio.Future[None]] = None
        self._sent: Optional[asyncio.Future[None]] = None  # Shared by those that wait for sending.
        super().__init__(core)

    def _on_items(self, items: list[Any], ended: bool, error: Optional[BaseException]) -> None:
        super()._on_items(items, ended, error)
        _wake(self._reader)

    def _on_sent(self, error: Optional[BaseException]) -> None:
        super()._on_sent(error)
        _wake(self._sent)
        self._sent = None

    async def next(self) -> Any:
        while not self._readable():
            with self._only("_reading"):
                self._ask()
                self._reader = self._loop.create_future()
                await self._reader
        return self._take(StopAsyncIteration)

    async def write(self, item: Any) -> None:
        if not self._enqueue(item):
            with self._only("_writing"):
                while not self._has_room():
                    await self._wait_for_sending()
                self._require_writable()

    async def drain(self) -> None:
        while self._write_error is None and not self._core.flush():
            await self._wait_for_sending()
        self._require_writable()

    async def _wait_for_sending(self) -> None:
        if self._sent is None:
            self._sent = self._loop.create_future()
        await asyncio.shield(self._sent)


def _two(verb: str) -> RuntimeError:
    return RuntimeError(f"hawser: two tasks or threads {verb} one stream at the same time: let one of them do it")


def _wake(waiting: Optional[asyncio.Future[None]]) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Reader(Generic[Item]):
    """The items that the caller of a handler sends: ``async for item in reader``. A parameter of a handler behind its
    arguments, hawser::Reader of C++. One task reads at a time."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def __aiter__(self) -> Reader[Item]:
        return self

    async def __anext__(self) -> Item:
        """The next item. Raises hawser.Error if the call ends before its stream of items."""
        return cast(Item, await self._streams.next())


class Writer(Generic[Item]):
    """Sends items to the caller of a handler. A parameter of a handler behind its arguments, hawser::Writer of C++. The
    stream ends when the handler returns. One task writes at a time."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def write(self, item: Item) -> None:
        """Queues an item for sending. While the caller does not read and 256 KiB wait, this waits, too. Memory of 8 KiB
        and more is not copied: it must not change until the call has ended or drain() has returned."""
        await self._streams.write(item)

    async def drain(self) -> None:
        """Waits until all items have been sent, so that their memory may change."""
        await self._streams.drain()


class StreamingCall(Generic[Item, T]):
    """A call with streams: what ``async with client.open(...)`` returns. ``Item`` is what the handler sends, ``T`` its
    result. One task reads, and one writes. Leaving the block cancels the call, unless it has ended."""

    def __init__(self, start: Callable[[], Awaitable[tuple[Streams, asyncio.Future[Any], _hawser.Work]]]) -> None:
        self._start = start
        self._begun: Optional[tuple[Streams, asyncio.Future[Any], _hawser.Work]] = None

    async def __aenter__(self) -> StreamingCall[Item, T]:
        if self._begun is not None:
            raise RuntimeError("hawser: a call with streams is opened once")
        self._begun = streams, future, _ = await self._start()
        future.add_done_callback(lambda done: streams.finish(ended_because(None if done.cancelled() else done.exception())))
        return self

    async def __aexit__(self, *_: object) -> None:
        streams, future, work = self._parts()
        if future.done():
            return
        streams.finish(left_early())
        future.cancel()
        work.cancel()

    def _parts(self) -> tuple[Streams, asyncio.Future[Any], _hawser.Work]:
        if self._begun is None:
            raise RuntimeError("hawser: the call has not begun: write `async with client.open(...) as call`")
        return self._begun

    def __aiter__(self) -> StreamingCall[Item, T]:
        return self

    async def __anext__(self) -> Item:
        """The next item of the handler. Raises hawser.Error if the call fails; received items come before that."""
        return cast(Item, await self._parts()[0].next())

    async def write(self, item: Any) -> None:
        """Queues an item for the handler. While the handler does not read and 256 KiB wait, this waits, too. Memory of
        8 KiB and more is not copied: it must not change until the call has ended or drain() has returned."""
        await self._parts()[0].write(item)

    async def drain(self) -> None:
        """Waits until all items have been sent, so that their memory may change."""
        await self._parts()[0].drain()

    def end(self) -> None:
        """Ends this side's stream, behind the items that were written: the handler's loop over them ends."""
        self._parts()[0].end()

    async def result(self) -> T:
        """Ends this side's stream and waits for the handler's result. Raises the error of the call."""
        return (await self.reply()).value

    async def reply(self) -> Reply[T]:
        """Like result(), and returns the attachment and the metadata of the reply too."""
        streams, future, _ = self._parts()
        streams.end()
        return cast("Reply[T]", await asyncio.shield(future))


def ended_because(failure: Optional[BaseException]) -> BaseException:
    """Why a call that has ended sends and receives no items. ``failure`` is its error."""
    if failure is not None:
        return failure
    return _errors.Error("the call has ended: nobody reads this stream any more", code=_errors.ErrorCode.CANCELLED)


def left_early() -> _errors.Error:
    """The error of a call whose block was left before its end."""
    return _errors.Error("the call was cancelled", code=_errors.ErrorCode.CANCELLED)
