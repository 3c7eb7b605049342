"""Streams of calls: a client's side, and a handler's side."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Generic, Optional, TypeVar, cast

from . import _errors, _hawser

if TYPE_CHECKING:
    from ._client import Reply

T = TypeVar("T")
Item = TypeVar("Item")


class Streams:
    """The streams of one call, on the event loop of the call. One task reads, and one writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, core: _hawser.CallStreams) -> None:
        self._loop = loop
        self._core = core
        self._items: collections.deque[Any] = collections.deque()
        self._asked = False
        self._ended = False
        self._error: Optional[BaseException] = None  # The reason why reading fails.
        self._reader: Optional[asyncio.Future[None]] = None
        self._write_error: Optional[BaseException] = None
        self._writing = False
        self._sent: Optional[asyncio.Future[None]] = None  # Shared by those that wait for sending.
        core.set_sinks(self._on_items, self._on_sent)

    def _on_items(self, items: list[Any], ended: bool, error: Optional[BaseException]) -> None:
        self._asked = False
        self._items.extend(items)
        if ended and not self._ended:
            self._ended, self._error = True, error
        _wake(self._reader)

    def _on_sent(self, error: Optional[BaseException]) -> None:
        if self._write_error is None:
            self._write_error = error
        _wake(self._sent)
        self._sent = None

    def finish(self, error: BaseException) -> None:
        """The call has ended. What was received may still be read; then ``error``, unless the stream has ended."""
        self._on_items([], True, error)
        self._on_sent(error)
        self._core.release()

    async def next(self) -> Any:
        while not self._items:
            if self._ended:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                raise StopAsyncIteration
            if self._reader is not None:
                raise RuntimeError("hawser: two tasks read one stream at the same time: let one of them read")
            if not self._asked:
                self._core.ask()
                self._asked = True
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._items.popleft()

    async def write(self, item: Any) -> None:
        if self._write_error is not None:
            raise self._write_error.with_traceback(None)
        if self._writing:
            raise RuntimeError("hawser: two tasks write to one stream at the same time: let one of them write")
        if self._core.write(item):
            return
        self._writing = True
        try:
            await self._wait_for_sending()
        finally:
            self._writing = False

    async def drain(self) -> None:
        while self._write_error is None and not self._core.flush():
            await self._wait_for_sending()
        if self._write_error is not None:
            raise self._write_error.with_traceback(None)

    async def _wait_for_sending(self) -> None:
        if self._sent is None:
            self._sent = self._loop.create_future()
        await asyncio.shield(self._sent)
        if self._write_error is not None:
            raise self._write_error.with_traceback(None)

    def end(self) -> None:
        self._core.end()


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
        future.add_done_callback(lambda done: streams.finish(_reason(done)))
        return self

    async def __aexit__(self, *_: object) -> None:
        streams, future, work = self._parts()
        if future.done():
            return
        streams.finish(_errors.Error("the call was cancelled", code=_errors.ErrorCode.CANCELLED))
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


def _reason(done: asyncio.Future[Any]) -> BaseException:
    failure = None if done.cancelled() else done.exception()
    if failure is not None:
        return failure
    return _errors.Error("the call has ended: nobody reads this stream any more", code=_errors.ErrorCode.CANCELLED)
