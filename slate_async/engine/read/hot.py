"""Hot ranges: the rows that all SSTs of a view have for a range of keys, merged into one dictionary.

A point read from SSTs asks them one after another: filter, index, block. Where keys are read again and again from
cached blocks, a range around such a key is cut so that it meets at most one block of each level, and its newest
versions are put into a dictionary. From then on one search for the range and one look into the dictionary answer for
all levels, absent keys included.

A level whose block there is not cached is left out of the dictionary; its filter is asked beside it. Hot ranges answer
only readers that see all their rows, so no older version is needed.

Most of the time of such a read goes into waiting for main memory, so the rows of all ranges that leave nothing out are
in one dictionary: a key that is there is found in one step. One that is not is in no level if it lies in one of those
ranges; neighbours among them are one span, so few have to be searched.

Invariant: ranges do not overlap; a range answers only for the levels it was made of, and those never change. Memory is
the block cache's: it may drop any range at any time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from slate_async.engine.read.key_spans import KeySpans
from slate_async.engine.read.sources import BEYOND_ALL_KEYS, Run
from slate_async.storage.format.filter import Filter, key_hash
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.types import DELETE, NEEDS_IO, NeedsIO, RowHit

READS_PER_LOOK = 8
"""Of the reads that ask SSTs one by one, every n-th looks whether it is worth a range."""
WORTH_LOOKUPS = 8
"""A block that was searched so often since it was loaded is worth it: what that took is about what a range takes."""
READS_PER_MARK = 64
"""Every n-th read marks its range as used; so does every n-th of keys that are looked up together."""
MOST_ROWS = 4096
"""Rows looked at for one range, of all levels together: half a millisecond of work."""
MOST_TOGETHER = 150_000
"""Rows of the dictionary for all ranges; further ranges keep their own, and are found a little later. A dictionary is
copied when it has filled up, which takes about a millisecond for so many."""
_RANGE_BYTES = 1000
_ROW_BYTES = 150
"""Roughly what a range, and a row of it, cost in memory besides the bytes of keys and values."""


class HotRange:
    """The newest versions of the keys in ``[start, end)``.

    rows: of the keys that are not in `HotRanges.rows`: values; of rows that expire, and merge operands, the `RowHit`;
          without tombstones
    rest: the filters of levels that may hold rows of the range beside these
    seen_from: readers of this sequence number and above see all of it
    """

    __slots__ = ("_owner", "end", "keys", "nbytes", "rest", "rows", "seen_from", "start", "together", "used")

    def __init__(
        self,
        start: bytes,
        end: bytes,
        rows: dict[bytes, bytes | RowHit],
        rest: list[Filter],
        seen_from: int,
        owner: HotRanges | None,
    ) -> None:
        self.start = start
        self.end = end
        self.rows = rows
        self.rest = rest
        self.seen_from = seen_from
        self.keys: list[bytes] = []
        """Those in `HotRanges.rows`."""
        self.together = False
        """Whether all of its rows are there."""
        self.used = False
        values = sum(len(row if isinstance(row, bytes) else row.value) for row in rows.values())
        self.nbytes = _RANGE_BYTES + sum(map(len, rows)) + values + _ROW_BYTES * len(rows)
        self._owner = owner

    @property
    def retired(self) -> bool:
        """See `slate_async.storage.sst.cache.Lookup`."""
        return self._owner is not None and self._owner.retired

    def drop(self) -> None:
        """See `slate_async.storage.sst.cache.Lookup`."""
        if self._owner is not None:
            self._owner.remove(self)
            self._owner = None

    def alone(self, key: bytes) -> bool:
        """Whether ``key``, of the range, is in no level that was left out."""
        hashed = key_hash(key)
        return not any(part.may_contain(hashed) for part in self.rest)


_NOTHING = HotRange(b"", b"", {}, [], 0, None)


class HotRanges:
    """The hot ranges of one list of levels; ``retired`` once the database has other levels.

    ``starts`` and ``ranges`` belong together, ascending; the first range holds no key, so
    ``ranges[bisect_right(starts, key) - 1]`` is always one, and ``key < range.end`` says whether it is the key's.
    ``rows`` are of all ranges without a rest, as far as they fit, and these make up ``whole``. All of it is for readers
    from ``seen_from`` on."""

    __slots__ = ("_cache", "_levels", "_nbytes", "_reads", "ranges", "retired", "rows", "seen_from", "starts", "whole")

    def __init__(self, levels: Sequence[Run], cache: BlockCache | None) -> None:
        self.starts = [b""]
        self.ranges = [_NOTHING]
        self.rows: dict[bytes, bytes | RowHit] = {}
        self.whole = KeySpans()
        self.seen_from = 0
        self._levels = levels
        self._cache = cache
        self._reads = 0
        self._nbytes = 0
        self.retired = False

    def read(self, key: bytes) -> None:
        """``key`` was found in a block of a level that is in memory. Makes the range around it, at times."""
        self._reads += 1
        if self._reads < READS_PER_LOOK or self._cache is None:
            return
        self._reads = 0
        near = self.ranges[bisect_right(self.starts, key) - 1]
        if key < near.end and not near.rest:
            return  # it is hot; this reader may not see all of it, or wants more of a row than the value
        made = self._make(key)
        if made is not None:
            self._add(made, self._cache)

    def look_up_each(self, keys: Sequence[bytes], max_seq: int) -> list[bytes | RowHit | NeedsIO | None]:
        """What hot ranges alone tell a reader up to ``max_seq`` of each of ``keys``; `NEEDS_IO` of the others."""
        if not self._levels:
            return [None] * len(keys)
        if max_seq < self.seen_from:
            return [NEEDS_IO] * len(keys)
        for key in keys[::READS_PER_MARK]:
            self.mark(key)
        found: list[bytes | RowHit | NeedsIO | None] = list(map(self.rows.get, keys))
        if not all(found):  # a value may be empty, too; to look at types takes several times as long
            for at, row in enumerate(found):
                if row is None and keys[at] not in self.whole:
                    near = self.ranges[bisect_right(self.starts, keys[at]) - 1]
                    known = keys[at] < near.end and not near.rest
                    found[at] = near.rows.get(keys[at]) if known else NEEDS_IO
        return found

    def mark(self, key: bytes) -> None:
        """``key`` was read: its range is used. Called now and then, which is often enough to tell which are."""
        self.ranges[bisect_right(self.starts, key) - 1].used = True

    def remove(self, hot_range: HotRange) -> None:
        """Forget ``one``. Idempotent."""
        at = bisect_left(self.starts, hot_range.start, 1)
        if at < len(self.ranges) and self.ranges[at] is hot_range:
            del self.starts[at], self.ranges[at]
            self._forget(hot_range)

    def _forget(self, hot_range: HotRange) -> None:
        self._nbytes -= hot_range.nbytes
        if hot_range.together:
            self.whole.remove(hot_range.start, hot_range.end)
        for key in hot_range.keys:
            del self.rows[key]
        hot_range.keys = []

    def retire(self) -> None:
        """The database has other levels now. Reads under way may go on with these, but their memory may be
        reclaimed."""
        self.retired = True
        if self._cache is not None:
            self._cache.retire(self._nbytes)

    def _make(self, key: bytes) -> HotRange | None:
        start, end = b"", BEYOND_ALL_KEYS
        blocks: list[LoadedBlock] = []
        rest: list[Filter] = []
        most_rows = max(1, MOST_ROWS // len(self._levels))
        for level in self._levels:
            table = level.find(key)
            if table is None:
                low, high = level.gap(key)
            else:
                around = table.source.around(key, most_rows)
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

    def _merged(self, start: bytes, end: bytes, newest_first: list[LoadedBlock], rest: list[Filter]) -> HotRange:
        rows: dict[bytes, bytes | RowHit] = {}
        newest = 0
        for block in reversed(newest_first):
            newest = max(newest, block.lay_over(rows, start, end))
        for key in [key for key, row in rows.items() if not isinstance(row, bytes) and row.kind == DELETE]:
            del rows[key]
        return HotRange(start, end, rows, rest, newest, self)

    def _add(self, made: HotRange, cache: BlockCache) -> None:
        """Put ``made`` in the place of every range it overlaps."""
        first = bisect_left(self.starts, made.start, 1)
        if self.ranges[first - 1].end > made.start:
            first -= 1
        stop = bisect_left(self.starts, made.end, 1)
        for hot in self.ranges[first:stop]:
            cache.forget(hot)
            self._forget(hot)
        self.starts[first:stop] = [made.start]
        self.ranges[first:stop] = [made]
        self._nbytes += made.nbytes
        self.seen_from = max(self.seen_from, made.seen_from)
        if not made.rest and len(self.rows) + len(made.rows) <= MOST_TOGETHER:
            self.rows.update(made.rows)
            made.keys, made.rows, made.together = list(made.rows), {}, True
            self.whole.add(made.start, made.end)
        cache.keep(made)


class HotReads:
    """Hands the hot ranges of a database from one view to the next while the levels stay the same."""

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._levels: Sequence[Run] = ()
        self._current = HotRanges((), cache)

    def over(self, levels: Sequence[Run]) -> HotRanges:
        """The ranges of ``levels``; those of other levels retire."""
        if len(levels) != len(self._levels) or not all(
            level.same_as(before) for level, before in zip(levels, self._levels, strict=True)
        ):
            self._levels = levels
            self._current.retire()
            self._current = HotRanges(levels, self._cache)
        return self._current

    def end(self) -> None:
        """The database is not read any more: the memory may be reclaimed."""
        self.over(())
