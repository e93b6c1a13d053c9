"""Names that callers give to their commits, so that the same again is answered with the first outcome.

Either an application and a number, which stands in the head until the application is forgotten. Or a plain string,
which stands in the link of its commit, and counts for seven days. A whole link has those of its chain that still count.

Time is that of heads, which never goes back. So what counts is the end of the list, and a fold may drop the others
sooner or later: the result is the same.

Rule T1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.errors import InvalidError

KEPT_MS: Final = 7 * 24 * 3_600_000
"""For so long a plain string counts."""
MAX_IDS: Final = 100_000
"""So many plain strings count, the last ones."""
IDS: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time_ms", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)
"""Plain strings in the order of their commits: the time and version of each one's, and its rows."""


class AppendId(NamedTuple):
    """What a caller named a commit. ``n``: its number; ``None`` for a plain string, which is ``app`` then."""

    app: str
    n: int | None = None

    @property
    def mark(self) -> str:
        """Under which name the head keeps the number."""
        return f"app:{self.app}"

    @classmethod
    def of(cls, given: object) -> AppendId | None:
        """From an argument. Raises `InvalidError`."""
        if given is None:
            return None
        app, n = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if isinstance(given, tuple) and n is None:
            raise InvalidError(f"append_id= is a string, or a name and a number, not {given!r}", outcome="not_applied")
        if not isinstance(app, str):
            raise InvalidError(f"append_id= is a string, or a name and a number, not {given!r}", outcome="not_applied")
        if not 0 < len(app.encode("utf-8", "surrogatepass")) <= 255 or not _is_text(app):
            raise InvalidError(f"an append_id or an application has 1 to 255 bytes, not {app!r}", outcome="not_applied")
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or not 0 < n < 2**63):
            raise InvalidError(f"an application numbers its appends from 1, not {n!r}", outcome="not_applied")
        return cls(app, n)


class FirstOutcome(NamedTuple):
    """How a commit ended that was in already. ``version``: ``None`` if a later one of its application is in."""

    version: int | None
    rows: int


def ids_of(rows: Sequence[tuple[str, int, int, int]]) -> pa.Table:
    """As `IDS`."""
    return pa.Table.from_pylist([dict(zip(IDS.names, row, strict=True)) for row in rows], schema=IDS)


def counting(ids: pa.Table) -> pa.Table:
    """Those of ``ids`` that count, by the time of the last one."""
    if not ids.num_rows:
        return ids
    ids = ids.slice(max(0, ids.num_rows - MAX_IDS))
    oldest = ids.column("time_ms")[-1].as_py() - KEPT_MS
    if ids.column("time_ms")[0].as_py() >= oldest:
        return ids
    return ids.slice(pc.sum(pc.less(ids.column("time_ms"), oldest)).as_py())


def outcome_of(ids: pa.Table, name: str, now_ms: int) -> FirstOutcome | None:
    """How the commit ended that was named ``name``; ``None`` if there is none that counts."""
    at = pc.index(ids.column("id"), name).as_py() if ids.num_rows else -1
    if at < 0 or ids.column("time_ms")[at].as_py() < now_ms - KEPT_MS:
        return None
    return FirstOutcome(ids.column("version")[at].as_py(), ids.column("rows")[at].as_py())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
