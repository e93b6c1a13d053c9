"""`ReadView`: an immutable picture of what a read looks at, newest source first.

Sources: memtables, then L0 SSTs, then sorted runs. The list never changes; the newest memtable may grow, and a
read takes from it only rows that were there when the read began. A read stops at the first source that knows the
key. Whoever keeps reading holds a `Pin`: as long as a view is pinned, its SSTs must not be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from slate_async.format.filter import key_hash
from slate_async.memtable import Memtable
from slate_async.read.bounds import KeyRange
from slate_async.read.live import LiveRows, live_hit
from slate_async.read.many import find_many, load_tables
from slate_async.read.merge import Stream
from slate_async.read.sources import Run, Table, TableSource
from slate_async.read.streams import MemtableStream, RunStream
from slate_async.runtime.turns import FairTurns
from slate_async.types import MAX_SEQ, NEEDS_IO, NeedsIO, RowHit


class Pin:
    """Keeps a view's sources readable until `release`, or until it is garbage: whoever reads holds it."""

    __slots__ = ("_number", "_pins")

    def __init__(self, pins: dict[int, None], number: int) -> None:
        """Entered in ``pins``, those of the view, as ``number``."""
        self._pins = pins
        self._number = number
        pins[number] = None

    def release(self) -> None:
        """Give the pin up. Idempotent."""
        self._pins.pop(self._number, None)  # atomic, so it does not matter which thread collects a forgotten pin

    __del__ = release


class ReadView:
    """See the module docstring. ``max_seq`` is the highest sequence number its reads see unless a call names a
    lower or higher one; the sources are given newest first."""

    def __init__(
        self,
        memtables: Sequence[Memtable],
        tables: Sequence[Table],
        runs: Sequence[Run],
        *,
        turns: FairTurns,
        max_seq: int = MAX_SEQ,
    ) -> None:
        self.memtables = tuple(memtables)
        self.tables = tuple(tables)
        self.runs = tuple(runs)
        self.max_seq = max_seq
        self._turns = turns
        self._levels = (*(Run((table,)) for table in self.tables), *self.runs)
        self._pins: dict[int, None] = {}
        self._pin_numbers = count()

    # pins

    @property
    def pinned(self) -> bool:
        """Whether somebody still reads from it."""
        return bool(self._pins)

    def pin(self) -> Pin:
        """Keep the sources until the pin is released or garbage."""
        return Pin(self._pins, next(self._pin_numbers))

    # what it consists of

    def reads(self, key: str) -> bool:
        """Whether the object ``key`` is one of its sources."""
        return any(table.source.key == key for run in self._levels for table in run.tables)

    @property
    def may_expire(self) -> bool:
        """Whether it may hold rows that expire."""
        stored = any(table.expires for run in self._levels for table in run.tables)
        return stored or any(memtable.expires for memtable in self.memtables)

    # point reads

    def get_now(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | NeedsIO | None:
        """The live row of ``key``, ``None`` if there is none, `NEEDS_IO` when only the store knows. Never suspends.

        ``now_ms`` judges expiry. Raises `InternalError` for a merge operand.
        """
        seen = self.max_seq if max_seq is None else max_seq
        for table in self.memtables:
            hit = table.get(key, seen)
            if hit is not None:
                return live_hit(hit, now_ms)
        if not self._levels:
            return None
        hashed = key_hash(key)
        for run in self._levels:
            candidate = run.find(key)
            if candidate is None:
                continue
            found = candidate.source.probe(key, hashed, seen)
            if found is NEEDS_IO:
                return NEEDS_IO
            if found is not None:
                return live_hit(found, now_ms)
        return None

    async def get(self, key: bytes, now_ms: int, max_seq: int | None = None) -> RowHit | None:
        """As `get_now`, asking the store when it must: what is not loaded is loaded at once, then the sources are
        read newest first up to the first that knows the key. Raises what the store raises, and `CorruptionError`.
        """
        found = self.get_now(key, now_ms, max_seq)
        if found is not NEEDS_IO:
            return found
        seen = self.max_seq if max_seq is None else max_seq
        hashed = key_hash(key)
        candidates = [table.source for table in (run.find(key) for run in self._levels) if table is not None]
        pin = self.pin()
        try:
            await load_tables(candidates)
            for source in candidates:
                hit = await _probe_or_get(source, key, hashed, seen)
                if hit is not None:
                    return live_hit(hit, now_ms)
            return None
        finally:
            pin.release()

    async def get_many(self, keys: Sequence[bytes], now_ms: int, max_seq: int | None = None) -> list[RowHit | None]:
        """The live row or ``None`` for each of ``keys``, in their order, all of one moment. Each block is read once."""
        pin = self.pin()
        try:
            hits = await self._find_many(keys, self.max_seq if max_seq is None else max_seq)
        finally:
            pin.release()
        live = {key: live_hit(hit, now_ms) for key, hit in hits.items()}
        return [live.get(key) for key in keys]

    async def _find_many(self, keys: Sequence[bytes], max_seq: int) -> dict[bytes, RowHit]:
        memory = self._memory(max_seq)
        hits: dict[bytes, RowHit] = {}
        missing: list[bytes] = []
        for key in dict.fromkeys(keys):
            if self._turns.spent():
                await self._turns.give()
            for table, limit in memory:
                hit = table.get(key, limit)
                if hit is not None:
                    hits[key] = hit
                    break
            else:
                missing.append(key)
        if missing and self._levels:
            hits.update(await find_many(self._levels, missing, max_seq, self._turns))
        return hits

    def _memory(self, max_seq: int) -> list[tuple[Memtable, int]]:
        """The memtables that have rows now, each with the highest sequence number to see of it."""
        return [(table, min(max_seq, table.last_seq)) for table in self.memtables if len(table)]

    # scans

    def live_rows(self, span: KeyRange, *, now_ms: int, max_seq: int | None = None, reverse: bool = False) -> LiveRows:
        """The live rows of ``span`` as they are at this call, in batches. Does nothing until iterated.

        The caller holds a pin meanwhile, and closes the stream.
        """
        seen = self.max_seq if max_seq is None else max_seq
        streams: list[Stream] = []
        if not span.empty:
            for memtable, limit in self._memory(seen):
                rows = MemtableStream(memtable, span, limit, reverse, self._turns)
                streams.append(Stream(rows, local=True))
            for run in self._levels:
                tables = run.within(span.start, span.end)
                if tables:
                    streams.append(Stream(RunStream(tables, span, reverse)))
        return LiveRows(streams, max_seq=seen, now_ms=now_ms, turns=self._turns, reverse=reverse)


async def _probe_or_get(source: TableSource, key: bytes, hashed: int, max_seq: int) -> RowHit | None:
    found = source.probe(key, hashed, max_seq)
    return await source.get(key, hashed, max_seq) if found is NEEDS_IO else found
