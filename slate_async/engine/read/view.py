"""`ReadView`: the immutable list of the sources that a read looks at, newest first.

Sources: memtables, then L0 SSTs, then sorted runs. The list never changes; the newest memtable may grow, and a read
takes from it only rows that were there when the read began. A read stops at the first source that knows the key. A read
that spans several steps holds a `Pin`: as long as a view is pinned, its SSTs must not be deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import cast
from weakref import ref

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.hot import HotRanges, HotReads
from slate_async.engine.read.live import LiveRows, live_hit, live_value
from slate_async.engine.read.many import find_many, load_tables
from slate_async.engine.read.merge import MergedRows, Stream
from slate_async.engine.read.operands import hit_at, merged_hit
from slate_async.engine.read.shares import Shares
from slate_async.engine.read.sources import Run, Table
from slate_async.engine.read.streams import MemtableStream, RunStream
from slate_async.merge_operators.guarded import Guarded
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.filter import key_hash
from slate_async.storage.memtable import Memtable
from slate_async.types import MAX_SEQ, MERGE, NEEDS_IO, NeedsIO, RowHit

KEYS_PER_STEP = 256
"""Keys that `ReadView.get_many` looks for in memory before it looks whether others want a turn: about 0.1 ms."""

MOST_CHAINED = 4_096
"""Versions of a key that are gathered at once, in about 2 ms. More are read as a scan reads them."""
READ_AT_ONCE = 2
"""Blocks of a level that a merge reads without waiting."""


class Pin:
    """Keeps a view's sources readable as long as any read holds it. Concurrent reads share one pin, and each drops it
    when it is done."""

    __slots__ = ("__weakref__",)


def _no_pin() -> None:
    """No read has begun yet."""


class ReadView:
    """See the module docstring. ``max_seq`` is the highest sequence number its reads see unless a call names a
    lower or higher one; the sources are given newest first."""

    def __init__(
        self,
        memtables: Sequence[Memtable],
        tables: Sequence[Table],
        runs: Sequence[Run],
        *,
        yield_budget: YieldBudget,
        max_seq: int = MAX_SEQ,
        hot: HotReads | None = None,
        merging: Guarded | None = None,
    ) -> None:
        """``hot``: of the views of one database, one after another; ``None`` for a view that keeps no hot ranges.
        ``merging``: the database's merge operator, if it has one."""
        self.memtables = tuple(memtables)
        self.latest: Mapping[bytes, bytes | int] = memtables[0].latest if memtables else {}
        """`Memtable.latest` of the newest memtable."""
        self._older_memtables = self.memtables[1:]
        self.tables = tuple(tables)
        self.runs = tuple(runs)
        self.max_seq = max_seq
        self._yield_budget = yield_budget
        self._merging = merging
        self._levels = (*(Run((table,)) for table in self.tables), *self.runs)
        self._hot = HotRanges(self._levels, None) if hot is None else hot.over(self._levels)
        self._pin: Callable[[], Pin | None] = _no_pin
        self.shares = Shares(len(self.memtables) + len(self._levels))
        """What short scans have learned of memtables and `levels`."""

    # pins

    @property
    def pinned(self) -> bool:
        """Whether a read still uses it."""
        return self._pin() is not None

    def pin(self) -> Pin:
        """Keep the sources as long as the pin is held."""
        pin = self._pin()
        if pin is None:
            pin = Pin()
            self._pin = ref(pin)
        return pin

    # what it consists of

    @property
    def levels(self) -> Sequence[Run]:
        """Its SSTs as runs, newest first."""
        return self._levels

    def reads(self, key: str) -> bool:
        """Whether the object ``key`` is one of its sources."""
        return any(run.reads(key) for run in self._levels)

    @property
    def may_expire(self) -> bool:
        """Whether it may hold rows that expire."""
        return any(run.expires for run in self._levels) or any(memtable.expires for memtable in self.memtables)

    # point reads

    def look_up(self, key: bytes, max_seq: int) -> bytes | RowHit | NeedsIO | None:
        """The newest version of ``key`` up to ``max_seq``: a value that does not expire, else a `RowHit` (see
        `live_hit`), ``None`` if there is none, `NEEDS_IO` when only the store knows, or others should have their turn
        before SSTs are asked. Never suspends."""
        for table in self.memtables:
            if table.last_seq:
                found = table.find(key, max_seq)
                if found is not None:
                    return found
        return self._look_up_stored(key, max_seq) if self._levels else None

    def look_below(self, key: bytes) -> bytes | RowHit | NeedsIO | None:
        """As `look_up` at the newest read point, for a caller that knows that ``key`` is not in `latest`."""
        for table in self._older_memtables:
            found = table.find(key, MAX_SEQ)
            if found is not None:
                return found
        if not self._levels:
            return None
        hot = self._hot
        found = hot.rows.get(key)
        if found is not None:
            return found
        spans = hot.whole
        # HOT: copy of engine.read.key_spans.KeySpans.__contains__; 60 ns, 2026-11-23
        at = bisect_right(spans.starts, key)
        if at and key < spans.ends[at - 1]:
            return None
        return self._look_up_stored(key, MAX_SEQ)

    def _look_up_stored(self, key: bytes, max_seq: int) -> bytes | RowHit | NeedsIO | None:
        hot = self._hot
        if max_seq >= hot.seen_from:
            found = hot.rows.get(key)
            if found is not None:
                return found
            if key in hot.whole:
                return None
            near = hot.ranges[bisect_right(hot.starts, key) - 1]
            if key < near.end:
                near.used = True
                if not near.rest or near.alone(key):
                    return near.rows.get(key)
        return self._look_in_levels(key, max_seq)

    def mark(self, key: bytes) -> None:
        """``key`` was read: tell what is kept for such reads that it is of use. For every n-th read."""
        self._hot.mark(key)

    def _look_in_levels(self, key: bytes, max_seq: int) -> RowHit | NeedsIO | None:
        """What they tell without waiting, blocks read that need no waiting; `NEEDS_IO`, too, if others should
        have their turn first."""
        if self._yield_budget.exhausted():
            return NEEDS_IO
        hashed = key_hash(key)
        for run in self._levels:
            candidate = run.find(key)
            if candidate is not None:
                found = candidate.source.probe(key, hashed, max_seq, True)
                if found is NEEDS_IO:
                    return NEEDS_IO
                if found is not None:
                    self._hot.read(key)
                    return found
        return None

    def get_now(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | NeedsIO | None:
        """The live row of ``key``, ``None`` if there is none, `NEEDS_IO` as of `look_up`. Never suspends.

        ``now_ms`` judges expiry. `NEEDS_IO` also if its newest version is an operand.
        """
        seen = self.max_seq if max_seq is None else max_seq
        hit = self._in_memory(key, seen)
        if hit is NEEDS_IO:
            return NEEDS_IO
        if hit is not None:
            return live_hit(hit, now_ms)
        found = self._look_in_levels(key, seen) if self._levels else None
        return found if found is None or found is NEEDS_IO else live_hit(found, now_ms)

    async def get(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | None:
        """As `get_now`, asking the store when it must: what is not loaded is loaded at once, then the sources are
        read newest first up to the first that knows the key. Raises what the store raises, and `CorruptionError`.
        """
        seen = self.max_seq if max_seq is None else max_seq
        hit = self._in_memory(key, seen)
        if hit is NEEDS_IO:
            hit = await self._get_from_memory(key, self.memory(seen))
        if hit is None and self._levels:
            hit = await self._get_from_levels(key, seen)
        live = None if hit is None else live_hit(hit, now_ms)
        return await self._get_merged(key, seen, now_ms) if live is NEEDS_IO else live

    def chain(self, key: bytes, max_seq: int) -> list[RowHit] | NeedsIO:
        """The versions of ``key`` up to ``max_seq`` that a merge wants, newest first, if they are in memory or can be
        read without waiting, and are not many; each source is asked once. Never suspends."""
        found: list[RowHit] = []
        for memtable in self.memtables:
            part = memtable.chain(key, max_seq, MOST_CHAINED - len(found))
            if part is NEEDS_IO:
                return NEEDS_IO
            found += part
            if part and part[-1].kind != MERGE:
                return found
        hashed = key_hash(key) if self._levels else 0
        for run in self._levels:
            table = run.find(key)
            if table is None:
                continue
            part = table.source.chain(key, hashed, max_seq, MOST_CHAINED - len(found), READ_AT_ONCE)
            if part is NEEDS_IO:
                return NEEDS_IO
            found += part
            if part and part[-1].kind != MERGE:
                return found
        return found

    async def _get_merged(self, key: bytes, max_seq: int, now_ms: int) -> RowHit | None:
        """The live row of ``key``, whose newest version is an operand. Raises `MergeError`."""
        if self._yield_budget.exhausted():
            pin = self.pin()
            await self._yield_budget.yield_now()
            del pin
        if self._merging is not None and (chain := self.chain(key, max_seq)) is not NEEDS_IO:
            return merged_hit(self._merging, key, chain, now_ms)
        pin = self.pin()
        rows = self.live_rows(KeyRange(key, key + b"\0"), now_ms=now_ms, max_seq=max_seq)
        try:
            found = await anext(rows, None)
        finally:
            await rows.aclose()
            del pin
        return None if found is None else hit_at(found, 0)

    async def _get_from_memory(self, key: bytes, memory: Sequence[tuple[Memtable, int]]) -> RowHit | None:
        await self._index(memory)
        for table, limit in memory:
            hit = table.get(key, limit)
            if hit is not None:
                assert hit is not NEEDS_IO
                return hit
        return None

    async def _index(self, memory: Sequence[tuple[Memtable, int]]) -> None:
        """So that each memtable can tell of all that is seen of it."""
        for table, limit in memory:
            for _ in table.index_steps(limit):
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()

    def _in_memory(self, key: bytes, max_seq: int) -> RowHit | NeedsIO | None:
        for table in self.memtables:
            hit = table.get(key, max_seq)
            if hit is not None:
                return hit
        return None

    async def _get_from_levels(self, key: bytes, max_seq: int) -> RowHit | None:
        hashed = key_hash(key)
        candidates = [table.source for table in (run.find(key) for run in self._levels) if table is not None]
        pin = self.pin()
        try:
            await load_tables(candidates)
            for source in candidates:
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
                hit = source.probe(key, hashed, max_seq, True)
                if hit is NEEDS_IO:
                    hit = await source.get(key, hashed, max_seq)
                if hit is not None:
                    return hit
            return None
        finally:
            del pin

    async def get_many(self, keys: Sequence[bytes], now_ms: int, max_seq: int | None = None) -> list[bytes | None]:
        """The live value or ``None`` for each of ``keys``, in their order, all of one read point. Each block is read
        once."""
        seen = self.max_seq if max_seq is None else max_seq
        pin = self.pin()
        try:
            memory = self.memory(seen)
            found: list[bytes | RowHit | NeedsIO | None] = []
            for start in range(0, len(keys), KEYS_PER_STEP):
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
                if any(limit < table.last_seq for table, limit in memory):
                    await self._index(memory)
                found += self._look_up_each(keys[start : start + KEYS_PER_STEP], memory, seen)
            if {RowHit, NeedsIO}.isdisjoint(map(type, found)):
                return cast("list[bytes | None]", found)
            unknown = [key for key, value in zip(keys, found, strict=True) if value is NEEDS_IO]
            hits = await find_many(self._levels, unknown, seen, self._yield_budget, self._hot.read) if unknown else {}
            rows = (hits.get(key) if row is NEEDS_IO else row for key, row in zip(keys, found, strict=True))
            values: list[bytes | None] = []
            for key, row in zip(keys, rows, strict=True):
                value = live_value(row, now_ms)
                if value is NEEDS_IO:
                    hit = await self._get_merged(key, seen, now_ms)
                    value = None if hit is None else hit.value
                values.append(value)
            return values
        finally:
            del pin

    def _look_up_each(
        self, keys: Sequence[bytes], memory: Sequence[tuple[Memtable, int]], max_seq: int
    ) -> list[bytes | RowHit | NeedsIO | None]:
        """As `look_up` each of ``keys``, of what memory and hot ranges tell; `NEEDS_IO` of the others."""
        if not memory:
            return self._hot.look_up_each(keys, max_seq)
        found: list[bytes | RowHit | NeedsIO | None] = [None] * len(keys)
        left: Sequence[int] = range(len(keys))
        for table, limit in memory:
            for at in left:
                found[at] = table.find(keys[at], limit)
            left = [at for at in left if found[at] is None]
        for at, value in zip(left, self._hot.look_up_each([keys[at] for at in left], max_seq), strict=True):
            found[at] = value
        return found

    def memory(self, max_seq: int | None = None) -> list[tuple[Memtable, int]]:
        """The memtables that have rows now, each with the highest sequence number to see of it."""
        seen = self.max_seq if max_seq is None else max_seq
        return [(table, min(seen, table.last_seq)) for table in self.memtables if table.last_seq]

    # scans

    def live_rows(
        self,
        span: KeyRange,
        *,
        now_ms: int,
        max_seq: int | None = None,
        reverse: bool = False,
        prefetch: bool = False,
    ) -> LiveRows:
        """The live rows of ``span`` as they are at this call, in batches. Does nothing until iterated. ``prefetch``:
        the caller wants all of them soon.

        The caller holds a pin meanwhile, and closes the stream.
        """
        seen = self.max_seq if max_seq is None else max_seq
        streams = self._streams(span, seen, reverse, prefetch)
        return LiveRows(
            streams,
            max_seq=seen,
            now_ms=now_ms,
            yield_budget=self._yield_budget,
            reverse=reverse,
            merging=self._merging,
        )

    def versions(self, span: KeyRange, max_seq: int) -> MergedRows:
        """Every version that SSTs hold of the keys of ``span``, tombstones too, also some above ``max_seq``; of each
        memtable the newest one up to it. Does nothing until iterated.

        The caller holds a pin meanwhile, and closes it.
        """
        return MergedRows(self._streams(span, max_seq, reverse=False, prefetch=True))

    def has_pages(self, span: KeyRange) -> bool:
        """Whether `engine.read.first_pages` may read ``span``: nothing but rows of its keys tells what is seen."""
        return True

    def _tables_within(self, run: Run, span: KeyRange, max_seq: int) -> Sequence[int]:
        """The numbers of the tables of ``run`` in which a reader up to ``max_seq`` may see rows of ``span``."""
        return run.within(span.start, span.end)

    def _streams(self, span: KeyRange, max_seq: int, reverse: bool, prefetch: bool) -> list[Stream]:
        """One for each source with rows of ``span``, newest first."""
        streams: list[Stream] = []
        if span.empty:
            return streams
        for memtable, limit in self.memory(max_seq):
            rows = MemtableStream(memtable, span, limit, reverse, self._yield_budget)
            streams.append(Stream(rows, local=True))
        stored = [(run, numbers) for run in self._levels if (numbers := self._tables_within(run, span, max_seq))]
        merged = reverse or len(streams) + len(stored) > 1
        for run, numbers in stored:
            rows_of_run = RunStream(run, numbers, span, reverse, len(stored) if prefetch else 0, merged=merged)
            streams.append(Stream(rows_of_run, next_nowait=rows_of_run.next_nowait))
        return streams
