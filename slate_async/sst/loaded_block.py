"""A decoded block as the cache keeps it: columns, and lookups of single keys in them.

A lookup here is a binary search over the stored bytes. Rows that are asked for often are looked up in a dictionary
that is made of all blocks with a key (`slate_async.read.hot`), by `LoadedBlock.lay_over`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from slate_async.format.block import binary_buffers
from slate_async.format.columns import NO_EXPIRY, Columns
from slate_async.sst.block_rows import BlockRows
from slate_async.types import PUT, RowHit

_OBJECT_OVERHEAD_BYTES = 2200
_ROW_OVERHEAD_BYTES = 5
"""Roughly what the Python, numpy and Arrow objects around one block's buffers occupy, with the keys scans sample."""


class LoadedBlock:
    """Sorted rows of one block. ``nbytes`` is about what it occupies; ``used`` is its cache's, ``lookups`` counts the
    searches for a key since it was loaded."""

    __slots__ = (
        "_create",
        "_expire",
        "_key_offsets",
        "_keys",
        "_kinds",
        "_rows",
        "_seqs",
        "_value_offsets",
        "_values",
        "columns",
        "lookups",
        "nbytes",
        "rows",
        "used",
    )

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns)
        self.nbytes = columns.nbytes + _OBJECT_OVERHEAD_BYTES + _ROW_OVERHEAD_BYTES * self.rows
        self.used = False
        self.lookups = 0
        key_offsets, self._keys = binary_buffers(columns.keys)
        value_offsets, self._values = binary_buffers(columns.values)
        self._key_offsets, self._value_offsets = key_offsets.data, value_offsets.data
        self._seqs, self._kinds, self._create = columns.seqs.data, columns.kinds.data, columns.create_ms.data
        self._expire = None if columns.expire_ms is None else columns.expire_ms.data
        self._rows: BlockRows | None = None

    def for_scans(self) -> BlockRows:
        """The rows as scans want them."""
        if self._rows is None:
            self._rows = BlockRows(self.columns)
        return self._rows

    def key(self, row: int) -> bytes:
        """The key of ``row``."""
        offsets = self._key_offsets
        return bytes(self._keys[offsets[row] : offsets[row + 1]])

    def lower_bound(self, key: bytes) -> int:
        """The first row whose key is ``key`` or greater; ``rows`` if there is none."""
        offsets, keys = self._key_offsets, self._keys
        low, high = 0, self.rows
        while low < high:
            middle = (low + high) // 2
            if bytes(keys[offsets[middle] : offsets[middle + 1]]) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def find(self, key: bytes, max_seq: int) -> int:
        """The row of the newest version of ``key`` numbered ``max_seq`` or lower; -1 if there is certainly none;
        ``rows`` if there is none here but the next block may go on with this key."""
        self.lookups += 1
        rows, seqs = self.rows, self._seqs
        row = self.lower_bound(key)
        if row == rows or self.key(row) != key:
            return -1
        while seqs[row] > max_seq:
            row += 1
            if row == rows:
                return row
            if self.key(row) != key:
                return -1
        return row

    def hit(self, row: int) -> RowHit:
        """What a point read returns for ``row``."""
        offsets = self._value_offsets
        return RowHit(
            bytes(self._values[offsets[row] : offsets[row + 1]]),
            self._seqs[row],
            self._kinds[row],
            NO_EXPIRY if self._expire is None else self._expire[row],
            self._create[row],
        )

    def lay_over(self, rows: dict[bytes, bytes | RowHit], start: bytes, end: bytes) -> int:
        """Put the newest version of each key of ``[start, end)`` into ``rows``: its value, or for a tombstone, a row
        that expires and a merge operand all of it.

        Returns the highest sequence number it met, of any version. Takes about 0.1 ms for 500 rows."""
        first = self.lower_bound(start)
        count = self.lower_bound(end) - first
        if count <= 0:
            return 0
        part = self.columns if count == self.rows else self.columns.slice(first, first + count)
        keys, values = _objects(part.keys), _objects(part.values)
        special = part.kinds != PUT
        if part.expire_ms is not None:
            special |= part.expire_ms != NO_EXPIRY
        for row in np.flatnonzero(special).tolist():
            values[row] = self.hit(first + row)
        keys.reverse()  # of the versions of a key the newest comes first, and in a dictionary the last one counts
        values.reverse()
        rows.update(zip(keys, values, strict=True))
        return int(part.seqs.max())


def _objects(column: pa.BinaryArray) -> list[Any]:
    """The elements as bytes; many times faster than ``to_pylist``."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
