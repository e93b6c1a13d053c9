"""Rows of SSTs that were put in the order of their sequence numbers beyond what was asked for, kept for the next call.

To find a range of sequence numbers in SSTs that were compacted, all of them are read, however short it is. So a process
that reads one short range after another, in calls of their own, keeps what each has found besides.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from slate_async.engine.changes.order import above
from slate_async.engine.changes.selection import Selected


class StateName(NamedTuple):
    """Says which manifest state rows were found in."""

    database_id: UUID
    version: int


class ReadAhead:
    """The rows that were found last, ``sort_memory_bytes`` of them or so."""

    def __init__(self) -> None:
        self._state: StateName | None = None
        self._after = 0
        self._found: Selected | None = None

    def above(self, state: StateName, seq: int) -> Selected | None:
        """The rows of ``state`` above ``seq``, if they were kept."""
        found = self._found
        if found is None or state != self._state or not self._after <= seq < found.end:
            return None
        rows = None if found.rows is None else above(found.rows, seq)
        return Selected(rows if rows is not None and len(rows) else None, found.end)

    def keep(self, state: StateName, after: int, found: Selected) -> None:
        """``found`` are the rows of ``state`` above ``after``, in place of what was kept before."""
        self._state, self._after, self._found = state, after, found

    def drop_up_to(self, seq: int) -> None:
        """Rows up to ``seq`` are not asked for again; it costs time only if they are."""
        if self._found is not None and self._found.end <= seq:
            self._found = None
