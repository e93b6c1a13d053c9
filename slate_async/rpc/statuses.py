"""Errors as statuses of gRPC, and back.

A status has a code, which every client knows, and a text. Beside it a trailer says which error it was, with what it
knew, so that our own client raises the very same one.

Rule: a text names what the error names, and never a token or a password.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import grpc

from slate_async.errors import (
    ClosedError,
    ConfigError,
    ConflictError,
    CorruptionError,
    FencedError,
    InternalError,
    InvalidError,
    NotFoundError,
    Outcome,
    SlateError,
    UnavailableError,
)

TRAILER: Final = "slate-error-bin"
MAX_TEXT: Final = 1_500
"""Characters; a status travels in a header, for which 8 KiB are the usual limit."""
KEPT: Final = ("outcome", "reason", "object_name", "offset", "append_id")
"""What of an error travels, besides its text."""
Code = grpc.StatusCode


class StatusError(SlateError):
    """Raised by a service for what has a status of its own and none of the seven kinds: ``code`` says which."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message, outcome="not_applied")
        self.code = code


CODES: Final[tuple[tuple[type[SlateError], grpc.StatusCode], ...]] = (
    (NotFoundError, Code.NOT_FOUND),
    (ConfigError, Code.FAILED_PRECONDITION),
    (InvalidError, Code.INVALID_ARGUMENT),
    (FencedError, Code.ABORTED),
    (ConflictError, Code.ABORTED),
    (UnavailableError, Code.UNAVAILABLE),
    (ClosedError, Code.UNAVAILABLE),
    (CorruptionError, Code.DATA_LOSS),
    (InternalError, Code.INTERNAL),
)
KINDS: Final[Mapping[str, type[SlateError]]] = {kind.__name__: kind for kind, _ in CODES}
FROM_CODES: Final[Mapping[grpc.StatusCode, type[SlateError]]] = {
    Code.NOT_FOUND: NotFoundError,
    Code.INVALID_ARGUMENT: InvalidError,
    Code.OUT_OF_RANGE: InvalidError,
    Code.UNIMPLEMENTED: ConfigError,
    Code.FAILED_PRECONDITION: ConfigError,
    Code.UNAUTHENTICATED: ConfigError,
    Code.PERMISSION_DENIED: ConfigError,
    Code.ABORTED: ConflictError,
    Code.ALREADY_EXISTS: ConflictError,
}
"""What a status means that has no trailer; any other one is `UnavailableError`."""
REFUSED: Final = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED)
"""Codes of calls that were not begun."""


def status_of(error: SlateError, code: grpc.StatusCode | None = None) -> tuple[grpc.StatusCode, str, bytes]:
    """Code, text and trailer. ``code``: another one than that of the error's kind."""
    if isinstance(error, StatusError):
        return error.code, _text(error), b""
    if code is None:
        code = next((code for kind, code in CODES if isinstance(error, kind)), Code.INTERNAL)
    text = _text(error)
    known = {name: value for name in KEPT if (value := getattr(error, name, None)) is not None}
    if isinstance(error, UnavailableError) and known.get("outcome") == "unknown":
        text += f" (outcome=unknown{_named(known.get('append_id'))})"
    kinds = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, SlateError)]
    trailer = json.dumps({"kinds": kinds, "message": _text(error), **known}).encode()
    return code, text, trailer


def error_of(
    failed: grpc.aio.AioRpcError, *, outcome: Outcome | None, kinds: Mapping[str, type[SlateError]] = KINDS
) -> SlateError:
    """The error that a server answered with, or that ended the call.

    outcome: of a write of which the status says nothing else; ``None`` for reads
    kinds: errors that may come, by name, besides those of `slate_async.errors`"""
    for name, value in failed.trailing_metadata() or ():
        if name == TRAILER and isinstance(value, bytes):
            made = _restored(value, {**KINDS, **kinds})
            if made is not None:
                return made
    code, text = failed.code(), failed.details() or "no answer"
    kind = FROM_CODES.get(code, UnavailableError)
    if code is Code.RESOURCE_EXHAUSTED and "larger than max" in text:
        kind = InvalidError
    if outcome is not None and (code in REFUSED or issubclass(kind, InvalidError)):
        outcome = "not_applied"
    return kind(f"{text} ({code.name})", outcome=outcome)


def _restored(trailer: bytes, kinds: Mapping[str, type[SlateError]]) -> SlateError | None:
    try:
        said: Any = json.loads(trailer)
        names, message = said["kinds"], str(said["message"])
        kind = next(kinds[name] for name in names if name in kinds)
    except (ValueError, LookupError, TypeError, StopIteration):
        return None
    error = kind.__new__(kind, message)
    error.args = (message,)
    attributes: dict[str, Any] = {"outcome": None}
    if isinstance(error, ConflictError):
        attributes |= {"key": None, "reason": None}
    if isinstance(error, CorruptionError):
        attributes |= {"object_name": "", "offset": 0}
    error.__dict__.update({**attributes, **{name: said[name] for name in KEPT if name in said}})
    return error


def _text(error: SlateError) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def _named(append_id: Any) -> str:
    return "" if append_id is None else f", append_id={json.dumps(append_id)}"
