"""The rows of a block as scans want them: from when on every row is seen, and the first few rows of a range.

A short scan reads a few rows of a block, so it must not pay for all of its rows: a key is found through every
`SAMPLE_EVERY`-th key, and only the rows near it become Python objects. Of a block that is read like that again, the
groups of rows that are read stay Python objects, as long as the block cache has room for them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol, TypeAlias

from slate_async.storage.format.raw_block import RawBlock
from slate_async.storage.format.separate_blocks import seen_from_of
from slate_async.types import MAX_SEQ, MERGE, PUT, RowHit, RowPage

Pair: TypeAlias = tuple[bytes, bytes]

SAMPLE_EVERY = 16
SAMPLES_PER_GROUP = 2
GROUP_ROWS = SAMPLE_EVERY * SAMPLES_PER_GROUP
FEW_ROWS = 512
WORTH_LOOKS = 16
"""Groups are kept of a block from this look on: making those a look meets takes as long as several looks without."""
MOST_BYTES = 1 << 18
"""Of larger blocks none are kept: their rows are large, and making a group of them would take long."""
NOT_SEEN = MAX_SEQ + 1
"""Of a block with rows that no reader sees all of."""
_PAIR_BYTES = 150
"""What a key and its value take as Python objects in a list, beside their bytes."""


class Group:
    """Some neighbouring rows of a block of which every reader sees every row; a `storage.sst.cache.Lookup`."""

    __slots__ = ("_groups", "_number", "nbytes", "pairs", "used")
    retired = False

    def __init__(self, raw: RawBlock, number: int, groups: dict[int, Group]) -> None:
        """Number ``number`` of ``raw``, entered in ``groups``."""
        low = number * GROUP_ROWS
        keys = raw.keys(low, low + GROUP_ROWS)
        values = raw.values(low, low + GROUP_ROWS)
        self.pairs: list[Pair] = list(zip(keys, values, strict=True))
        self.nbytes = sum(map(len, keys)) + sum(map(len, values)) + _PAIR_BYTES * len(keys)
        self.used = False
        self._number = number
        self._groups = groups  # and not their block, which may go before them
        groups[number] = self

    def drop(self) -> None:
        """See `slate_async.storage.sst.cache.Lookup`."""
        self._groups.pop(self._number, None)


class Keeper(Protocol):
    """What decides how many groups stay; `slate_async.storage.sst.cache.BlockCache`."""

    def keep(self, lookup: Group, /) -> None:
        """Keep ``lookup`` until there is need for its room. It may be dropped before this returns."""


class BlockRows:
    """The sorted rows of one block. ``seen_from`` as of `codec.columns.Columns`; ``groups`` are those that
    are kept."""

    __slots__ = ("_keeps", "_looks", "_raw", "_rows", "_samples", "_seen_from", "groups", "seen_from")

    def __init__(self, raw: RawBlock, seen_from: int | None = None) -> None:
        """``seen_from``: if somebody has looked already."""
        self.groups: dict[int, Group] = {}
        self._raw = raw
        self._rows = raw.rows
        if self._rows <= FEW_ROWS:  # then making all keys takes less than picking some
            keys = raw.keys(0, self._rows)
            self._samples = keys[::SAMPLE_EVERY]
            if seen_from is None and raw.plain and len(set(keys)) == len(keys):
                seen_from = raw.newest
        else:
            self._samples = list(map(raw.key, range(0, self._rows, SAMPLE_EVERY)))
            if seen_from is None:
                seen_from = seen_from_of(raw.columns())
        self.seen_from = seen_from
        self._seen_from = NOT_SEEN if seen_from is None else seen_from
        self._looks = 0
        self._keeps = False

    def first(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        whole: bool,
        last: bool,
        keeper: Keeper,
    ) -> RowPage | None:
        """See `slate_async.engine.read.sources.TableSource.first_rows`, of this block alone and forwards.

        ``last``: no later block holds keys of the range. If one does, a page may be empty that has not ended: this
        block lies before the range."""
        plain = self._seen_from <= max_seq and not whole
        samples = self._samples
        if plain and self._keeps_groups():
            return self._first_of_groups(start, end, count, last, keeper)
        base = 0 if start is None else max(0, bisect_left(samples, start) - 1) * SAMPLE_EVERY
        keys = self._raw.keys(base, base + SAMPLE_EVERY + 1 + count)
        low = 0 if start is None else bisect_left(keys, start)
        beyond = len(keys) if end is None else bisect_left(keys, end, low)
        stop = min(low + count, beyond)
        ended = stop == beyond and (beyond < len(keys) or (last and base + beyond == self._rows))
        if plain:
            return self._pairs(keys[low:stop], base + low), False, ended
        return self._newest(keys[low:stop], base + low, max_seq, now_ms, whole, ended)

    def last(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        whole: bool,
        first: bool,
        keeper: Keeper,
    ) -> RowPage | None:
        """As `first` backwards, of a block that does not begin with versions of a key before it. ``first``: no earlier
        block holds keys of the range."""
        plain = self._seen_from <= max_seq and not whole
        samples = self._samples
        if plain and self._keeps_groups():
            return self._last_of_groups(start, end, count, first, keeper)
        stop = self._rows if end is None else min(self._rows, bisect_left(samples, end) * SAMPLE_EVERY)
        base = max(0, stop - SAMPLE_EVERY - 1 - count)
        keys = self._raw.keys(base, stop)
        beyond = len(keys) if end is None else bisect_left(keys, end)
        begin = 0 if start is None else bisect_left(keys, start, 0, beyond)
        low = max(begin, beyond - count)
        ended = low == begin and (low > 0 or (first and base == 0))
        if plain:
            return self._pairs(keys[low:beyond], base + low)[::-1], False, ended
        cut = low
        while begin < low < beyond and keys[low - 1] == keys[low]:  # newer versions of this key were left out
            low += 1
        if cut < low == beyond:
            return None
        found = self._newest(keys[low:beyond], base + low, max_seq, now_ms, whole, ended)
        return None if found is None else (found[0][::-1], *found[1:])

    def _pairs(self, keys: list[bytes], low: int) -> list[Pair]:
        """``keys``, those of the rows from ``low``, with their values."""
        return list(zip(keys, self._raw.values(low, low + len(keys)), strict=True))

    # groups

    def _keeps_groups(self) -> bool:
        """Whether the look that begins should make, and use, groups."""
        self._looks += 1
        if self._looks == WORTH_LOOKS:
            self._keeps = self._raw.raw_bytes <= MOST_BYTES
        return self._keeps

    def _group(self, number: int, keeper: Keeper) -> list[Pair]:
        group = self.groups.get(number)
        if group is None:
            group = Group(self._raw, number, self.groups)
            keeper.keep(group)
        group.used = True
        return group.pairs

    def _first_of_groups(
        self, start: bytes | None, end: bytes | None, count: int, last: bool, keeper: Keeper
    ) -> RowPage:
        number = 0 if start is None else max(0, bisect_right(self._samples, start) - 1) // SAMPLES_PER_GROUP
        pairs = self._group(number, keeper)
        low = 0 if start is None else bisect_left(pairs, (start,))
        found = pairs[low : low + count]
        stop = number * GROUP_ROWS + low + len(found)
        while len(found) < count and stop < self._rows:
            number += 1
            more = self._group(number, keeper)[: count - len(found)]
            found += more
            stop += len(more)
        if end is not None and found and found[-1][0] >= end:
            return found[: bisect_left(found, (end,))], False, True
        return found, False, last and stop == self._rows

    def _last_of_groups(
        self, start: bytes | None, end: bytes | None, count: int, first: bool, keeper: Keeper
    ) -> RowPage:
        samples = self._samples
        number = max(0, (len(samples) if end is None else bisect_left(samples, end)) - 1) // SAMPLES_PER_GROUP
        pairs = self._group(number, keeper)
        high = len(pairs) if end is None else bisect_left(pairs, (end,))
        low = max(0, high - count)
        found = pairs[low:high]
        while len(found) < count and number:
            number -= 1
            low = max(0, GROUP_ROWS - count + len(found))
            found = self._group(number, keeper)[low:] + found
        begin = 0 if start is None else bisect_left(found, (start,))
        return found[begin:][::-1], False, bool(begin) or (first and not number and not low)

    # versions

    def _newest(
        self, keys: list[bytes], low: int, max_seq: int, now_ms: int, whole: bool, ended: bool
    ) -> RowPage | None:
        """Of each of ``keys``, those of the rows from ``low``, its newest version up to ``max_seq``. ``None`` if these
        rows do not decide that.

        Older versions of the last key may follow after them. Either one of these counts, or the key is left out and
        the page ends before it, and is asked for again."""
        if not whole and self._raw.plain and self._raw.newest <= max_seq:  # the first row of each key
            newest = dict(zip(reversed(keys), reversed(self._raw.values(low, low + len(keys))), strict=True))
            return list(newest.items())[::-1], True, ended
        hits = self._raw.hits(low, low + len(keys))
        if self._seen_from <= max_seq:
            return list(zip(keys, hits, strict=True)), False, ended
        found: dict[bytes, bytes | RowHit | None] = {}
        for key, hit in zip(keys, hits, strict=True):
            if hit.seq <= max_seq and key not in found:
                if hit.kind >= MERGE:
                    return None
                alive = hit.kind == PUT and hit.expire_ms > now_ms
                found[key] = (hit if whole else hit.value) if alive else None
        if keys and not found and not ended:
            return None
        return list(found.items()), True, ended
