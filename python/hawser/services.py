"""Services of .proto files, for the modules that hawser.protoc generates."""

from __future__ import annotations

from typing import Any, AsyncIterator, ClassVar, Mapping, TypeVar

from . import _hawser, _types
from ._client import Remote
from ._errors import Error, ErrorCode

T = TypeVar("T")


def unary(name: str, request: type[Any], reply: type[T]) -> Remote[T]:
    """Declares a method, such as "shop.Orders/Place", with its messages."""
    return Remote(_types.make_method(name, [request], [], [], reply))


def client_streaming(name: str, request: type[Any], reply: type[T]) -> Remote[T]:
    return Remote(_types.make_method(name, [], [request], [], reply))


def server_streaming(name: str, request: type[Any], reply: type[T]) -> Remote[AsyncIterator[T]]:
    return Remote(_types.make_method(name, [request], [], [reply], type(None)))


def bidirectional(name: str, request: type[Any], reply: type[T]) -> Remote[AsyncIterator[T]]:
    return Remote(_types.make_method(name, [], [request], [reply], type(None)))


class Service:
    """The base of generated classes whose methods are handlers. Server.add_service() serves them."""

    hawser_methods: ClassVar[Mapping[str, Remote[Any]]] = {}
    """The declared methods by the names of the handlers."""


def unimplemented(name: str) -> Error:
    """The error of a method that is not overridden. A client of gRPC receives UNIMPLEMENTED."""
    text = f"'{name}' is declared by its service and not implemented here"
    return Error(text, code=ErrorCode.UNKNOWN_METHOD, application_code=_hawser.unimplemented_mark)
