"""Errors of calls as exceptions."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """Kind of an error, named for the caller's remedy. The values are part of the wire format."""

    INVALID_ARGUMENT = 1
    UNKNOWN_METHOD = 2
    SIGNATURE_MISMATCH = 3
    CANCELLED = 4
    DEADLINE_EXCEEDED = 5
    OVERLOADED = 6
    NOT_SENT = 7
    OUTCOME_UNKNOWN = 8
    UNAVAILABLE = 9
    PROTOCOL_ERROR = 10
    LIMIT_EXCEEDED = 11
    APPLICATION = 12
    INTERNAL = 13
    STALE_HANDLE = 14
    PERMISSION_DENIED = 15
    UNAUTHENTICATED = 16


class ErrorScope(enum.IntEnum):
    """The part that an error affects."""

    CALL = 0
    CONNECTION = 1
    TRANSPORT = 2


class Initiator(enum.IntEnum):
    """The side that caused an error."""

    LOCAL = 0
    PEER = 1


_NOT_EXECUTED = frozenset(
    {
        ErrorCode.OVERLOADED,
        ErrorCode.NOT_SENT,
        ErrorCode.UNAVAILABLE,
        ErrorCode.UNKNOWN_METHOD,
        ErrorCode.SIGNATURE_MISMATCH,
    }
)


def plain_text(text: object) -> str:
    """The text of an error, without what UTF-8 does not have."""
    return str(text).encode("utf-8", "backslashreplace").decode()


class Error(Exception):
    """A call failed. A handler raises it to answer with an error of its own.

    ``application_code`` is the handler's own number, of 32 bits and with ``ErrorCode.APPLICATION`` only.
    """

    def __init__(
        self,
        text: str,
        *,
        code: ErrorCode = ErrorCode.APPLICATION,
        application_code: int = 0,
        scope: ErrorScope = ErrorScope.CALL,
        initiator: Initiator = Initiator.LOCAL,
    ) -> None:
        if not -(2**31) <= application_code < 2**31:
            raise ValueError(f"hawser: application_code {application_code} is outside the range of 32 bits")
        super().__init__(text)
        self.text: str = plain_text(text)
        self.code: ErrorCode = ErrorCode(code)
        self.application_code = application_code
        self.scope = scope
        self.initiator = initiator

    @property
    def not_executed(self) -> bool:
        """True if the call was certainly not executed, so that it may be sent again."""
        return self.code in _NOT_EXECUTED

    def __str__(self) -> str:
        name = self.code.name.lower()
        number = f" {self.application_code}" if self.code == ErrorCode.APPLICATION else ""
        return f"{name}{number}: {self.text}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_make, (int(self.code), int(self.scope), int(self.initiator), self.application_code, self.text))


class DeadlineExceeded(Error, TimeoutError):
    """The deadline of the call has passed. The call may have been executed."""


def _make(code: int, scope: int, initiator: int, application_code: int, text: str) -> Error:
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.INTERNAL
    kind = DeadlineExceeded if known == ErrorCode.DEADLINE_EXCEEDED else Error
    return kind(
        text,
        code=known,
        application_code=application_code,
        scope=ErrorScope(scope),
        initiator=Initiator(initiator),
    )
