"""What a writer's end means for a write that was not acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from slate_async.errors import ClosedError, FencedError, Outcome, SlateError, UnavailableError
from slate_async.storage.manifest.edits.protocol import DestroyedError

logger = logging.getLogger(__name__)
TWO_WRITERS = (
    "if that was not intended, two processes have it open to write: run one writer for each database, use"
    " open_reader in the others, or let them wait with open(..., standby=True)"
)


def advise(name: str, cause: BaseException | None) -> None:
    """Tell the log what to do about it if database ``name`` ends because another writer took it over."""
    if isinstance(cause, FencedError) and not isinstance(cause, DestroyedError):
        logger.warning("%s: %s", name, TWO_WRITERS)


def write_failure(cause: BaseException | None, outcome: Outcome) -> SlateError:
    """A fresh error for one waiting write: of the cause's kind where the caller's next move depends on it."""
    said = "it is not in the database" if outcome == "not_applied" else "it may or may not be in the database"
    error: SlateError
    if isinstance(cause, FencedError):
        error = FencedError(f"the write was not acknowledged, {said}: {cause}", outcome=outcome)
    elif isinstance(cause, UnavailableError):
        error = UnavailableError(f"the write was not acknowledged, {said}: {cause}", outcome=outcome)
    elif cause is None:
        error = ClosedError(f"the database was closed before the write was acknowledged, {said}", outcome=outcome)
    else:
        error = ClosedError(f"the database failed before the write was acknowledged, {said}: {cause}", outcome=outcome)
    error.__cause__ = cause
    return error


def refused(cause: BaseException) -> SlateError:
    """The error of a write that comes while the log is out of reach and the database is to be opened again."""
    error = UnavailableError(
        f"the store is out of reach, so no write is taken until it answers again: {cause}", outcome="not_applied"
    )
    error.__cause__ = cause
    return error


def raise_not_applied(error: SlateError) -> NoReturn:
    """Raise ``error``, which ended a write before its rows were applied, with that outcome.

    One that has none is of a read on the way, and others may be given the same one: it is raised anew."""
    if error.outcome is not None:
        raise error
    made = type(error).__new__(type(error), *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.outcome = "not_applied"
    raise made from error


@contextmanager
def about_all_written() -> Iterator[None]:
    """Errors of the body are about everything written so far, of which some may be in."""
    try:
        yield
    except (ClosedError, FencedError, UnavailableError) as error:
        error.outcome = "unknown"
        raise


def closed_failure(name: str, cause: BaseException | None, outcome: Outcome | None) -> SlateError:
    """The error of an operation on the database ``name``, which is closed; only that of a write has an outcome."""
    error: SlateError
    if isinstance(cause, DestroyedError):
        error = DestroyedError(f"{name} has ended: {cause}; stop", outcome=outcome)
    elif isinstance(cause, FencedError):
        error = FencedError(
            f"another writer took {name} over, or began to destroy it: {cause}; stop, or open it again to take it back;"
            f" {TWO_WRITERS}",
            outcome=outcome,
        )
    elif cause is None:
        error = ClosedError(f"{name} is closed; open it again", outcome=outcome)
    else:
        error = ClosedError(f"{name} closed itself: {cause}; open it again", outcome=outcome)
    error.__cause__ = cause
    return error
