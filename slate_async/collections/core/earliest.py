"""`Earliest`: of updates in any order, the first ones in time that fit into memory.

A listener gives whole times. So what does not fit is left to another pass over the same updates, which begins at `end`.

Invariant: all updates that were added and have a first coordinate before `end` are kept, and no others. They take
about ``limit_bytes`` at most, or are of one first coordinate.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import mask_array
from slate_async.collections.core.times import TIME_END
from slate_async.collections.core.updates import UpdateSchema


class Earliest:
    """See the module docstring. ``rows``: those that are kept."""

    def __init__(self, schema: UpdateSchema, limit_bytes: int) -> None:
        self.rows: list[pa.RecordBatch] = []
        self.nbytes = 0
        self._schema = schema
        self._limit = limit_bytes
        self._low = self._end = TIME_END  # all that are kept are at or after _low and before _end
        self._all = True

    @property
    def end(self) -> int | None:
        """Those at or after it were left out; ``None`` if all are kept."""
        return None if self._all else self._end

    def add(self, updates: pa.RecordBatch) -> None:
        """Keep what of ``updates`` is early enough."""
        self._keep(updates)
        while self.nbytes > self._limit and self._end - self._low > 1:
            self._leave_half()

    def _leave_half(self) -> None:
        firsts = np.concatenate([self._schema.times(updates)[0] for updates in self.rows])
        self._end = max(int(np.partition(firsts, len(firsts) // 2)[len(firsts) // 2]), self._low + 1)
        rows, self.rows, self.nbytes = self.rows, [], 0
        for updates in rows:
            self._keep(updates)

    def _keep(self, updates: pa.RecordBatch) -> None:
        firsts = self._schema.times(updates)[0]
        early = firsts < np.uint64(self._end)
        if not early.all():
            self._all = False
            updates, firsts = updates.filter(mask_array(early)), firsts[early]
        if updates.num_rows:
            self.rows.append(updates)
            self.nbytes += updates.nbytes
            self._low = min(self._low, int(firsts.min()))


def from_first(updates: pa.RecordBatch, schema: UpdateSchema, first: int) -> pa.RecordBatch:
    """Those of ``updates`` with a first coordinate at or after ``first``: what a pass that ended there left."""
    late = schema.times(updates)[0] >= np.uint64(first)
    return updates if late.all() else updates.filter(mask_array(late))
