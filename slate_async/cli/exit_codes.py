"""Exit codes, and which one an error has.

======  ==================================================================================
code    meaning
======  ==================================================================================
0       done
1       the key is not there, or rows of a loaded file were bad
2       the call is wrong: bad option, bad setting, no such database (``InvalidError``)
3       a store or metastore did not answer in time (``UnavailableError``)
4       stored bytes are wrong (``CorruptionError``)
5       another process won: another writer, another table (``FencedError``, ``ConflictError``)
6       ``verify`` went through, and found something wrong
7       the ingest is committed, and no writer has applied it in time (``IngestPendingError``)
70      a bug, or an error of no known kind (``InternalError``)
130     interrupted with Ctrl-C
143     terminated (SIGTERM)
141     the reader of the output closed the pipe (``slate scan | head``)
======  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator

from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreInvalidError,
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
    UnavailableError,
)

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


def exit_code(error: BaseException) -> int:
    """The exit code for an error; a `ClosedError` counts as what closed the database."""
    for cause in reasons(error):
        for kind, code in _CODES:
            if isinstance(cause, kind):
                return code
    return BUG


def reasons(error: BaseException) -> Iterator[BaseException]:
    """The error, or what is behind it where it only reports something else (a closed database, a group)."""
    if isinstance(error, BaseExceptionGroup):
        yield from reasons(error.exceptions[0])
    elif isinstance(error, ClosedError) and error.__cause__ is not None:
        yield from reasons(error.__cause__)
    else:
        yield error
