"""What the command line says of an error: one line for people, or one object for programs."""

from __future__ import annotations

import slate_async
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreInvalidError,
    MetaStoreNotFoundError,
    MetaStoreUnavailableError,
)
from slate_async.cli.exit_codes import BUG, AppliedError, exit_code, reasons
from slate_async.cli.signals import Terminated
from slate_async.engine.ingest.manage import IngestPendingError
from slate_async.errors import ConflictError, CorruptionError, FencedError, SlateError, UnavailableError
from slate_async.storage.manifest.edits.protocol import DestroyedError

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
    ("one of full, a key range and a level", "one of --full, --range and --level"),
)
"""What the engine advises, and how that is done here."""

RUN_AGAIN = "run the command again"
_ADVICE: dict[type[SlateError], str] = {
    IngestPendingError: "",
    AppliedError: "",
    DestroyedError: "choose another path",
    FencedError: f"another process took over; {RUN_AGAIN} to take it back",
    UnavailableError: "the store did not answer; try again later",
    CorruptionError: "stored bytes are wrong; restore them, repeating does not help",
    ConflictError: "another process changed it first; look, then try again",
}
"""What to do next; empty where the error says it itself. First match wins."""


def explain(error: BaseException, again: str = RUN_AGAIN) -> str:
    """One line: what happened and what to do next. A bare error of no known kind shows its type.

    again: how the database is opened once more"""
    reason = next(iter(reasons(error)))
    if isinstance(reason, OSError):
        name = f"{reason.filename}: " if reason.filename else ""
        return f"{name}{reason.strerror or reason}"
    text = _text(reason) if exit_code(reason) != BUG or isinstance(reason, SlateError) else f"bug: {reason!r}"
    advice = next((words for kind, words in _ADVICE.items() if isinstance(reason, kind)), None)
    return f"{text} ({advice.replace(RUN_AGAIN, again)})" if advice else text


def as_json(error: BaseException) -> dict[str, object]:
    """The error as one JSON object; ``error`` is a public name of `slate_async`, or "Interrupted"."""
    reason = next(iter(reasons(error)))
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
