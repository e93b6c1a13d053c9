r"""Every error slate_async raises, classed by what the caller does next.

======================  ==============================================================
error                   what to do
======================  ==============================================================
``FencedError``         another writer took over; stop, or open again to take over
``ClosedError``         open the database again; ``__cause__`` says why it closed
``ConflictError``       re-read what you based the change on, then try again
``UnavailableError``    it was not done in time, mostly for want of a store's answer;
                        try again later. One is ``IngestPendingError``: a committed
                        ingest waits for a writer
``InvalidError``        the call is wrong; mend the arguments (also a ``ValueError``)
\- ``NotFoundError``    what the call names does not exist, or no longer: create it, or
                        name another one
\- ``ConfigError``      every call fails so: mend the URL, settings, credentials,
                        permissions or packages
``CorruptionError``     stored bytes are wrong; restore them, do not retry
``InternalError``       a bug in slate_async; report it
======================  ==============================================================

Errors of writes carry ``outcome``: ``"not_applied"`` (certainly not in the database, safe to
repeat) or ``"unknown"`` (may or may not be in; read before repeating). It is ``None`` for
errors of reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Outcome = Literal["not_applied", "unknown"]
"""``not_applied``: the call certainly changed nothing; ``unknown``: it may have, or may yet."""


class SlateError(Exception):
    """Base of all errors of this package."""

    outcome: Outcome | None
    """Of a write: ``"not_applied"`` or ``"unknown"``; ``None`` for errors of reads."""
    last_seq: int | None = None
    """Of a watch: all changes up to this sequence number were handed out, so another watch goes on from there."""

    def __init__(self, message: str, *, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome

    def __reduce__(self) -> tuple[Callable[..., SlateError], tuple[type[SlateError], tuple[Any, ...], dict[str, Any]]]:
        """As it is, to another process: constructors take less than an error knows."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[SlateError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SlateError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class FencedError(SlateError):
    """A newer owner of this role (writer, compactor) exists; this one must stop."""


class ClosedError(SlateError):
    """The object is closed. ``__cause__`` holds the reason when it was not closed on purpose."""


class ConflictError(SlateError):
    """A condition did not hold: another process or task changed, created or removed the thing first."""

    key: bytes | None
    """Of a transaction or a conditional write: a key that another write changed, if one is known."""
    reason: str | None
    """Of a transaction or a conditional write: why it was not applied. A transaction names what happened since it
    began: ``"written"``, ``"ingested"``, ``"expired"``; or what it was: ``"too_old"``, ``"too_large"``, or
    ``"reopened"`` (the writer opened the database again). A conditional write names how the row is: ``"present"``,
    ``"absent"``, ``"changed"``. A watch ends with ``"reopened"``, too, or with ``"lagged"``: it was too slow."""

    def __init__(
        self, message: str, *, outcome: Outcome | None = None, key: bytes | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message, outcome=outcome)
        self.key = key
        self.reason = reason


class UnavailableError(SlateError):
    """It was not done in time: a store or metastore did not answer within its retries and deadline, or no writer has
    applied an ingest yet (`slate_async.engine.ingest.manage.IngestPendingError`)."""


class InvalidError(SlateError, ValueError):
    """The request cannot be carried out as asked; nothing was changed."""


class NotFoundError(InvalidError):
    """What the call names does not exist, or no longer. It may be a database, a checkpoint, a bucket or container, a
    table, an SST, a subscription, or history that is not kept."""


class ConfigError(InvalidError):
    """The setup is wrong, so every call fails. It may be a URL, a setting, credentials or permissions, a missing
    package, a store that lacks an ability, or a newer release's database."""


class CorruptionError(SlateError):
    """Stored bytes are not what was written."""

    object_name: str
    """The key of the object."""
    offset: int
    """Where the bad region begins, in bytes from the start of the object."""

    def __init__(self, message: str, *, object_name: str, offset: int = 0) -> None:
        super().__init__(f"{object_name} at byte {offset}: {message}")
        self.object_name = object_name
        self.offset = offset


def said_by(error: CorruptionError) -> str:
    """What is wrong, without where."""
    return str(error).removeprefix(f"{error.object_name} at byte {error.offset}: ")


class InternalError(SlateError):
    """An invariant of slate_async does not hold. Please report it."""


def met_before(cut_off: TimeoutError) -> str:
    """What went wrong last in what was ``cut_off`` between two attempts, as words to add to a message; maybe none."""
    error: BaseException | None = cut_off
    while error is not None:
        if isinstance(error, SlateError):
            return f": {error}"
        error = error.__cause__ or error.__context__
    return ""
