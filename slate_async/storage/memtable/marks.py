"""`Marks`: kind and expiry time of the rows that are not plain; a plain row is a put that does not expire.

Packed arrays, each no longer than it takes to reach the last row it says something of: a table of plain rows has none,
and a plain row costs an append nothing."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from slate_async.codec.columns import NO_EXPIRY
from slate_async.types import DELETE, MERGE, PUT


class Marks:
    """Rows are marked in rising order."""

    __slots__ = ("_expire", "_kinds", "operands", "ranges")

    def __init__(self) -> None:
        self._kinds = bytearray()
        self._expire = array("q")
        self.operands = False
        """Whether any row is an operand."""
        self.ranges: list[int] = []
        """Rows that delete a range of keys."""

    @property
    def none(self) -> bool:
        """Whether all rows are plain."""
        return not self._kinds and not self._expire

    @property
    def kinds(self) -> bytearray:
        """The kinds of the first rows; all others are puts."""
        return self._kinds

    @property
    def expires(self) -> bool:
        """Whether any row expires."""
        return bool(self._expire)

    def add(self, row: int, kind: int, expire_ms: int, value: bytes = b"") -> None:
        """``row``, with that value, is of ``kind`` and expires at ``expire_ms``."""
        if kind != PUT:
            if len(self._kinds) < row:
                self._fill_kinds(row)
            self._kinds.append(kind)
            if kind == MERGE:
                self.operands = True
            elif value and kind == DELETE:
                self.ranges.append(row)
        if expire_ms != NO_EXPIRY:
            self._fill_expiries(row)
            self._expire.append(expire_ms)

    def added(
        self, first: int, keys: Iterable[bytes], values: Iterable[bytes], kinds: Iterable[int], expires: Iterable[int]
    ) -> dict[bytes, bytes | int]:
        """`add` the rows from ``first`` on that are not plain. Of each key the value of its newest row if that is
        plain, else its number."""
        latest: dict[bytes, bytes | int] = {}
        for row, (key, value, kind, expire_ms) in enumerate(zip(keys, values, kinds, expires, strict=True), first):
            if kind or expire_ms != NO_EXPIRY:
                self.add(row, kind, expire_ms, value)
                latest[key] = row
            else:
                latest[key] = value
        return latest

    def plain(self, row: int) -> bool:
        """Whether ``row`` is a put that does not expire."""
        return self.kind(row) == PUT and self.expiry(row) == NO_EXPIRY

    def kind(self, row: int) -> int:
        """The kind of ``row``."""
        return self._kinds[row] if row < len(self._kinds) else PUT

    def expiry(self, row: int) -> int:
        """When ``row`` expires, milliseconds; `NO_EXPIRY` for never."""
        return self._expire[row] if row < len(self._expire) else NO_EXPIRY

    def kinds_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """The kinds of ``rows``, in a new array."""
        if not self._kinds:
            return np.zeros(len(rows), np.uint8)
        self._fill_kinds(int(rows.max(initial=-1)) + 1)
        return np.frombuffer(self._kinds, np.uint8)[rows]

    def expiries_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The expiry times of ``rows``, in a new array; ``None`` if no row of the table expires."""
        if not self._expire:
            return None
        self._fill_expiries(int(rows.max(initial=-1)) + 1)
        return np.frombuffer(self._expire, np.int64)[rows]

    def _fill_kinds(self, end: int) -> None:
        if len(self._kinds) < end:
            self._kinds.extend(bytes(end - len(self._kinds)))

    def _fill_expiries(self, end: int) -> None:
        if len(self._expire) < end:
            self._expire.extend(array("q", [NO_EXPIRY]) * (end - len(self._expire)))
