"""Hot ranges: the rows that all SSTs of a view have for a range of keys, merged into one dictionary.

A point read from SSTs asks them one after another: filter, index, block. Where keys are read again and again from
cached blocks, a range around such a key is cut so that it meets at most one block of each level, and its newest
versions are put into a dictionary. From then on one search for the range and one look into the dictionary answer for
all levels, absent keys included.

A level whose block there is not cached is left out of the dictionary; its filter is asked beside it. A dictionary
answers only readers that see all its rows, so no older version is needed.

Invariant: ranges do not overlap; a range answers only for the levels it was made of, and those never change. Memory is
the block cache's: it may drop any range at any time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from slate_async.format.filter import Filter
from slate_async.read.sources import BEYOND_ALL_KEYS, Run, Table
from slate_async.sst.cache import BlockCache
from slate_async.sst.loaded_block import LoadedBlock
from slate_async.sst.reader import AROUND_ROWS
from slate_async.types import DELETE, MAX_SEQ, NEEDS_IO, NeedsIO, RowHit

READS_PER_LOOK = 8
"""Of the reads that ask SSTs one by one, every n-th looks whether it is worth a range."""
WORTH_LOOKUPS = 8
"""A block that was searched so often since it was loaded is worth it: what that took is about what a range takes."""
MOST_ROWS = 8 * AROUND_ROWS
"""Rows looked at for one range: about a millisecond of work."""
_RANGE_BYTES = 1000
_ROW_BYTES = 150
"""Roughly what a range, and a row of it, cost in memory besides the bytes of keys and values."""
NOBODY = MAX_SEQ + 1


class HotRange:
    """The newest versions of the keys in ``[start, end)``.

    rows: values; of rows that expire, and merge operands, the `RowHit`; without tombstones
    rest: the filters of levels that may hold rows of the range beside ``rows``
    visible_to: ``max_seq`` of a reader must be this at least
    whole_to: as ``visible_to`` if there is no rest, else `NOBODY`
    """

    __slots__ = ("_owner", "end", "nbytes", "rest", "rows", "start", "used", "visible_to", "whole_to")

    def __init__(
        self,
        start: bytes,
        end: bytes,
        rows: dict[bytes, bytes | RowHit],
        rest: list[Filter],
        visible_to: int,
        owner: HotRanges | None,
    ) -> None:
        self.start = start
        self.end = end
        self.rows = rows
        self.rest = rest
        self.visible_to = visible_to
        self.whole_to = NOBODY if rest else visible_to
        self.used = False
        values = sum(len(row if isinstance(row, bytes) else row.value) for row in rows.values())
        self.nbytes = _RANGE_BYTES + sum(map(len, rows)) + values + _ROW_BYTES * len(rows)
        self._owner = owner

    @property
    def retired(self) -> bool:
        """See `slate_async.sst.cache.Lookup`."""
        return self._owner is not None and self._owner.retired

    def drop(self) -> None:
        """See `slate_async.sst.cache.Lookup`."""
        if self._owner is not None:
            self._owner.remove(self)
            self._owner = None

    def knows(self, hashed: int, max_seq: int) -> bool:
        """Whether ``rows`` tell a reader up to ``max_seq`` about a key of the range, whose `key_hash` is given."""
        if max_seq < self.visible_to:
            return False
        return not any(part.may_contain(hashed) for part in self.rest)


_NOTHING = HotRange(b"", b"", {}, [], NOBODY, None)


class HotRanges:
    """The hot ranges of one list of levels; ``retired`` once the database has other levels.

    ``starts`` and ``ranges`` belong together, ascending; the first range holds no key, so
    ``ranges[bisect_right(starts, key) - 1]`` is always one, and ``key < range.end`` says whether it is the key's."""

    __slots__ = ("_cache", "_levels", "_nbytes", "_reads", "ranges", "retired", "starts")

    def __init__(self, levels: Sequence[Run], cache: BlockCache | None) -> None:
        self.starts = [b""]
        self.ranges = [_NOTHING]
        self._levels = levels
        self._cache = cache
        self._reads = 0
        self._nbytes = 0
        self.retired = False

    def read(self, key: bytes) -> None:
        """``key`` was found in a block of a level that is in memory. Makes the range around it, at times."""
        self._reads += 1
        if self._reads >= READS_PER_LOOK and self._cache is not None:
            self._reads = 0
            made = self._make(key)
            if made is not None:
                self._add(made, self._cache)

    def look_up_each(self, keys: Sequence[bytes], max_seq: int) -> list[bytes | RowHit | NeedsIO | None]:
        """What hot ranges alone tell a reader up to ``max_seq`` of each of ``keys``; `NEEDS_IO` of the others."""
        if not self._levels:
            return [None] * len(keys)
        starts, ranges = self.starts, self.ranges
        found: list[bytes | RowHit | NeedsIO | None] = []
        for key in keys:
            near = ranges[bisect_right(starts, key) - 1]
            if key < near.end and near.whole_to <= max_seq:
                near.used = True
                found.append(near.rows.get(key))
            else:
                found.append(NEEDS_IO)
        return found

    def remove(self, one: HotRange) -> None:
        """Forget ``one``. Idempotent."""
        at = bisect_left(self.starts, one.start, 1)
        if at < len(self.ranges) and self.ranges[at] is one:
            del self.starts[at], self.ranges[at]
            self._nbytes -= one.nbytes

    def retire(self) -> None:
        """The database has other levels now. Who still reads these may go on, but the memory is due."""
        self.retired = True
        if self._cache is not None:
            self._cache.retire(self._nbytes)

    def _make(self, key: bytes) -> HotRange | None:
        start, end = b"", BEYOND_ALL_KEYS
        blocks: list[LoadedBlock] = []
        rest: list[Filter] = []
        for level in self._levels:
            table = level.find(key)
            if table is None:
                low, high = level.gap(key)
            else:
                around = table.source.around(key)
                if around is None:
                    return None
                low, high = around.start, around.end
                if around.block is not None:
                    blocks.append(around.block)
                elif around.filter is not None:
                    rest.append(around.filter)
                else:
                    return None
            start, end = max(start, low), min(end, high)
        if not any(block.lookups >= WORTH_LOOKUPS for block in blocks):
            return None
        return self._merged(start, end, blocks, rest)

    def _merged(self, start: bytes, end: bytes, newest_first: list[LoadedBlock], rest: list[Filter]) -> HotRange | None:
        rows: dict[bytes, bytes | RowHit] = {}
        looked_at = newest = 0
        for block in reversed(newest_first):
            count, highest = block.lay_over(rows, start, end)
            looked_at += count
            newest = max(newest, highest)
            if looked_at > MOST_ROWS:
                return None
        for key in [key for key, row in rows.items() if not isinstance(row, bytes) and row.kind == DELETE]:
            del rows[key]
        return HotRange(start, end, rows, rest, newest, self)

    def _add(self, made: HotRange, cache: BlockCache) -> None:
        """Put ``made`` in the place of every range it overlaps."""
        first = bisect_left(self.starts, made.start, 1)
        if self.ranges[first - 1].end > made.start:
            first -= 1
        stop = bisect_left(self.starts, made.end, 1)
        for one in self.ranges[first:stop]:
            cache.forget(one)
            self._nbytes -= one.nbytes
        self.starts[first:stop] = [made.start]
        self.ranges[first:stop] = [made]
        self._nbytes += made.nbytes
        cache.keep(made)


class HotReads:
    """Hands the hot ranges of a database from one view to the next while the levels stay the same."""

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._tables: list[tuple[Table, ...]] = []
        self._current = HotRanges((), cache)

    def over(self, levels: Sequence[Run]) -> HotRanges:
        """The ranges of ``levels``; those of other levels retire."""
        tables = [level.tables for level in levels]
        if self._tables != tables:
            self._tables = tables
            self._current.retire()
            self._current = HotRanges(levels, self._cache)
        return self._current
