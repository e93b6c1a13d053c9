"""A decoded block as the cache keeps it: columns, and fast lookups of single keys in them.

A lookup is a binary search over the stored bytes; a block that is asked often gets a dictionary of its keys, so a
cold block costs no more memory than its columns.
"""

from __future__ import annotations

from slate_async.format.block import binary_buffers
from slate_async.format.columns import NO_EXPIRY, Columns
from slate_async.types import RowHit

_OBJECT_OVERHEAD_BYTES = 1500
"""Roughly what the Python, numpy and Arrow objects around one block's buffers occupy."""
_DICT_ROW_BYTES = 150
"""Roughly what one key costs in the dictionary besides its bytes."""
_LOOKUPS_PER_ROW = 16
"""The dictionary is built once lookups times this reach the rows: what the searches so far have cost then is about
what building it costs."""


class LoadedBlock:
    """Sorted rows of one block. ``nbytes`` is about what it occupies and grows once, with the dictionary."""

    __slots__ = (
        "_create",
        "_expire",
        "_first_rows",
        "_key_offsets",
        "_keys",
        "_kinds",
        "_lookups",
        "_seqs",
        "_value_offsets",
        "_values",
        "columns",
        "nbytes",
        "rows",
    )

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns)
        self.nbytes = columns.nbytes + _OBJECT_OVERHEAD_BYTES
        key_offsets, self._keys = binary_buffers(columns.keys)
        value_offsets, self._values = binary_buffers(columns.values)
        self._key_offsets, self._value_offsets = key_offsets.data, value_offsets.data
        self._seqs, self._kinds, self._create = columns.seqs.data, columns.kinds.data, columns.create_ms.data
        self._expire = None if columns.expire_ms is None else columns.expire_ms.data
        self._first_rows: dict[bytes, int] | None = None
        self._lookups = 0

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
        row = self._first_row(key)
        if row < 0:
            return row
        rows, seqs = self.rows, self._seqs
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

    def _first_row(self, key: bytes) -> int:
        """The first row of ``key``, -1 if it has none."""
        if self._first_rows is not None:
            return self._first_rows.get(key, -1)
        self._lookups += 1
        if self._lookups * _LOOKUPS_PER_ROW >= self.rows:
            return self._build_dictionary().get(key, -1)
        row = self.lower_bound(key)
        return row if row < self.rows and self.key(row) == key else -1

    def _build_dictionary(self) -> dict[bytes, int]:
        keys: list[bytes] = self.columns.keys.to_numpy(zero_copy_only=False).tolist()
        keys.reverse()
        self._first_rows = dict(zip(keys, range(self.rows - 1, -1, -1), strict=True))
        self.nbytes += len(self._keys) + _DICT_ROW_BYTES * self.rows
        return self._first_rows
