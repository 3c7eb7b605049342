"""Annotations of Python as types of Hawser, and the signatures of methods."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import inspect
import keyword
import types
import typing
from typing import Any, Callable, Optional

from . import _hawser
from ._streams import Reader, Writer

# schema::Kind, in its order.
_BOOLEAN, _SIGNED, _UNSIGNED, _CHARACTER, _FLOATING, _SEQUENCE, _ARRAY, _SET, _MAP, _OPTIONAL, _VARIANT, _DURATION, _TUPLE, _STRUCTURE, _EVOLVING, _MESSAGE = range(16)
# Form of src/plan.h.
_AUTOMATIC, _TEXT, _BYTES, _VIEW, _LIST, _TUPLE_FORM, _FROZEN = range(7)


@dataclasses.dataclass(frozen=True)
class Number:
    """The width of a number on the wire. For ``typing.Annotated[int, ...]``."""

    letter: str
    size: int


@dataclasses.dataclass(frozen=True)
class Array:
    """The number of elements of a std::array. For ``typing.Annotated[list[T], ...]``."""

    count: int


Int8 = typing.Annotated[int, Number("i", 1)]
Int16 = typing.Annotated[int, Number("i", 2)]
Int32 = typing.Annotated[int, Number("i", 4)]
Int64 = typing.Annotated[int, Number("i", 8)]
UInt8 = typing.Annotated[int, Number("u", 1)]
UInt16 = typing.Annotated[int, Number("u", 2)]
UInt32 = typing.Annotated[int, Number("u", 4)]
UInt64 = typing.Annotated[int, Number("u", 8)]
Float32 = typing.Annotated[float, Number("f", 4)]
Float64 = typing.Annotated[float, Number("f", 8)]
Char = typing.Annotated[str, Number("c", 1)]

_KINDS = {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOATING, "c": _CHARACTER}


def _fnv32(text: str) -> int:
    state = 0x811C9DC5
    for byte in text.encode():
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return state


def _fnv64_folded(text: str) -> int:
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return (state ^ (state >> 32)) & 0xFFFFFFFF


class _Types:
    """Collects the types of one method. Each annotation has one index."""

    def __init__(self) -> None:
        self.list: list[dict[str, Any]] = []
        self.known: dict[Any, int] = {}
        self.files: dict[str, bytes] = {}
        """The .proto files of messages by their names, with the files that they import."""

    def add(self, annotation: Any) -> int:
        try:
            known = self.known.get(annotation)
        except TypeError:  # An annotation that is not hashable.
            raise _unusable(annotation) from None
        if known is not None:
            return known
        index = len(self.list)
        self.known[annotation] = index
        made: dict[str, Any] = {
            "kind": _BOOLEAN, "name": "", "size": 0, "parts": [], "names": [], "values": [], "signatures": [],
            "numerator": 0, "denominator": 0, "python": None, "form": _AUTOMATIC,
        }  # fmt: skip
        self.list.append(made)
        made.update(self.describe(annotation))
        return index

    def number(self, letter: str, size: int) -> dict[str, Any]:
        return {"kind": _KINDS[letter], "size": size}

    def describe(self, annotation: Any) -> dict[str, Any]:
        if annotation is bool:
            return {"kind": _BOOLEAN, "size": 1}
        if annotation is int:
            return self.number("i", 8)
        if annotation is float:
            return self.number("f", 8)
        if annotation is str:
            return {"kind": _SEQUENCE, "parts": [self.add(Char)], "form": _TEXT}
        if annotation in (bytes, bytearray):
            return {"kind": _SEQUENCE, "parts": [self.add(UInt8)], "form": _BYTES}
        if annotation is memoryview:
            return {"kind": _SEQUENCE, "parts": [self.add(UInt8)], "form": _VIEW}
        if annotation is datetime.timedelta:
            return {"kind": _DURATION, "parts": [self.add(int)], "numerator": 1, "denominator": 1_000_000}
        if isinstance(annotation, type):
            if issubclass(annotation, enum.IntEnum):
                return self.enumeration(annotation, Number("i", 4))
            if dataclasses.is_dataclass(annotation):
                return self.structure(annotation)
            if is_message(annotation):
                descriptor: Any = getattr(annotation, "DESCRIPTOR")
                self.add_file(descriptor.file)
                return {"kind": _MESSAGE, "name": descriptor.full_name, "python": annotation}
        return self.generic(annotation)

    def add_file(self, file: Any) -> None:
        if file.name not in self.files:
            self.files[file.name] = file.serialized_pb
            for imported in file.dependencies:
                self.add_file(imported)

    def enumeration(self, annotation: type[enum.IntEnum], number: Number) -> dict[str, Any]:
        return {
            **self.number(number.letter, number.size),
            "name": annotation.__qualname__,
            "names": [one.name for one in annotation],
            "values": [int(one.value) for one in annotation],
            "python": annotation,
        }

    def structure(self, annotation: type) -> dict[str, Any]:
        hints = typing.get_type_hints(annotation, include_extras=True)
        fields = dataclasses.fields(annotation)
        for field in fields:
            if not field.init:
                raise TypeError(f"hawser: {annotation.__qualname__}.{field.name} is no argument of the constructor")
        parts = [self.add(hints[field.name]) for field in fields]
        base = getattr(annotation, "hawser_base_fields", None)
        made: dict[str, Any] = {
            "kind": _STRUCTURE,
            "name": annotation.__qualname__,
            "parts": parts,
            "names": [field.name for field in fields],
            "python": annotation,
        }
        if base is not None:
            if not 0 <= base <= len(fields):
                raise TypeError(f"hawser: {annotation.__qualname__}.hawser_base_fields is not from 0 to {len(fields)}")
            for field in fields[base:]:
                if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                    raise TypeError(
                        f"hawser: {annotation.__qualname__}.{field.name} was appended (hawser_base_fields) and needs a default"
                    )
            made["kind"] = _EVOLVING
            made["size"] = base
            made["signatures"] = [_fnv64_folded(_describe(hints[field.name])) for field in fields]
        return made

    def generic(self, annotation: Any) -> dict[str, Any]:
        origin = typing.get_origin(annotation)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            for mark in arguments[1:]:
                if isinstance(mark, Number):
                    if isinstance(arguments[0], type) and issubclass(arguments[0], enum.IntEnum):
                        return self.enumeration(arguments[0], mark)
                    return self.number(mark.letter, mark.size)
                if isinstance(mark, Array):
                    return {"kind": _ARRAY, "parts": [self.add(_element(arguments[0]))], "size": mark.count}
            return self.describe(arguments[0])
        if origin is list and len(arguments) == 1:
            return {"kind": _SEQUENCE, "parts": [self.add(arguments[0])], "form": _LIST}
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"kind": _SEQUENCE, "parts": [self.add(arguments[0])], "form": _TUPLE_FORM}
        if origin is tuple:
            return {"kind": _TUPLE, "parts": [self.add(one) for one in arguments]}
        if origin in (set, frozenset) and len(arguments) == 1:
            form = _FROZEN if origin is frozenset else _AUTOMATIC
            return {"kind": _SET, "parts": [self.add(arguments[0])], "form": form}
        if origin is dict and len(arguments) == 2:
            return {"kind": _MAP, "parts": [self.add(one) for one in arguments]}
        if _is_union(origin):
            some = [one for one in arguments if one is not type(None)]
            if len(some) == len(arguments):
                return {"kind": _VARIANT, "parts": [self.add(one) for one in some]}
            return {"kind": _OPTIONAL, "parts": [self.add(some[0] if len(some) == 1 else typing.Union[tuple(some)])]}
        raise _unusable(annotation)


def _element(annotation: Any) -> Any:
    if typing.get_origin(annotation) is not list:
        raise _unusable(annotation)
    return typing.get_args(annotation)[0]


def is_message(annotation: Any) -> bool:
    """True for a class of messages of Protocol Buffers, without importing their package."""
    return hasattr(annotation, "DESCRIPTOR") and hasattr(annotation, "FromString") and hasattr(annotation, "SerializeToString")


def _is_union(origin: Any) -> bool:
    # Python 3.9 has no types.UnionType. A class that is not generic has no origin.
    return origin is typing.Union or (origin is not None and origin is getattr(types, "UnionType", None))


def _unusable(annotation: Any) -> TypeError:
    return TypeError(
        f"hawser: {annotation!r} cannot travel. Use bool, int, float, str, bytes, list[T], tuple[...], set[T], "
        "dict[K, V], Optional[T], Union[...], datetime.timedelta, IntEnum, dataclasses, messages of Protocol Buffers, or hawser.Int32 and its like"
    )


def _describe(annotation: Any, open_structs: tuple[Any, ...] = ()) -> str:
    """The description of a type for signatures, as docs/wire-format.md has it."""
    if annotation is bool:
        return "b"
    if annotation is int:
        return "i8"
    if annotation is float:
        return "f8"
    if annotation is str:
        return "Sc1"
    if annotation in (bytes, bytearray, memoryview):
        return "Su1"
    if annotation is datetime.timedelta:
        return "D1.1000000.i8"
    if isinstance(annotation, type) and issubclass(annotation, enum.IntEnum):
        return "i4"
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        if annotation in open_structs:
            return f"R{open_structs.index(annotation)}."
        hints = typing.get_type_hints(annotation, include_extras=True)
        fields = [hints[field.name] for field in dataclasses.fields(annotation)]
        base = getattr(annotation, "hawser_base_fields", None)
        inner = (annotation, *open_structs)
        if base is None:
            return "(" + "".join(_describe(one, inner) for one in fields) + ")"
        return "E" + "".join(_describe(one, inner) for one in fields[:base]) + ")"
    if isinstance(annotation, type) and is_message(annotation):
        return "Xprotobuf;"
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        for mark in arguments[1:]:
            if isinstance(mark, Number):
                return f"{mark.letter}{mark.size}"
            if isinstance(mark, Array):
                return f"A{mark.count}.{_describe(_element(arguments[0]), open_structs)}"
        return _describe(arguments[0], open_structs)
    parts = [_describe(one, open_structs) for one in arguments if one is not Ellipsis and one is not type(None)]
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
        return "S" + parts[0]
    if origin is tuple:
        return "(" + "".join(parts) + ")"
    if origin in (set, frozenset):
        return "K" + parts[0]
    if origin is dict:
        return "M" + "".join(parts)
    if _is_union(origin):
        inner_text = parts[0] if len(parts) == 1 else f"V{len(parts)}." + "".join(parts)
        return inner_text if len(parts) == len(arguments) else "O" + inner_text
    raise _unusable(annotation)


_ITERATORS = (collections.abc.AsyncIterator, collections.abc.AsyncGenerator)


def _stream_of(annotation: Any) -> tuple[Optional[type], Any]:
    """Reader or Writer and the type of the items, or None and the type of an argument."""
    origin = typing.get_origin(annotation)
    if origin in _ITERATORS:
        return Reader, typing.get_args(annotation)[0]
    if origin in (Reader, Writer):
        return origin, typing.get_args(annotation)[0]
    if annotation in (Reader, Writer):
        raise TypeError(f"hawser: {annotation.__name__} needs the type of its items, such as {annotation.__name__}[int]")
    return None, annotation


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of Python as a method: its types, and whether a context precedes its arguments."""

    method: _hawser.Method
    takes_context: bool
    ends: tuple[type, ...]
    """Reader and Writer, in the order of the function's last parameters. A generator has its Writer in none."""


def signature_of(function: Callable[..., Any], name: Optional[str], context: Optional[type]) -> Signature:
    """Makes the method that the annotations of ``function`` declare. ``context`` is the class that a first parameter
    may have beside the arguments."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and context is not None and hints.get(parameters[0].name) is context
    if takes_context:
        parameters = parameters[1:]
    arguments: list[Any] = []
    incoming: list[Any] = []
    outgoing: list[Any] = []
    ends: list[type] = []
    for parameter in parameters:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"hawser: the parameter {parameter.name} of {function.__qualname__} is not positional")
        if parameter.name not in hints:
            raise TypeError(f"hawser: the parameter {parameter.name} of {function.__qualname__} has no annotation")
        end, item = _stream_of(hints[parameter.name])
        if end is None and ends:
            raise TypeError(f"hawser: the streams of {function.__qualname__} are not its last parameters")
        if end is None:
            arguments.append(item)
        else:
            (incoming if end is Reader else outgoing).append(item)
            ends.append(end)
    result = hints.get("return", type(None))
    if typing.get_origin(result) in _ITERATORS:
        outgoing.append(typing.get_args(result)[0])
        result = type(None)
    if len(incoming) > 1 or len(outgoing) > 1:
        raise TypeError(f"hawser: {function.__qualname__} has more than one stream in one direction")
    method_name = name if name is not None else function.__name__
    return Signature(make_method(method_name, arguments, incoming, outgoing, result), takes_context, tuple(ends))


def make_method(name: str, arguments: list[Any], incoming: list[Any], outgoing: list[Any], result: Any) -> _hawser.Method:
    """Makes a method from the annotations of its arguments, of the items of its streams, of which there is one at most
    in each direction, and of its result."""
    collected = _Types()
    text = "F" + "".join(_describe(one) for one in arguments)
    text += "".join("<" + _describe(one) for one in incoming) + "".join("|" + _describe(one) for one in outgoing)
    text += ">" + ("v" if result is type(None) else _describe(result))
    return _hawser.make_method(
        name=name,
        id=_fnv32(name),
        signature=_fnv64_folded(text),
        arguments=[collected.add(one) for one in arguments],
        result=None if result is type(None) else collected.add(result),
        incoming=collected.add(incoming[0]) if incoming else None,
        outgoing=collected.add(outgoing[0]) if outgoing else None,
        types=collected.list,
        files=list(collected.files.values()),
    )


def make_struct(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    """The class for a struct that a server describes: a dataclass where the names allow it."""
    short = name.replace(">", "").rsplit("::", 1)[-1] or "Struct"
    usable = all(one.isidentifier() and not keyword.iskeyword(one) for one in fields)
    if not usable or not short.isidentifier() or keyword.iskeyword(short) or len(set(fields)) != len(fields):
        return types.SimpleNamespace
    return dataclasses.make_dataclass(short, fields)
