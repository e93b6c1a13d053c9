"""`CoveredView`: a view of a database with range deletes, which hide rows of their ranges.

A read of a key finds, as always, the newest row that it sees; then `Covers.floor` tells whether that is hidden, and
with it all older ones. Levels that hold nothing new enough are not asked. A scan takes hidden rows out of each source
before they are merged; it gives no first pages where a range delete may lie over what it reads.

Reads of now remember of keys what holds for as long as the view does: that their newest row below the newest memtable
is seen, or that nothing below it is. The newest memtable remembers which of its values are seen, and forgets those that
are written over. So a key that is read again costs a look or two, and no search.

A database without range deletes has plain views, and pays nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from weakref import WeakSet

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.covers import NO_COVERS, Covers
from slate_async.engine.read.hot import HotReads
from slate_async.engine.read.live import live_hit, live_value
from slate_async.engine.read.many import find_many, load_tables
from slate_async.engine.read.merge import Stream, close_stream
from slate_async.engine.read.sources import Run, Table
from slate_async.engine.read.view import KEYS_PER_STEP, ReadView
from slate_async.merge_operators.guarded import Guarded
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.filter import key_hash
from slate_async.storage.memtable import Memtable
from slate_async.storage.memtable.remembered import Remembered
from slate_async.types import MAX_SEQ, NEEDS_IO, NeedsIO, RangeDelete, RowHit

FEW_NEWER = 64
"""So many new range deletes are put among the others one by one; with more of them all are laid out anew."""


class CoveredView(ReadView):
    """See the module docstring. ``covers``: all range deletes of its sources, those of the newest memtable as they are
    now: who adds one to it makes another view."""

    def __init__(
        self,
        memtables: Sequence[Memtable],
        tables: Sequence[Table],
        runs: Sequence[Run],
        covers: Covers,
        *,
        yield_budget: YieldBudget,
        max_seq: int = MAX_SEQ,
        hot: HotReads | None = None,
        merging: Guarded | None = None,
    ) -> None:
        super().__init__(memtables, tables, runs, yield_budget=yield_budget, max_seq=max_seq, hot=hot, merging=merging)
        self.covers = covers
        self._below: Remembered[bool] = Remembered()  # whether the newest row below the newest memtable is seen
        self._newest: Memtable | None = None  # if rows of it may be hidden by range deletes of its own
        self._own_ranges = memtables[0].range_count if memtables else 0
        if self._own_ranges:
            self._newest = memtables[0]
            assert self._newest.seen is not None
            self.latest = self._newest.seen.known

    # point reads

    def look_up(self, key: bytes, max_seq: int) -> bytes | RowHit | NeedsIO | None:
        """See `ReadView`."""
        floor = self.covers.floor(key, max_seq)
        return self._look_above(key, max_seq, floor) if floor else super().look_up(key, max_seq)

    def look_below(self, key: bytes) -> bytes | RowHit | NeedsIO | None:
        """See `ReadView`."""
        if self._newest is not None and key in self._newest.latest:
            return self._look_in_newest(self._newest, key)
        seen = self._below.known.get(key)
        if not seen:
            return self._look_below_covered(key) if seen is None else None
        if not self._older_memtables:  # most often: without another call
            found = self._hot.rows.get(key)
            if found is not None:
                return found
        return ReadView.look_below(self, key)

    def _look_in_newest(self, newest: Memtable, key: bytes) -> bytes | RowHit | NeedsIO | None:
        """The newest row of ``key``, which is in the newest memtable, unless that is hidden."""
        floor = self.covers.floor(key, MAX_SEQ)
        if floor:
            hit = newest.get(key, MAX_SEQ)
            if hit is None or hit is NEEDS_IO:
                return hit
            if hit.seq < floor:
                return None
        found = newest.find(key, MAX_SEQ)
        if type(found) is bytes and newest.seen is not None and newest.range_count == self._own_ranges:
            newest.seen.add(key, found)
        return found

    def _look_below_covered(self, key: bytes) -> bytes | RowHit | NeedsIO | None:
        """As `look_below` of a key that is not in the newest memtable and not known yet."""
        floor = self.covers.floor(key, MAX_SEQ)
        if floor:
            found = self._look_above(key, MAX_SEQ, floor)
            if found is NEEDS_IO:
                return found
            self._below.add(key, found is not None)
            return found
        self._below.add(key, True)
        return ReadView.look_below(self, key)

    def undo(self, covers: Covers) -> None:
        """Rows have left memory; ``covers``: what is left of the range deletes."""
        self.covers = covers
        self._below.clear()

    def get_now(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | NeedsIO | None:
        """See `ReadView`."""
        seen = self.max_seq if max_seq is None else max_seq
        floor = self.covers.floor(key, seen)
        if not floor:
            return super().get_now(key, now_ms, seen)
        found = self._look_above(key, seen, floor)
        return found if found is None or found is NEEDS_IO else live_hit(found, now_ms)

    def _look_above(self, key: bytes, max_seq: int, floor: int) -> RowHit | NeedsIO | None:
        """The newest version of ``key`` up to ``max_seq``, if it is not below ``floor``."""
        hit = self._in_memory(key, max_seq)
        if hit is None:
            hit = self._look_in_levels_above(key, max_seq, floor)
        return hit if hit is NEEDS_IO or hit is None or hit.seq >= floor else None

    def _look_in_levels_above(self, key: bytes, max_seq: int, floor: int) -> RowHit | NeedsIO | None:
        candidates = self._candidates(key, floor)
        if not candidates:
            return None
        if self._yield_budget.exhausted():
            return NEEDS_IO
        hashed = key_hash(key)
        for table in candidates:
            found = table.source.probe(key, hashed, max_seq, True)
            if found is not None:
                return found
        return None

    def chain(self, key: bytes, max_seq: int) -> list[RowHit] | NeedsIO:
        """See `ReadView`."""
        found, floor = super().chain(key, max_seq), self.covers.floor(key, max_seq)
        return found if found is NEEDS_IO or not floor else [hit for hit in found if hit.seq >= floor]

    def _candidates(self, key: bytes, floor: int) -> list[Table]:
        """The tables that may hold a row of ``key`` of number ``floor`` or above, newest first."""
        found = (run.find(key) for run in self._levels)
        return [table for table in found if table is not None and table.max_seq >= floor]

    async def get(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | None:
        """See `ReadView`."""
        seen = self.max_seq if max_seq is None else max_seq
        floor = self.covers.floor(key, seen)
        if not floor:
            return await super().get(key, now_ms, seen)
        hit = self._in_memory(key, seen)
        if hit is NEEDS_IO:
            hit = await self._get_from_memory(key, self.memory(seen))
        if hit is None:
            hit = await self._get_above(key, seen, floor)
        live = None if hit is None or hit.seq < floor else live_hit(hit, now_ms)
        return await self._get_merged(key, seen, now_ms) if live is NEEDS_IO else live

    async def _get_above(self, key: bytes, max_seq: int, floor: int) -> RowHit | None:
        hashed = key_hash(key)
        candidates = [table.source for table in self._candidates(key, floor)]
        pin = self.pin()
        try:
            await load_tables(candidates)
            for source in candidates:
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
                hit = await source.get(key, hashed, max_seq)
                if hit is not None:
                    return hit
            return None
        finally:
            del pin

    async def get_many(self, keys: Sequence[bytes], now_ms: int, max_seq: int | None = None) -> list[bytes | None]:
        """See `ReadView`."""
        seen = self.max_seq if max_seq is None else max_seq
        pin = self.pin()
        try:
            floors: dict[bytes, int] = {}
            for start in range(0, len(keys), KEYS_PER_STEP):
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
                for key in keys[start : start + KEYS_PER_STEP]:
                    if floor := self.covers.floor(key, seen):
                        floors[key] = floor
            if not floors:
                return await super().get_many(keys, now_ms, seen)
            memory = self.memory(seen)
            others = [key for key in keys if key not in floors]
            values = dict(zip(others, await super().get_many(others, now_ms, seen), strict=True))
            values.update(await self._get_many_above(floors, memory, now_ms, seen))
            return [values[key] for key in keys]
        finally:
            del pin

    async def _get_many_above(
        self, floors: dict[bytes, int], memory: Sequence[tuple[Memtable, int]], now_ms: int, max_seq: int
    ) -> dict[bytes, bytes | None]:
        """The values of keys of which only rows count that are not below the floor."""
        await self._index(memory)
        found: dict[bytes, RowHit | None] = {}
        unknown: list[bytes] = []
        for number, (key, floor) in enumerate(floors.items()):
            if not number % KEYS_PER_STEP and self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
            hits = (table.get(key, limit) for table, limit in memory)
            hit = next((hit for hit in hits if hit is not None), None)
            assert hit is not NEEDS_IO
            found[key] = hit
            if hit is None and self._candidates(key, floor):
                unknown.append(key)
        if unknown:
            found.update(await find_many(self._levels, unknown, max_seq, self._yield_budget))
        values: dict[bytes, bytes | None] = {}
        for key, hit in found.items():
            value = None if hit is None or hit.seq < floors[key] else live_value(hit, now_ms)
            if value is NEEDS_IO:
                merged = await self._get_merged(key, max_seq, now_ms)
                value = None if merged is None else merged.value
            values[key] = value
        return values

    # scans

    def has_pages(self, span: KeyRange) -> bool:
        """See `ReadView`."""
        return not self.covers.meets(span)

    def _tables_within(self, run: Run, span: KeyRange, max_seq: int) -> Sequence[int]:
        """See `ReadView`: without those all of whose rows are hidden."""
        numbers = run.within(span.start, span.end)
        if not self.covers.meets(span):
            return numbers
        return [
            number
            for number, table in zip(numbers, run.spans(numbers), strict=True)
            if not self.covers.hide(table.first_key, table.last_key, table.max_seq, max_seq)
        ]

    def _streams(self, span: KeyRange, max_seq: int, reverse: bool, prefetch: bool) -> list[Stream]:
        streams = super()._streams(span, max_seq, reverse, prefetch)
        if not self.covers.meets(span):
            return streams
        covered = (_VisibleRows(stream, self.covers, max_seq, self._yield_budget) for stream in streams)
        return [Stream(rows, rows.stream.local, rows.next_nowait) for rows in covered]


class _VisibleRows(AsyncIterator[Columns]):
    """The rows of ``stream`` that are not hidden from a reader up to ``max_seq``, in batches that are not empty."""

    def __init__(self, stream: Stream, covers: Covers, max_seq: int, yield_budget: YieldBudget) -> None:
        self.stream = stream
        self._covers = covers
        self._max_seq = max_seq
        self._yield_budget = yield_budget

    def next_nowait(self) -> Columns | None:
        """The next batch, if that takes no waiting, and anything of it is seen."""
        rows = self.stream.next_nowait()
        seen = None if rows is None else self._covers.visible(rows, self._max_seq)
        return None if seen is None or not len(seen) else seen

    async def __anext__(self) -> Columns:
        while True:
            seen = self._covers.visible(await anext(self.stream.batches), self._max_seq)
            if len(seen):
                return seen
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()

    async def aclose(self) -> None:
        """Close the stream. Idempotent."""
        await close_stream(self.stream.batches)


class ViewMaker:
    """Makes the views of one database, one after another; what is known of its range deletes stays while it holds."""

    def __init__(self, yield_budget: YieldBudget, hot: HotReads | None = None, merging: Guarded | None = None) -> None:
        """``hot``, ``merging``: as of `ReadView`."""
        self._yield_budget = yield_budget
        self._hot = hot
        self._merging = merging
        self._covers = NO_COVERS
        self._known: dict[int, RangeDelete] = {}
        self._of_tables: dict[Memtable, list[RangeDelete]] = {}
        self._made: WeakSet[CoveredView] = WeakSet()

    def view(
        self,
        memtables: Sequence[Memtable],
        tables: Sequence[Table],
        runs: Sequence[Run],
        stored: Sequence[RangeDelete] | None,
    ) -> ReadView:
        """A view of these sources, newest first, and of the range deletes that are ``stored`` or in ``memtables``."""
        if stored or self._known or any(table.range_count for table in memtables):
            self._learn(memtables, stored or ())
        shared: dict[str, Any] = {"yield_budget": self._yield_budget, "hot": self._hot, "merging": self._merging}
        if not self._known:
            return ReadView(memtables, tables, runs, **shared)
        view = CoveredView(memtables, tables, runs, self._covers, **shared)
        self._made.add(view)
        return view

    def undo_above(self, seq: int) -> None:
        """Rows above ``seq`` leave memory, for all views: what they have deleted is there again."""
        for view in list(self._made):
            view.undo(view.covers.up_to(seq))

    def knows(self, table: Memtable) -> bool:
        """Whether the last view was made with all range deletes that are in ``table``, one of its memtables, now."""
        return table.range_count == len(self._of_tables.get(table, ()))

    def _learn(self, memtables: Sequence[Memtable], stored: Sequence[RangeDelete]) -> None:
        deletes = {delete.seq: delete for delete in stored}
        before, self._of_tables = self._of_tables, {}
        for table in reversed(memtables):
            if table.range_count:
                found = before.get(table, [])
                if len(found) != table.range_count:
                    found = [*found, *table.range_deletes(len(found))][: table.range_count]
                self._of_tables[table] = found
                deletes.update((delete.seq, delete) for delete in found)
        known, self._known = self._known, deletes
        if known.keys() == deletes.keys():
            return
        newer = [delete for seq, delete in deletes.items() if seq > self._covers.newest_seq]
        if len(newer) > FEW_NEWER or len(known) + len(newer) != len(deletes) or not known.keys() <= deletes.keys():
            self._covers = Covers(deletes.values())
            return
        for delete in sorted(newer, key=lambda delete: delete.seq):
            self._covers = self._covers.with_newer(delete)
