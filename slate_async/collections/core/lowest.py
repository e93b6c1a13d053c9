"""`LowestKeys`: of updates at one time, in any order, those of the first data that fit into memory.

A snapshot of much that is pending is made in passes over it, each of which ends at `end` and gives all updates before.

Invariant: all updates that were added and have data before `end` are kept, and no others. They take about
``limit_bytes`` at most, because updates of one data are one row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import number_array
from slate_async.collections.core import ordering
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.slices import one_batch, slices_of
from slate_async.collections.core.updates import UpdateSchema


class LowestKeys:
    """See the module docstring. ``end``: a key of the data columns; ``None`` while nothing was left out."""

    def __init__(self, schema: UpdateSchema, limit_bytes: int) -> None:
        self.end: Key | None = None
        self.nbytes = 0
        self._schema = schema
        self._limit = limit_bytes
        self._full = limit_bytes
        self._rows: list[pa.RecordBatch] = []

    def add(self, updates: pa.RecordBatch) -> None:
        """Keep what of ``updates`` is before `end`."""
        if self.end is not None:
            updates = self._sorted([updates])
            count = ordering.rows_before(ordering.key_columns(updates, self._schema), self.end)
            updates = copied(updates.slice(0, count))
        if updates.num_rows:
            self._rows.append(updates)
            self.nbytes += updates.nbytes
        if self.nbytes > self._full:
            self._shrink()

    def slices(self, rows: int) -> list[pa.RecordBatch]:
        """What is kept, sorted, in slices of so many rows."""
        return list(slices_of(self._sorted(self._rows), rows)) if self._rows else []

    def _shrink(self) -> None:
        updates = self._sorted(self._rows)
        if updates.nbytes > self._limit // 2:
            columns = ordering.key_columns(updates, self._schema)[: len(self._schema.data)]
            middle = max(1, updates.num_rows * self._limit // (2 * updates.nbytes))
            end = ordering.key_of(columns, min(middle, updates.num_rows - 1))
            count = ordering.rows_before(columns, end)
            if count:
                self.end = end
                updates = copied(updates.slice(0, count))
        self._rows, self.nbytes = [updates], updates.nbytes
        self._full = max(self._limit, 2 * self.nbytes)

    def _sorted(self, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        """All of ``pieces`` in order, equal rows summed: a sum on the way may not fit, where the whole one does."""
        return consolidate(one_batch(pieces, self._schema.arrow), self._schema, keep=True)


def copied(part: pa.RecordBatch) -> pa.RecordBatch:
    """``part`` by itself: a slice keeps all that it was cut from in memory."""
    return part.take(number_array(np.arange(part.num_rows)))
