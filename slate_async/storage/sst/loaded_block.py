"""A block as the cache keeps it: its raw bytes, and what scans have made of them.

A lookup here is a binary search over the stored bytes. Rows that are asked for often are looked up in a dictionary
that is made of all blocks with a key (`engine.read.hot`), by `LoadedBlock.lay_over`. Arrow columns are made when a
scan that reads on asks for them.
"""

from __future__ import annotations

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.storage.format.raw_block import RawBlock
from slate_async.storage.sst.block_rows import BlockRows
from slate_async.types import MERGE, PUT, RowHit

_OBJECT_OVERHEAD_BYTES = 2200
_ROW_OVERHEAD_BYTES = 22
"""Roughly what the Python, numpy and Arrow objects around one block's bytes occupy once it has been looked up in and
scanned, with the keys that scans sample and the columns that are not stored."""


class LoadedBlock:
    """Sorted rows of one block. ``nbytes`` is about what it occupies; ``used`` is its cache's, ``lookups`` counts the
    searches for a key since it was loaded."""

    __slots__ = ("_columns", "_rows", "_seen_from", "lookups", "nbytes", "raw", "rows", "used")

    def __init__(self, raw: RawBlock, seen_from: int | None = None) -> None:
        """``raw`` holds bytes of its own; ``seen_from``: as in `Columns`, if somebody has looked."""
        self.raw = raw
        self.rows = raw.rows
        self.nbytes = len(raw.data) + _OBJECT_OVERHEAD_BYTES + _ROW_OVERHEAD_BYTES * raw.rows
        self.used = False
        self.lookups = 0
        self._seen_from = seen_from
        self._columns: Columns | None = None
        self._rows: BlockRows | None = None

    def prepare(self) -> None:
        """Make what scans ask for, so that this is done in the thread of the caller."""
        self.for_scans()
        self._columns = self.columns

    def for_scans(self) -> BlockRows:
        """The rows as scans of a few rows want them."""
        if self._rows is None:
            self._rows = BlockRows(self.raw, self._seen_from)
            self._seen_from = self._rows.seen_from
        return self._rows

    @property
    def columns(self) -> Columns:
        """The rows as scans want them that read on: `Columns.seen_from` is known."""
        if self._columns is None:
            if self._seen_from is None:
                self.for_scans()
            self._columns = self.raw.columns(self._seen_from)
        return self._columns

    def find(self, key: bytes, max_seq: int) -> int:
        """The row of the newest version of ``key`` numbered ``max_seq`` or lower; -1 if there is certainly none;
        ``rows`` if there is none here but the next block may go on with this key."""
        self.lookups += 1
        raw, rows = self.raw, self.rows
        row = raw.lower_bound(key)
        if row == rows or raw.key(row) != key:
            return -1
        while raw.seq(row) > max_seq:
            row += 1
            if row == rows:
                return row
            if raw.key(row) != key:
                return -1
        return row

    def chain(self, key: bytes, max_seq: int, found: list[RowHit]) -> bool:
        """Append to ``found`` what `find` finds, and behind an operand the older versions down to the newest that is
        none. Whether the next block may go on with them."""
        row = self.find(key, max_seq)
        if row < 0 or row == self.rows:
            return row >= 0
        stop = self.raw.lower_bound(key + b"\0")
        for hit in self.raw.hits(row, stop):
            found.append(hit)
            if hit.kind != MERGE:
                return False
        return bool(stop == self.rows)

    def hit(self, row: int) -> RowHit:
        """What a point read returns for ``row``."""
        return self.raw.hit(row)

    def lay_over(self, rows: dict[bytes, bytes | RowHit], start: bytes, end: bytes) -> int:
        """Put the newest version of each key of ``[start, end)`` into ``rows``: its value, or for a tombstone, a row
        that expires and a merge operand all of it.

        Returns the highest sequence number it met, of any version. Takes about 0.1 ms for 500 rows."""
        raw = self.raw
        first, stop = raw.lower_bound(start), raw.lower_bound(end)
        if stop <= first:
            return 0
        keys = raw.keys(first, stop)
        keys.reverse()  # of the versions of a key the newest comes first, and in a dictionary the last one counts
        found: list[bytes | RowHit]
        if raw.plain:
            found = [*raw.values(first, stop)]
        else:
            found = [hit.value if _plain(hit) else hit for hit in raw.hits(first, stop)]
        found.reverse()
        rows.update(zip(keys, found, strict=True))
        return max(raw.seqs(first, stop))


def _plain(hit: RowHit) -> bool:
    return hit.kind == PUT and hit.expire_ms == NO_EXPIRY
