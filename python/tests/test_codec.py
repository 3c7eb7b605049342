"""The conversion between objects and bytes, without a connection."""

from __future__ import annotations

import datetime
import random
import struct
import types
from typing import Any, Callable, Optional, Union

import pytest

import hawser
import shop
from hawser._types import _is_union, signature_of


def method_of(function: Callable[..., Any]) -> Any:
    return signature_of(function, None, None).method


def everything(order: shop.Order, node: shop.Node, grown: shop.Grown, mixed: shop.Mixed, view: memoryview) -> None: ...


EVERYTHING = (
    shop.ORDER,
    shop.Node(1, [shop.Node(2, []), shop.Node(3, [shop.Node(4, [])])]),
    shop.Grown("name", 7),
    (False, {1, 2, 3}, datetime.timedelta(seconds=-1.25)),
    b"bytes",
)


def test_values_survive() -> None:
    method = method_of(everything)
    assert method.decode(method.encode(*EVERYTHING)) == EVERYTHING


def test_a_class_that_is_not_generic_is_not_a_union(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_union(Union) and not _is_union(None)
    monkeypatch.delattr(types, "UnionType", raising=False)  # Python 3.9 has none.
    assert _is_union(Union) and not _is_union(None)


def test_bytes_are_those_of_the_wire_format() -> None:
    def f(a: hawser.Int32, b: str, c: Optional[float], d: list[hawser.UInt8], e: dict[str, bool]) -> None: ...

    encoded = method_of(f).encode(-2, "hé", None, [1, 2], {"k": True})
    assert encoded == (
        struct.pack("<i", -2) + struct.pack("<I", 3) + "hé".encode() + b"\0" + struct.pack("<I", 2) + b"\1\2"
        + struct.pack("<I", 1) + struct.pack("<I", 1) + b"k" + b"\1"
    )  # fmt: skip


def test_a_struct_that_grew_is_read_by_both_versions() -> None:
    grown = method_of(shop_grown).encode(shop.Grown("a", 9))
    first = struct.pack("<I", 5) + struct.pack("<I", 1) + b"a"
    # The first version had no field `added`: it has its default.
    assert method_of(shop_grown).decode(first) == (shop.Grown("a", 5),)
    assert grown[4:9] == first[4:9]


def shop_grown(given: shop.Grown) -> None: ...


def test_text_that_is_no_utf_8_survives() -> None:
    def f(text: str) -> None: ...

    body = struct.pack("<I", 2) + b"\xff\xfe"
    (text,) = method_of(f).decode(body)
    assert method_of(f).encode(text) == body


@pytest.mark.parametrize("size", [0, 3, 100])
def test_bytes_that_end_too_early_are_refused(size: int) -> None:
    method = method_of(everything)
    with pytest.raises(hawser.Error) as caught:
        method.decode(method.encode(*EVERYTHING)[:size])
    assert caught.value.code == hawser.ErrorCode.PROTOCOL_ERROR


def test_bytes_behind_the_last_value_are_refused() -> None:
    method = method_of(everything)
    with pytest.raises(hawser.Error) as caught:
        method.decode(method.encode(*EVERYTHING) + b"\0")
    assert caught.value.code == hawser.ErrorCode.PROTOCOL_ERROR


def test_a_count_without_elements_takes_no_memory() -> None:
    def empty(values: list[tuple[()]]) -> None: ...
    def numbers(values: list[list[int]]) -> None: ...

    with pytest.raises(hawser.Error) as caught:
        method_of(empty).decode(struct.pack("<I", 2**31 - 1))
    assert caught.value.code == hawser.ErrorCode.LIMIT_EXCEEDED
    with pytest.raises(hawser.Error):
        method_of(numbers).decode(struct.pack("<I", 2**31 - 1))


def test_deep_nesting_is_refused() -> None:
    deep: shop.Node = shop.Node(0, [])
    for _ in range(100):
        deep = shop.Node(0, [deep])

    def f(node: shop.Node) -> None: ...

    with pytest.raises(ValueError, match="nested more than 64 deep"):
        method_of(f).encode(deep)
    body = (struct.pack("<q", 0) + struct.pack("<I", 1)) * 100 + struct.pack("<q", 0) + struct.pack("<I", 0)
    with pytest.raises(hawser.Error) as caught:
        method_of(f).decode(body)
    assert caught.value.code == hawser.ErrorCode.LIMIT_EXCEEDED


def test_changed_bytes_are_a_value_or_an_error() -> None:
    method = method_of(everything)
    good = method.encode(*EVERYTHING)
    random_numbers = random.Random(38)
    refused = 0
    for _ in range(20_000):
        body = bytearray(good)
        for _ in range(random_numbers.randint(1, 4)):
            body[random_numbers.randrange(len(body))] = random_numbers.randrange(256)
        del body[random_numbers.randint(0, 2 * len(body)) :]
        try:
            method.decode(bytes(body))
        except (hawser.Error, OverflowError, TypeError):  # A duration beyond timedelta; a key that has no hash.
            refused += 1
    assert 0 < refused < 20_000


def test_the_first_alternative_that_fits_is_sent() -> None:
    def f(value: Union[int, float, str, shop.Item, None]) -> None: ...

    method = method_of(f)
    item = shop.Item("a", 1, None, [])
    for value in (1, 1.5, "a", item, None):
        (decoded,) = method.decode(method.encode(value))
        assert decoded == value and type(decoded) is type(value)
    with pytest.raises(TypeError):
        method.encode(b"bytes")


def test_an_exception_of_the_application_stays_as_it_is() -> None:
    class Refuses:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def fail(self, *_: Any) -> Any:
            raise self.error

        __index__ = __float__ = __iter__ = total_seconds = fail

    class Other(ValueError):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(first, second)

    def f(number: int, real: float, numbers: list[int], duration: datetime.timedelta) -> None: ...

    method = method_of(f)
    good: list[Any] = [1, 1.0, [1], datetime.timedelta(1)]
    for error in (KeyError("mine"), Other(1, 2), KeyboardInterrupt()):
        for place in range(len(good)):
            with pytest.raises(type(error)) as caught:
                method.encode(*good[:place], Refuses(error), *good[place + 1 :])
            assert caught.value is error
        with pytest.raises(type(error)) as caught:
            method.encode(1, 1.0, [1, Refuses(error)], datetime.timedelta(1))
        assert caught.value is error
    for place in range(len(good)):
        with pytest.raises(TypeError, match=rf"argument {place + 1} of .*expected .*, not object"):
            method.encode(*good[:place], object(), *good[place + 1 :])

    def text(value: str) -> None: ...

    with pytest.raises(UnicodeEncodeError):
        method_of(text).encode("\ud800")
