"""From merged versions to what a read returns: the newest visible version of each key, if it is alive.

Visible: sequence number up to the reader's. Alive: a put that has not expired; a tombstone or an expired row hides
its key, older versions included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np
import numpy.typing as npt

from slate_async.errors import InternalError
from slate_async.format.columns import Columns
from slate_async.read.merge import (
    MergedRows,
    Stream,
    close_stream,
    first_row_after,
    key_at,
    same_key_as_previous,
)
from slate_async.read.reverse import WholeKeys
from slate_async.runtime.turns import FairTurns
from slate_async.types import DELETE, MERGE, PUT, RowHit


def live_hit(hit: RowHit, now_ms: int) -> RowHit | None:
    """``hit`` if it is alive at ``now_ms``. Raises `InternalError` for a merge operand."""
    if hit.kind == PUT:
        return hit if hit.expire_ms > now_ms else None
    if hit.kind == DELETE:
        return None
    raise _unknown_kind(hit.kind)


def live_value(row: bytes | RowHit | None, now_ms: int) -> bytes | None:
    """The value of a row that is alive at ``now_ms``; bytes are one that never expires. Raises as `live_hit`."""
    if isinstance(row, RowHit):
        hit = live_hit(row, now_ms)
        return None if hit is None else hit.value
    return row


def newest_visible(columns: Columns, max_seq: int) -> npt.NDArray[np.int64]:
    """Of each key the row of its newest version up to ``max_seq``; keys without one are left out.

    ``columns`` are sorted by key, then newest first.
    """
    visible = columns.seqs <= max_seq
    new_key = np.ones(len(columns), np.bool_)
    np.logical_not(same_key_as_previous(columns), out=new_key[1:])
    if visible.all():
        return np.flatnonzero(new_key)
    rows = np.flatnonzero(visible)
    if not rows.size:
        return rows
    key_numbers = np.cumsum(new_key)[rows]
    first = np.ones(len(rows), np.bool_)
    np.not_equal(key_numbers[1:], key_numbers[:-1], out=first[1:])
    return rows[first]


def live_rows(columns: Columns, *, max_seq: int, now_ms: int) -> Columns:
    """The rows of ``columns`` a reader sees. ``columns`` hold every version of their keys, sorted.

    Raises `InternalError` for a merge operand.
    """
    if not len(columns):
        return columns
    rows = newest_visible(columns, max_seq)
    kinds = columns.kinds[rows]
    if np.any(kinds >= MERGE):
        raise _unknown_kind(int(kinds.max()))
    alive = kinds == PUT
    if columns.expire_ms is not None:
        alive &= columns.expire_ms[rows] > now_ms
    return _pick(columns, rows[alive])


def _pick(columns: Columns, rows: npt.NDArray[np.int64]) -> Columns:
    if not rows.size:
        return columns.slice(0, 0)
    low, stop = int(rows[0]), int(rows[-1]) + 1
    return columns.slice(low, stop) if stop - low == len(rows) else columns.take(rows)


def _unknown_kind(kind: int) -> InternalError:
    return InternalError(f"a row of kind {kind} (a merge operand), which this version cannot read; use a newer one")


class LiveRows(AsyncIterator[Columns]):
    """What a reader at ``max_seq`` and ``now_ms`` sees of ``streams`` (newest first), in batches that are never empty.

    Gives the event loop a turn when batches come faster than its budget. In reverse the batches come from the end,
    the rows inside ascending. A step that was cancelled or failed leaves it unusable; `aclose` it.
    """

    def __init__(
        self, streams: Sequence[Stream], *, max_seq: int, now_ms: int, turns: FairTurns, reverse: bool = False
    ) -> None:
        self._batches = _merged(streams, reverse)
        self._max_seq = max_seq
        self._now_ms = now_ms
        self._turns = turns
        self._reverse = reverse
        self._decided: bytes | None = None
        self._whole: Columns | None = None

    async def __anext__(self) -> Columns:
        while True:
            if self._turns.overdue():
                await self._turns.give()
            batch = await anext(self._batches)
            if batch.seen_from is not None and batch.seen_from <= self._max_seq:
                self._whole = batch
                return batch
            batch = self._undecided(batch)
            found = live_rows(batch, max_seq=self._max_seq, now_ms=self._now_ms)
            if len(found):
                return found

    def _undecided(self, batch: Columns) -> Columns:
        """``batch`` without the key whose newest visible version came in an earlier batch.

        A key that is spread over batches shows its newest version first (a single row per batch in reverse).
        """
        if self._whole is not None:
            self._decided = key_at(self._whole, 0 if self._reverse else -1)
            self._whole = None
        if len(batch) and self._decided is not None and key_at(batch, 0) == self._decided:
            batch = batch.slice(first_row_after(batch, self._decided), len(batch))
        visible = np.flatnonzero(batch.seqs <= self._max_seq)
        if visible.size:
            self._decided = key_at(batch, int(visible[0 if self._reverse else -1]))
        return batch

    async def aclose(self) -> None:
        """Close the streams. Idempotent."""
        await close_stream(self._batches)


def _merged(streams: Sequence[Stream], reverse: bool) -> AsyncIterator[Columns]:
    """Batches that show each key's versions newest first, in reverse those of a key in one batch."""
    if len(streams) != 1:
        return MergedRows(streams, reverse=reverse)
    alone = streams[0].batches
    return WholeKeys(alone) if reverse else alone
