"""The methods of peer.cpp in Python: declarations for clients, and a server."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
from typing import Optional, Union

import hawser


class Color(enum.IntEnum):
    RED = 0
    GREEN = 1
    BLUE = 2


@dataclasses.dataclass
class Item:
    name: str
    count: hawser.Int32
    price: Optional[float]
    tags: list[str]


@dataclasses.dataclass
class Order:
    id: hawser.UInt64
    items: list[Item]
    stock: dict[str, int]
    color: Color
    note: Union[int, str]


@dataclasses.dataclass
class Grown:
    name: str
    added: int = 5

    hawser_base_fields = 1


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node]


Mixed = tuple[bool, set[int], datetime.timedelta]

ORDER = Order(41, [Item("rope", 2, 1.5, ["long", "new"]), Item("sail", -1, None, [])], {"rope": 10}, Color.BLUE, "quick")


@hawser.declare("shop::order")
def order(given: Order) -> Order: ...  # type: ignore[empty-body]


@hawser.declare("shop::mixed")
def mixed(given: Mixed) -> Mixed: ...  # type: ignore[empty-body]


@hawser.declare("shop::grown")
def grown(given: Grown) -> Grown: ...  # type: ignore[empty-body]


@hawser.declare("shop::sum")
def sum_of(node: Node) -> int: ...  # type: ignore[empty-body]


@hawser.declare("shop::bytes")
def bytes_view(given: memoryview) -> memoryview: ...  # type: ignore[empty-body]


@hawser.declare("shop::sums")
def sums(first: int, items: hawser.Reader[int], out: hawser.Writer[int]) -> int: ...  # type: ignore[empty-body]


class Shop:
    """A server with the methods of peer.cpp."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        self.server = hawser.Server(listen)
        self.stopped = 0
        self.sleeping = asyncio.Event()
        self.woken = asyncio.Event()
        method = self.server.method

        @method("shop::order")
        async def order(given: Order) -> Order:
            return dataclasses.replace(given, id=given.id + 1)

        @method("shop::add")
        async def add(a: int, b: int) -> int:
            return a + b

        @method("shop::bytes")
        async def echo(given: bytes) -> bytes:
            return given

        @method("shop::doubled")
        async def doubled(given: list[hawser.Float32]) -> list[hawser.Float32]:
            return [2 * one for one in given]

        @method("shop::mixed")
        async def mixed(given: Mixed) -> Mixed:
            return given

        @method("shop::grown")
        async def grown(given: Grown) -> Grown:
            return given

        @method("shop::sum")
        async def sum_of(node: Node) -> int:
            def total(one: Node) -> int:
                return one.value + sum(total(child) for child in one.children)

            return total(node)

        @method("shop::beside")
        async def beside(context: hawser.Context, text: str) -> str:
            if context.attachment is not None:
                context.set_attachment(context.attachment)
            for key, value in context.metadata:
                context.add_metadata(key, value)
            return text

        @method("shop::sleep_until_stopped")
        async def sleep_until_stopped() -> None:
            self.sleeping.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1
                self.woken.set()

        @method("shop::sums")
        async def sums(first: int, items: hawser.Reader[int], out: hawser.Writer[int]) -> int:
            count = 0
            async for item in items:
                first += item
                count += 1
                await out.write(first)
            return count

        @method("shop::fail")
        async def fail() -> int:
            raise hawser.Error("no rope", application_code=7)

        @method("shop::raises")
        async def raises() -> None:
            raise RuntimeError("a secret")
