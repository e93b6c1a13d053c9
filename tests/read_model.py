"""A plain model of versioned rows, and sources that serve them the awkward way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.engine.read import Run, Table
from slate_async.objectstore.memory import MemoryStore
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.filter import key_hash
from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.passing import Passing
from slate_async.storage.sst.reader import SstReader
from slate_async.types import DELETE, MERGE, NEEDS_IO, PUT, NeedsIO, RowHit, RowPage
from tests.support.rows import R, columns_of, rows_of

T = TypeVar("T")


class Version(NamedTuple):
    """One row."""

    key: bytes
    value: bytes
    seq: int
    kind: int = PUT
    expire_ms: int = NO_EXPIRY
    create_ms: int = 0


class StillClock:
    """A clock whose monotonic time moves one millisecond a look, so that every budget is always spent."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 0.001

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def exhausted_budget() -> YieldBudget:
    """A budget that is always exhausted."""
    return YieldBudget(StillClock())


class StoppedClock(StillClock):
    """A clock whose monotonic time stands still."""

    def monotonic(self) -> float:
        return 0.0


def ample_budget() -> YieldBudget:
    """A budget that is never exhausted while nobody waits."""
    return YieldBudget(StoppedClock())


def newest_first(versions: Iterable[Version]) -> list[Version]:
    """The order inside a sorted table."""
    return sorted(versions, key=lambda row: (row.key, -row.seq))


def visible(versions: Iterable[Version], max_seq: int, now_ms: int) -> dict[bytes, Version]:
    """What a reader sees: the model every read is compared with, in key order."""
    newest: dict[bytes, Version] = {}
    for row in sorted(versions, key=lambda row: row.seq):
        if row.seq <= max_seq:
            newest[row.key] = row
    return {key: row for key, row in sorted(newest.items()) if row.kind == PUT and row.expire_ms > now_ms}


def columns(rows: Sequence[Version], *, with_expiry: bool | None = None) -> Columns:
    """``rows`` as they are."""
    return columns_of([R(*row) for row in rows], with_expire=with_expiry)


def versions(batch: Columns) -> list[Version]:
    """The rows of ``batch``."""
    return [Version(*row) for row in rows_of(batch)]


class FakeTable:
    """A sorted table in batches of the given sizes, used in turn; size 0 is an empty batch.

    Not loaded at first; ``block`` of a key is cached after its first `get`. Counts what it is asked. With ``sync`` it
    answers at once where reads are allowed.
    """

    def __init__(
        self, rows: Iterable[Version], sizes: Sequence[int] = (3,), *, fails: BaseException | None = None
    ) -> None:
        self.rows = newest_first(rows)
        self.sizes = sizes if any(sizes) else (1,)
        self.fails = fails
        self.loaded = False
        self.loads = 0
        self.gets: list[bytes] = []
        self.scans_open = 0
        self.sync = False
        self._cached: dict[bytes, None] = {}

    async def load(self) -> None:
        self.loads += 1
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        self.loaded = True

    def _find(self, key: bytes, max_seq: int) -> RowHit | None:
        for row in self.rows:
            if row.key == key and row.seq <= max_seq:
                return RowHit(*row[1:])
        return None

    def probe(
        self, key: bytes, hashed: int, max_seq: int, reading: bool = False, passing: Passing | None = None
    ) -> RowHit | NeedsIO | None:
        assert hashed == key_hash(key)
        if not self.loaded:
            return NEEDS_IO
        if key[:1] < b"b" and not any(row.key == key for row in self.rows):
            return None  # the filter says no; for other keys it is wrong
        return self._find(key, max_seq) if key in self._cached or (reading and self.sync) else NEEDS_IO

    def chain(self, key: bytes, hashed: int, max_seq: int, most: int, reading: int) -> list[RowHit] | NeedsIO:
        newest = self.probe(key, hashed, max_seq, bool(reading))
        if newest is None or newest is NEEDS_IO:
            return NEEDS_IO if newest is NEEDS_IO else []
        found: list[RowHit] = []
        for row in self.rows:
            if row.key == key and row.seq <= max_seq and (not found or found[-1].kind == MERGE):
                found.append(RowHit(*row[1:]))
        return NEEDS_IO if len(found) > most else found

    def around(self, key: bytes, most_rows: int) -> None:
        """It has no blocks."""

    async def get(self, key: bytes, hashed: int, max_seq: int) -> RowHit | None:
        assert hashed == key_hash(key)
        self.gets.append(key)
        if not self.loaded:
            await self.load()
        await asyncio.sleep(0)
        self._cached[key] = None
        return self._find(key, max_seq)

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: bool = False,
    ) -> RowPage | None:
        if not self.loaded:
            return None
        inside = [row for row in self.rows if (start is None or row.key >= start) and (end is None or row.key < end)]
        seen: dict[bytes, RowHit | None] = {}
        for row in inside:
            if row.seq <= max_seq and row.key not in seen:
                seen[row.key] = RowHit(*row[1:]) if row.kind == PUT and row.expire_ms > now_ms else None
        few = min(count, max(self.sizes))
        keys = sorted(seen, reverse=reverse)[:few]
        hits = [seen[key] for key in keys]
        rows = hits if whole else [hit and hit.value for hit in hits]
        return list(zip(keys, rows, strict=True)), True, few >= len(seen)

    async def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> AsyncIterator[Columns]:
        self.scans_open += 1
        try:
            if not self.loaded:
                await self.load()
            rows = [r for r in self.rows if (start is None or r.key >= start) and (end is None or r.key < end)]
            turn = 0
            while rows:
                size = self.sizes[turn % len(self.sizes)]
                turn += 1
                low = max(0, len(rows) - size) if reverse else 0
                high = len(rows) if reverse else size
                batch, rows = rows[low:high], rows[:low] if reverse else rows[high:]
                await asyncio.sleep(0)
                yield columns(batch)
        finally:
            self.scans_open -= 1


def table(rows: Iterable[Version], sizes: Sequence[int] = (3,)) -> Table:
    """A `Table` over a `FakeTable` of ``rows``, which are not empty."""
    source = FakeTable(rows, sizes)
    return Table(source.rows[0].key, source.rows[-1].key, source)


def run(
    rows: Iterable[Version], tables: int = 1, sizes: Sequence[int] = (3,), make: Callable[..., Table] = table
) -> Run:
    """``rows`` as a sorted run of at most ``tables`` tables, never cut inside a key."""
    ordered = newest_first(rows)
    keys = sorted({row.key for row in ordered})
    share = -(-len(keys) // tables)
    groups = [frozenset(keys[i : i + share]) for i in range(0, len(keys), share)]
    return Run(tuple(make([row for row in ordered if row.key in group], sizes) for group in groups))


class StoredTables:
    """Makes tables that are real SSTs in a store; `upload` them before the first read."""

    def __init__(self, cache_bytes: int = 12_000) -> None:
        self.clock = StillClock()
        self.store = MemoryStore(self.clock)
        self.cache = BlockCache(cache_bytes)
        self._waiting: list[tuple[str, EncodedSst]] = []
        self._made = 0

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return function()

    def table(self, rows: Iterable[Version], sizes: Sequence[int] = (3,)) -> Table:
        """``rows`` as an SST; the larger ``sizes``, the larger its blocks and filter."""
        ordered = newest_first(rows)
        self._made += 1
        identity = {"database_id": UUID(int=7), "object_id": self._made.to_bytes(16, "big")}
        builder = SstBuilder(
            **identity,  # type: ignore[arg-type]
            writer_epoch=1,
            manifest_version=1,
            block_bytes=1 + 60 * sum(sizes),
            compression="zstd" if len(sizes) > 1 else "none",
            filter_bits_per_key=4 * sizes[0],
        )
        builder.add(columns(ordered))
        encoded = builder.finish()
        key = sst_key(1, identity["object_id"])  # type: ignore[arg-type]
        self._waiting.append((key, encoded))
        reader = SstReader(self.store, key, size=encoded.size, cache=self.cache, offload=self, **identity)  # type: ignore[arg-type]
        return Table(ordered[0].key, ordered[-1].key, reader)

    async def upload(self) -> None:
        """Put the tables made so far into the store."""
        while self._waiting:
            key, encoded = self._waiting.pop()
            await self.store.put(key, encoded.buffers)


def tombstone(key: bytes, seq: int) -> Version:
    """A deletion."""
    return Version(key, b"", seq, DELETE)
