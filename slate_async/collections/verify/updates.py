"""What the updates of a batch are, added up a table at a time: their order, times and sums. Performs nothing.

Of one kind of fault the first row is shown, and how many there are.

Rule C1 of collections.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import numbers_of
from slate_async.collections.core import ordering
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import fits
from slate_async.collections.core.frontier import Mask
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.times import Times
from slate_async.collections.core.updates import DIFF, Diffs, UpdateSchema, row_text
from slate_async.collections.writer.batches import sum_of_diffs

MOST_TIMES = 1 << 20
"""More different times are not counted: they would have to be in memory."""


class UpdatesCheck:
    """Of the updates of a batch with ``bounds``.

    compacted: whether they are sorted and consolidated, and their times advanced to the since of ``bounds``; else they
    are as they were appended, in any order
    rows, diff_sum: so far
    keys, times: different data and different times so far; ``None`` if they cannot be counted
    """

    def __init__(self, schema: UpdateSchema, bounds: Bounds, *, compacted: bool) -> None:
        self._schema = schema
        self._bounds = bounds
        self._compacted = compacted
        self._faults: dict[str, list[Any]] = {}
        self._last: Key | None = None
        self._last_diff = 0
        self._times: npt.NDArray[Any] | None = None
        self.rows = 0
        self.diff_sum = 0
        self.keys: int | None = 0
        self.times: int | None = 0

    @property
    def faults(self) -> list[str]:
        """What is wrong, a text for each kind."""
        return [
            f"{what}: {row}" + (f", and {count - 1} more" if count > 1 else "")
            for what, (row, count) in self._faults.items()
        ]

    def add(self, table: pa.Table) -> None:
        """The next rows."""
        updates = one_batch(table, self._schema.arrow)
        if not updates.num_rows:
            return
        try:
            updates.validate(full=True)
        except pa.ArrowInvalid as error:
            self._note("values are not of their types", str(error), 1)
            return
        self.rows += updates.num_rows
        self.diff_sum += sum_of_diffs(updates)
        self._check_times(updates)
        if self._compacted:
            self._check_order(updates)

    def skip(self) -> None:
        """Rows follow that could not be read: what comes after them is not compared with what came before."""
        self._last = None
        self.keys = self.times = None

    def _check_times(self, updates: pa.RecordBatch) -> None:
        times = self._schema.times(updates)
        if not self._compacted:
            self._refuse(updates, ~self._bounds.mask(times), self._outside)
            return
        self._refuse(updates, ~may_be_within(times, self._bounds), self._outside)
        if self.times is None:
            return
        found = np.unique(np.rec.fromarrays(times) if len(times) > 1 else times[0])
        self._times = found if self._times is None else np.unique(np.concatenate([self._times, found]))
        self.times = len(self._times)
        if self.times > MOST_TIMES:
            self.times = self._times = None

    def _check_order(self, updates: pa.RecordBatch) -> None:
        diffs = numbers_of(updates.column(DIFF))
        self._refuse(updates, diffs == 0, "a difference of 0, which says nothing")
        columns = ordering.key_columns(updates, self._schema)
        differ = ordering.boundaries(columns)
        if differ is None:
            self._note("rows are not in the order of data and time", f"{updates.num_rows} rows", 1)
            self.skip()
            return
        self._refuse(updates, ~differ & _fit_with_the_one_before(diffs), "two updates of one data and time")
        first = ordering.key_of(columns, 0)
        data = len(self._schema.data)
        same = self._last is not None and self._last[:data] == first[:data]
        in_several = self._last == first and not fits(self._last_diff + int(diffs[0]))
        if self._last is not None and not (self._last < first or in_several):
            self._note("rows are not in the order of data and time", row_text(updates, 0), 1)
        if self.keys is not None:
            self.keys += int(ordering.differences(columns[:data]).sum()) - same
        self._last, self._last_diff = ordering.key_of(columns, updates.num_rows - 1), int(diffs[-1])

    @property
    def _outside(self) -> str:
        bounds = self._bounds
        since = f", compacted to {bounds.since}" if self._compacted else ""
        return f"a time outside of {bounds.lower} to {bounds.upper}{since}"

    def _refuse(self, updates: pa.RecordBatch, wrong: Mask, what: str) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            self._note(what, row_text(updates, row), int(wrong.sum()))

    def _note(self, what: str, row: str, count: int) -> None:
        self._faults.setdefault(what, [row, 0])[1] += count


def may_be_within(times: Times, bounds: Bounds) -> Mask:
    """Whether each of ``times`` can be that of an update that was written within ``bounds`` and advanced to their
    since.

    Advancing takes each number up to the smallest one of the since (rule C1). So a number above that is as it was
    written, and one that is equal may have been any up to it. The earliest time that it may have been, at or after an
    element of lower, must not be beyond upper: no later one is then either."""
    rows = len(times[0])
    least = [min(numbers) for numbers in zip(*bounds.since.elements, strict=True)]
    advanced = np.ones(rows, np.bool_)
    written = list(times)
    for place, number in enumerate(least):
        column, bound = times[place], np.uint64(number)
        advanced &= column >= bound
        written[place] = np.where(column == bound, np.uint64(0), column)
    possible = np.zeros(rows, np.bool_)
    for element in bounds.lower.elements:
        earliest = tuple(np.maximum(column, np.uint64(number)) for column, number in zip(written, element, strict=True))
        reached = np.ones(rows, np.bool_)
        for early, column in zip(earliest, times, strict=True):
            reached &= early <= column
        possible |= reached & ~bounds.upper.mask(earliest)
    return advanced & possible


def _fit_with_the_one_before(diffs: Diffs) -> Mask:
    """bool[n]: whether the sum of a difference and the one before it fits int64; True for the first."""
    fit = np.ones(len(diffs), np.bool_)
    before, after = diffs[:-1], diffs[1:]
    fit[1:] = (before < 0) != (after < 0)
    same = np.flatnonzero(~fit)
    fit[same] = (diffs[same - 1] + diffs[same] < 0) == (diffs[same] < 0)
    return fit
