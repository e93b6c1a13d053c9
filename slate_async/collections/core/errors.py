"""Errors of persistent collections that are narrower than the kinds of `slate_async.errors`."""

from __future__ import annotations

from slate_async.collections.core.frontier import Frontier
from slate_async.errors import ConflictError, InvalidError, Outcome


class SinceError(InvalidError):
    """The collection no longer tells apart the times that the call asks about: they are before ``since``; where a
    listener starts, ``since`` has to be a step before that.

    Ask at a later time, or hold ``since`` back with a handle of its own."""

    since: Frontier
    """What times may have been compacted to."""

    def __init__(self, message: str, *, since: Frontier) -> None:
        super().__init__(message)
        self.since = since


class SumError(InvalidError):
    """The differences of one data and time add up to more than int64 holds. Nothing is lost: append updates that bring
    the sum back, ask for an earlier time, or leave the data out by ``where``."""


class LeaseLostError(ConflictError):
    """The lease of a read handle ran out and the handle was revoked. Acquire another one, or read through a critical
    handle, which has no lease."""


class TokenMismatchError(ConflictError):
    """Another process changed a critical hold: its token is not the expected one. Go on from ``token`` and ``since``,
    or stop, because another one does this work."""

    token: str
    """The token that the hold has."""
    since: Frontier
    """What the hold keeps."""

    def __init__(self, message: str, *, token: str, since: Frontier, outcome: Outcome | None = "not_applied") -> None:
        super().__init__(message, outcome=outcome)
        self.token = token
        self.since = since


class UpperMismatchError(ConflictError):
    """An append expected the collection to end elsewhere than it does. Go on from ``upper``."""

    upper: Frontier
    """Where the collection ends."""

    def __init__(self, message: str, *, upper: Frontier, outcome: Outcome | None = "not_applied") -> None:
        super().__init__(message, outcome=outcome)
        self.upper = upper
