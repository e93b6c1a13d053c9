"""`Steps`: a column that never falls and seldom changes, kept as the rows at which it does.

What a memtable's rows have in common costs nothing per row this way: their creation time, and how far their sequence
numbers are ahead of their row numbers."""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

NO_VALUE = -(2**63)


class Steps:
    """The value is ``last`` from the newest step on, `NO_VALUE` before the first; values are above that."""

    __slots__ = ("_rows", "_values", "last")

    def __init__(self) -> None:
        self._rows = array("q")
        self._values = array("q")
        self.last = NO_VALUE

    def add(self, row: int, value: int) -> None:
        """From ``row`` on the value is ``value``. Rows rise, values never fall."""
        if value != self.last:
            self._rows.append(row)
            self._values.append(value)
            self.last = value

    @property
    def last_step(self) -> int:
        """The row of the newest step, 0 if there is none."""
        return self._rows[-1] if self._rows else 0

    def at(self, row: int) -> int:
        """The value of ``row``, which must be there."""
        return self._values[bisect_right(self._rows, row) - 1]

    def first_row_above(self, value: int, rows: int) -> int:
        """The first of ``rows`` rows whose value is above ``value``, ``rows`` if there is none."""
        step = bisect_right(self._values, value)
        return self._rows[step] if step < len(self._rows) else rows

    def first_row_ahead_of(self, number: int, rows: int) -> int:
        """The first of ``rows`` rows whose value and row number add up to more than ``number``, ``rows`` if none."""
        values, begins = self._values, self._rows
        step = bisect_right(range(len(begins)), number, key=lambda step: begins[step] + values[step]) - 1
        if step < 0:
            return 0
        end = begins[step + 1] if step + 1 < len(begins) else rows
        return min(end, number - values[step] + 1)

    def of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The values of ``rows``, in a new array."""
        if len(self._rows) == 1:
            same = np.empty(len(rows), np.int64)
            same.fill(self.last)  # as `np.full`, which takes many times longer for a few rows
            return same
        steps = np.searchsorted(np.frombuffer(self._rows, np.int64), rows, side="right") - 1
        chosen: npt.NDArray[np.int64] = np.frombuffer(self._values, np.int64)[steps]
        return chosen

    def extend(self, first_row: int, values: npt.NDArray[np.int64]) -> None:
        """The values of the rows from ``first_row`` on."""
        if not len(values) or values[-1] == self.last:  # and none is between
            return
        changes = np.flatnonzero(np.diff(values, prepend=self.last))
        for index in changes.tolist():
            self.add(first_row + index, int(values[index]))
