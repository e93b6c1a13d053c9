"""Exit codes, and how an error becomes one line for people or one object for programs.

======  ==================================================================================
code    meaning
======  ==================================================================================
0       done
1       the key is not there, or rows of a loaded file were bad
2       the call is wrong: bad option, bad setting, no such database (``InvalidError``)
3       a store or metastore did not answer in time (``UnavailableError``)
4       stored bytes are wrong (``CorruptionError``)
5       somebody else won: another writer, another table (``FencedError``, ``ConflictError``)
6       ``verify`` went through, and found something wrong
7       the ingest is committed, and no writer has applied it in time (``IngestPendingError``)
70      a bug, or an error of no known kind (``InternalError``)
130     interrupted with Ctrl-C
143     told to end (SIGTERM)
141     whoever read the output went away (``slate scan | head``)
======  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

import slate_async
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreInvalidError,
    MetaStoreNotFoundError,
    MetaStoreUnavailableError,
)
from slate_async.cli.signals import Terminated
from slate_async.engine.ingest.manage import IngestPendingError
from slate_async.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidError,
    SlateError,
    UnavailableError,
)
from slate_async.storage.manifest.edits.protocol import DestroyedError

OK = 0
NEGATIVE = 1
USAGE = 2
UNAVAILABLE = 3
CORRUPT = 4
LOST = 5
FINDINGS = 6
INGEST_PENDING = 7
BUG = 70
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141


class AppliedError(ConflictError):
    """The ingest that should be aborted was applied before."""


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (IngestPendingError, INGEST_PENDING),
    (InvalidError, USAGE),
    (MetaStoreInvalidError, USAGE),
    (UnavailableError, UNAVAILABLE),
    (MetaStoreUnavailableError, UNAVAILABLE),
    (CorruptionError, CORRUPT),
    (MetaStoreCorruptionError, CORRUPT),
    (FencedError, LOST),
    (ConflictError, LOST),
    (KeyboardInterrupt, INTERRUPTED),
    (Terminated, TERMINATED),
    (BrokenPipeError, BROKEN_PIPE),
    (OSError, USAGE),
)
"""First match wins. An `OSError` left over is about a local file the caller named."""

_NAMES: tuple[tuple[type[BaseException], str], ...] = (
    (MetaStoreNotFoundError, "NotFoundError"),
    (MetaStoreInvalidError, "ConfigError"),
    (MetaStoreUnavailableError, "UnavailableError"),
    (MetaStoreCorruptionError, "CorruptionError"),
    (KeyboardInterrupt, "Interrupted"),
    (Terminated, "Interrupted"),
    (OSError, "InvalidError"),
)
"""Public names of what is not a `SlateError`."""
_IN_WORDS_OF_THE_COMMAND_LINE = (
    ("open it with create=True to make one", "check --path, or make it with `slate put`"),
    ("check the path and the metastore", "check --path and --metastore; `slate put` makes one"),
    ("open it with pin=False", "give --no-pin"),
    ("destroy it softly (soft=True)", "give --soft"),
    ("(metastore=...)", "with --metastore"),
    ("one of full, a range, and a level", "one of --full, --range and --level"),
)
"""What the engine advises, and how that is done here."""

RUN_AGAIN = "run the command again"
_ADVICE: dict[type[SlateError], str] = {
    IngestPendingError: "",
    AppliedError: "",
    DestroyedError: "choose another path",
    FencedError: f"somebody else took over; {RUN_AGAIN} to take it back",
    UnavailableError: "the store did not answer; try again later",
    CorruptionError: "stored bytes are wrong; restore them, repeating does not help",
    ConflictError: "somebody else changed it first; look, then try again",
}
"""What to do next; empty where the error says it itself. First match wins."""


def exit_code(error: BaseException) -> int:
    """The exit code for an error; a `ClosedError` counts as what closed the database."""
    for cause in _reasons(error):
        for kind, code in _CODES:
            if isinstance(cause, kind):
                return code
    return BUG


def explain(error: BaseException, again: str = RUN_AGAIN) -> str:
    """One line: what happened and what to do next. A bare error of no known kind shows its type.

    again: how the database is opened once more"""
    reason = next(iter(_reasons(error)))
    if isinstance(reason, OSError):
        name = f"{reason.filename}: " if reason.filename else ""
        return f"{name}{reason.strerror or reason}"
    text = _text(reason) if exit_code(reason) != BUG or isinstance(reason, SlateError) else f"bug: {reason!r}"
    advice = next((words for kind, words in _ADVICE.items() if isinstance(reason, kind)), None)
    return f"{text} ({advice.replace(RUN_AGAIN, again)})" if advice else text


def as_json(error: BaseException) -> dict[str, object]:
    """The error as one JSON object; ``error`` is a public name of `slate_async`, or "Interrupted"."""
    reason = next(iter(_reasons(error)))
    return {
        "error": _public_name(reason),
        "message": _text(reason),
        "outcome": getattr(error, "outcome", None),
        "exit_code": exit_code(error),
    }


def _public_name(error: BaseException) -> str:
    for kind in type(error).__mro__:
        name: str = kind.__name__
        if getattr(slate_async, name, None) is kind:
            return name
    return next((name for kind, name in _NAMES if isinstance(error, kind)), "InternalError")


def _text(error: BaseException) -> str:
    """What the error says, with the engine's advice in words of the command line."""
    text = str(error)
    for engine, here in _IN_WORDS_OF_THE_COMMAND_LINE:
        text = text.replace(engine, here)
    return text or _public_name(error).lower()


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """The error, or what is behind it where it only reports something else (a closed database, a group)."""
    if isinstance(error, BaseExceptionGroup):
        yield from _reasons(error.exceptions[0])
    elif isinstance(error, ClosedError) and error.__cause__ is not None:
        yield from _reasons(error.__cause__)
    else:
        yield error
