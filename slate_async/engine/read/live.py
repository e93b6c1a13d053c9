"""From merged versions to what a read returns: the newest visible version of each key, if it is alive.

Visible: sequence number up to the reader's. Alive: a put that has not expired; a tombstone or an expired put hides
its key, older versions included. Operands are merged with the versions below them (`engine.read.operands`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np
import numpy.typing as npt

from slate_async.codec.arrays import number_array
from slate_async.codec.columns import Columns
from slate_async.engine.read.merge import (
    MergedRows,
    Round,
    Stream,
    close_stream,
    edge_key,
    edge_of,
    first_row_after,
    key_at,
    never_nowait,
)
from slate_async.engine.read.operands import WholeChains, merged_rows
from slate_async.engine.read.reverse import WholeKeys
from slate_async.errors import InternalError
from slate_async.merge_operators.guarded import Guarded
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.ordering import Mask, repeated_keys
from slate_async.types import DELETE, MERGE, NEEDS_IO, PUT, NeedsIO, RowHit


def live_hit(hit: RowHit, now_ms: int) -> RowHit | NeedsIO | None:
    """``hit`` if it is alive at ``now_ms``. `NEEDS_IO` of an operand: the rows below it count, too."""
    if hit.kind == PUT:
        return hit if hit.expire_ms > now_ms else None
    return None if hit.kind == DELETE else NEEDS_IO


def live_value(row: bytes | RowHit | None, now_ms: int) -> bytes | NeedsIO | None:
    """The value of a row that is alive at ``now_ms``; bytes are one that never expires. `NEEDS_IO` as of
    `live_hit`."""
    if isinstance(row, RowHit):
        hit = live_hit(row, now_ms)
        return hit.value if isinstance(hit, RowHit) else hit
    return row


def newest_visible(seqs: npt.NDArray[np.uint64], repeats: Mask, max_seq: int) -> npt.NDArray[np.int64]:
    """Of each key the place of its newest version up to ``max_seq``; keys without one are left out.

    ``seqs`` are in the order of the keys, then newest first; ``repeats`` says which places have the key before."""
    visible = seqs <= max_seq
    if visible.all():
        return np.flatnonzero(~repeats)
    places = np.flatnonzero(visible)
    if not places.size:
        return places
    key_numbers = np.cumsum(~repeats)[places]
    first = np.ones(len(places), np.bool_)
    np.not_equal(key_numbers[1:], key_numbers[:-1], out=first[1:])
    return places[first]


def live_rows(found: Round, *, max_seq: int, now_ms: int, merging: Guarded | None = None) -> Columns:
    """The rows of ``found`` a reader sees, in order. ``found`` holds every version of its keys that counts.

    Raises `MergeError`, and `InternalError` for an operand where nothing is merged.
    """
    rows, order, repeats, seen_from = found
    if not len(rows):
        return rows
    if repeats is None:
        repeats = repeated_keys(rows.keys)
    if order is not None and seen_from is not None and seen_from <= max_seq:
        return _take_puts(rows, order[~repeats] if repeats.any() else order)
    chosen = newest_visible(rows.seqs if order is None else rows.seqs[order], repeats, max_seq)
    if np.any(rows.kinds >= MERGE):
        places = np.arange(len(rows)) if order is None else order
        if np.any(rows.kinds[places[chosen]] >= MERGE):
            if merging is None:
                raise InternalError("an operand in a database that has no merge operator")
            return merged_rows(merging, rows, places, repeats, chosen, now_ms)
    if order is not None:
        chosen = order[chosen]
    kinds = rows.kinds[chosen]
    alive = kinds == PUT
    if rows.expire_ms is not None:
        alive &= rows.expire_ms[chosen] > now_ms
    return rows.take(chosen[alive]) if order is not None else _pick(rows, chosen[alive])


def _take_puts(rows: Columns, chosen: npt.NDArray[np.int64]) -> Columns:
    """The rows at ``chosen``, in that order, of rows that are all puts that never expire."""
    places = number_array(chosen)
    keys, values = rows.keys.take(places), rows.values.take(places)
    return Columns(keys, values, rows.seqs[chosen], np.zeros(len(chosen), np.uint8), None, rows.create_ms[chosen])


def _pick(columns: Columns, rows: npt.NDArray[np.int64]) -> Columns:
    """Those of ``rows``, which ascend; neighbours without a copy."""
    if not rows.size:
        return columns.slice(0, 0)
    low, stop = int(rows[0]), int(rows[-1]) + 1
    return columns.slice(low, stop) if stop - low == len(rows) else columns.take(rows)


class LiveRows(AsyncIterator[Columns]):
    """What a reader at ``max_seq`` and ``now_ms`` sees of ``streams`` (newest first), in batches that are never empty.

    Gives the event loop a turn when batches come faster than its budget. In reverse the batches come from the end,
    the rows inside ascending. Operands are merged by ``merging``, if the database has an operator. A step that was
    cancelled or failed leaves it unusable; `aclose` it.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        max_seq: int,
        now_ms: int,
        yield_budget: YieldBudget,
        reverse: bool = False,
        merging: Guarded | None = None,
    ) -> None:
        self._batches = _merged(streams, reverse, merging is not None)
        alone = len(streams) == 1 and not reverse and merging is None
        self._next_nowait = streams[0].next_nowait if alone else never_nowait
        self._merging = merging
        self._max_seq = max_seq
        self._now_ms = now_ms
        self._yield_budget = yield_budget
        self._reverse = reverse
        self._edge = 0 if reverse else -1
        self._decided: bytes | None = None
        self._whole: Columns | bytes | None = None

    async def __anext__(self) -> Columns:
        while True:
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
            found = self._live(await anext(self._batches))
            if len(found):
                return found if found.late is None else await found.late.complete(found)

    def next_nowait(self) -> Columns | None:
        """The next batch, if that takes no waiting; of several streams nobody knows. Never suspends."""
        while (batch := self._next_nowait()) is not None:
            found = self._live(batch)
            if len(found):
                return found
        return None

    def _live(self, found: Round | Columns) -> Columns:
        if isinstance(found, Columns):
            found = Round(found)
        rows = found.rows
        if found.order is None:
            if rows.seen_from is not None and rows.seen_from <= self._max_seq:
                self._whole = edge_of(rows, self._edge)
                return rows
            found = Round(self._undecided(rows))
        return live_rows(found, max_seq=self._max_seq, now_ms=self._now_ms, merging=self._merging)

    def _undecided(self, batch: Columns) -> Columns:
        """``batch`` without the key whose newest visible version came in an earlier batch.

        A key that is spread over batches shows its newest version first (a single row per batch in reverse).
        """
        if self._whole is not None:
            self._decided, self._whole = edge_key(self._whole, self._edge), None
        if len(batch) and self._decided is not None and key_at(batch, 0) == self._decided:
            batch = batch.slice(first_row_after(batch, self._decided), len(batch))
        visible = np.flatnonzero(batch.seqs <= self._max_seq)
        if visible.size:
            self._decided = key_at(batch, int(visible[0 if self._reverse else -1]))
        return batch

    async def aclose(self) -> None:
        """Close the streams. Idempotent."""
        await close_stream(self._batches)


def _merged(streams: Sequence[Stream], reverse: bool, operands: bool) -> AsyncIterator[Round] | AsyncIterator[Columns]:
    """Rows that show each key's versions newest first, in reverse those of a key together. Where there may be
    ``operands``, always together with what they are merged with."""
    if operands:
        return WholeChains(MergedRows(streams, reverse=reverse))
    if len(streams) != 1:
        return MergedRows(streams, reverse=reverse)
    alone = streams[0].batches
    return WholeKeys(alone) if reverse else alone
