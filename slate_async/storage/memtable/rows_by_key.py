"""`RowsByKey`: the rows each key of a memtable has, newest first.

Most reads want a key's newest value and nothing else; `Memtable.latest` has that. Reads of an older version, or of a
whole row, look here. Rows are added at the first such read, in steps, so a table without one pays nothing.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

from slate_async.types import MERGE

NO_ROW = -1
MANY = 64
"""From so many rows on a key has a list of them, which can be searched. Others are found one by one: a list each would
be too much for the garbage collector to look through."""


class RowsByKey:
    """Rows 0 to ``rows`` (exclusive), in the order they were written."""

    __slots__ = ("_counts", "_many", "_newest", "_older", "rows")

    def __init__(self) -> None:
        self._newest: dict[bytes, int] = {}
        self._older: dict[int, int] = {}  # a row that replaced another -> that one
        self._counts: dict[bytes, int] = {}  # of keys with several rows
        self._many: dict[bytes, list[int]] = {}  # all rows of a key that has many, ascending
        self.rows = 0

    def add(self, keys: list[bytes]) -> None:
        """The keys of the rows that come next. Takes about 0.1 µs for each, 0.25 µs where keys were there."""
        newest = self._newest
        rows = list(range(self.rows, self.rows + len(keys)))
        found = list(map(newest.setdefault, keys, rows))
        if found != rows:
            for row, key, version in zip(rows, keys, found, strict=True):
                if version != row:
                    self._older[row] = newest[key]
                    newest[key] = row
                    count = self._counts[key] = self._counts.get(key, 1) + 1
                    if count == MANY:
                        self._many[key] = self._rows_from(row)
                    elif count > MANY:
                        self._many[key].append(row)
        self.rows += len(keys)

    def forget(self, keys: list[bytes]) -> None:
        """Nobody asks for the rows of ``keys`` any more, nor for those of any other."""
        if self._newest:
            deque(map(self._newest.pop, keys, repeat(None)), maxlen=0)

    def row(self, key: bytes, end: int) -> int:
        """The newest row of ``key`` below ``end``; `NO_ROW` if there is none."""
        row = self._newest.get(key, NO_ROW)
        if row >= end and key in self._many:
            rows = self._many[key]
            at = bisect_left(rows, end)
            return rows[at - 1] if at else NO_ROW
        while row >= end:
            row = self._older.get(row, NO_ROW)
        return row

    def chains(self, rows: list[int], kinds: bytearray, most: int = sys.maxsize) -> list[int]:
        """``rows`` and, behind each that is an operand, the older ones of its key down to the first that is none; only
        some of them if they are more than ``most``. ``kinds``: of the first rows; others are no operands."""
        found: list[int] = []
        older, known = self._older, len(kinds)
        for newest in rows:
            row = newest
            while row != NO_ROW and len(found) <= most:
                found.append(row)
                if row >= known or kinds[row] != MERGE:
                    break
                row = older.get(row, NO_ROW)
        return found

    def _rows_from(self, newest: int) -> list[int]:
        """``newest`` and the rows it and those before it replaced, ascending."""
        rows = [newest]
        while (row := self._older.get(rows[-1], NO_ROW)) != NO_ROW:
            rows.append(row)
        return rows[::-1]

    def each(self, keys: list[bytes], end: int) -> list[int]:
        """`row` of each of ``keys``, which must be there, without those that have none."""
        if self.rows <= end:
            return list(map(self._newest.__getitem__, keys))
        rows = [self.row(key, end) for key in keys]
        return [row for row in rows if row != NO_ROW] if NO_ROW in rows else rows

    def firsts(self, keys: list[bytes], start: int) -> list[bytes]:
        """Of ``keys``, those of the rows from ``start`` on, the ones that no row before has."""
        older = self._older
        return [key for row, key in enumerate(keys, start) if row not in older] if older else keys


def values_of(latest: dict[bytes, bytes | int], keys: list[bytes]) -> Sequence[bytes | int]:
    """What ``latest`` has of each of ``keys``. Most of that is waiting for memory; in one loop of the interpreter's own
    the processor waits for several at a time, which takes half as long as a list comprehension."""
    return itemgetter(*keys)(latest) if len(keys) > 1 else [latest[key] for key in keys]


def values_at(values: list[bytes], rows: list[int]) -> Sequence[bytes]:
    """The ``values`` of two ``rows`` or more."""
    found: Sequence[bytes] = itemgetter(*rows)(values)
    return found
