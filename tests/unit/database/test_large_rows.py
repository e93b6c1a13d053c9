"""Rows too large for what a read may hold: merges take them without their values, and show what they would show."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ByteRange, GetResult, Span
from slate_async.runtime.memory_budget import Lent, MemoryBudget
from slate_async.settings import Settings
from slate_async.storage.sst import late, shares
from slate_async.storage.sst.late import LateRow
from tests.engine import ManualClock, memory_store, open_db, open_reader

MIB = 1 << 20


@pytest.fixture(params=["lent", "read again"])
def completed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Values of a few bytes count as large. Sizes of those that were completed, lent meanwhile or not."""
    sizes: list[int] = []
    complete = LateRow.complete

    async def counted(self: LateRow, row: Any) -> Any:
        sizes.append(self.nbytes)
        return await complete(self, row)

    def refused(self: MemoryBudget, lent: Lent) -> None:
        lent.take_back()

    monkeypatch.setattr(LateRow, "complete", counted)
    monkeypatch.setattr(late, "LATE_BYTES", 40)
    monkeypatch.setattr(shares, "LEAST_BYTES", 1)
    monkeypatch.setattr(shares, "MOST_BYTES", 60)
    if request.param == "read again":
        monkeypatch.setattr(MemoryBudget, "lend", refused)
    return sizes


@pytest.mark.parametrize("seed", range(12))
async def test_merges_show_what_was_written(seed: int, completed: list[int]) -> None:
    """Rows in several SSTs and memory, some deleted, overwritten or expired, read both ways, in parts, as of earlier,
    before and after compactions."""
    rng, clock, expires = random.Random(seed), ManualClock(), seed % 2 == 0
    settings = {"block_bytes": 64, "block_cache_bytes": rng.choice([0, 1 << 20]), "auto_compaction": False}
    async with open_db(memory_store(), clock=clock, **settings) as db:
        model: dict[bytes, tuple[bytes, float]] = {}
        snapshots: list[tuple[slate.Snapshot, dict[bytes, bytes]]] = []

        def now() -> dict[bytes, bytes]:
            return {key: value for key, (value, until) in sorted(model.items()) if until > clock.wall_ms}

        for step in range(60):
            key = b"%02d" % rng.randrange(25)
            if rng.random() < 0.2:
                await db.delete(key, await_durable=False)
                model.pop(key, None)
            else:
                value = rng.randbytes(rng.choice([0, 5, 39, 40, 41, 200, 900]))
                ttl = rng.choice([None, None, 10.0 if expires else None])
                await db.put(key, value, ttl=ttl, await_durable=False)
                model[key] = value, float("inf") if ttl is None else clock.wall_ms + 10_000
            clock.wall_ms += rng.choice([0, 500])
            if rng.random() < 0.15:
                await db.flush(l0=True)
            if not expires and rng.random() < 0.1:
                snapshots.append((db.snapshot(), now()))
            if step in (30, 50) and rng.random() < 0.5:
                await db.compact(full=rng.random() < 0.5)

        async def check(read: slate.Readable, wanted: Callable[[], dict[bytes, bytes]]) -> None:
            rows = [*wanted().items()]
            assert [pair async for pair in read.scan()] == rows
            assert [pair async for pair in read.scan(reverse=True)] == rows[::-1]
            batches = [batch async for batch in read.scan().batches()]
            assert [key for batch in batches for key in batch["key"].to_pylist()] == [key for key, _ in rows]
            assert [value for batch in batches for value in batch["value"].to_pylist()] == [value for _, value in rows]
            start, end = sorted(b"%02d" % rng.randrange(25) for _ in range(2))
            for reverse in (False, True):
                part = [pair for pair in rows if start <= pair[0] < end]
                found = [(row.key, row.value) async for row in read.scan(start, end, reverse=reverse).rows()]
                assert found == (part[::-1] if reverse else part)
            counted = await read.row_statistics()
            assert counted.value_bytes == sum(len(value) for _, value in rows)

        await check(db, now)
        await db.flush(l0=True)
        await check(db, now)
        await db.compact(full=True)
        await check(db, now)
        for snapshot, seen in snapshots:
            async with snapshot:
                await check(snapshot, lambda seen=seen: seen)  # type: ignore[misc]
    assert completed
    assert min(completed) >= 40


async def sources(folder: Path, count: int, keys: int, nbytes: int = MIB) -> dict[bytes, int]:
    """SSTs whose ranges overlap, each with rows of ``nbytes`` that take next to nothing when they are stored."""
    settings = Settings(auto_compaction=False, auto_gc=False)
    rows: dict[bytes, int] = {}
    async with slate.open(folder, settings=settings) as db:
        for source in range(count):
            for number in range(keys):
                key = b"%02d-%02d" % (number, source if number else 0)  # all have the first one
                await db.put(key, bytes([source]) * nbytes, await_durable=False)
                rows[key] = source
            await db.flush(l0=True)
    return rows


LITTLE = Settings(
    max_value_bytes=1000, flush_bytes=1 << 18, decode_memory_bytes=2 * MIB, block_cache_bytes=0, auto_gc=False
)
"""Memory for one row of a MiB at a time: less than for one of each source."""


@pytest.mark.parametrize("reverse", [False, True])
async def test_scans_with_memory_for_one_row_go_on_whoever_stands_still(tmp_path: Path, reverse: bool) -> None:
    """Many at once, and one inside another: what is not wanted now waits without memory."""
    rows = await sources(tmp_path, 5, 3)
    wanted = sorted(rows.items(), reverse=reverse)
    async with slate.open_reader(tmp_path, settings=LITTLE) as db, asyncio.timeout(60):

        async def scan() -> list[tuple[bytes, int]]:
            return [(key, value[0]) async for key, value in db.scan(reverse=reverse)]

        assert await asyncio.gather(*(scan() for _ in range(6))) == [wanted] * 6
        outer: list[bytes] = []
        async for key, _ in db.scan(reverse=reverse):
            outer.append(key)
            if len(outer) in (1, 7):
                assert await scan() == wanted
                assert len([key async for key, _ in db.scan(reverse=not reverse)]) == len(rows)
        assert outer == [key for key, _ in wanted]


async def test_a_compaction_with_memory_for_one_row_comes_to_its_end(tmp_path: Path) -> None:
    rows = await sources(tmp_path, 5, 3)
    async with slate.open_compactor(tmp_path, settings=LITTLE, auto_compaction=False) as compactor:
        async with asyncio.timeout(60):
            await compactor.compact(full=True)
    async with slate.open_reader(tmp_path, settings=LITTLE) as db:
        assert {key: value[0] async for key, value in db.scan()} == rows
        assert (await db.row_statistics()).value_bytes == len(rows) * MIB


class Transfers(MemoryStore):
    """Counts the bytes of large reads that are on their way at once."""

    most = under_way = 0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        nbytes = byte_range.length if isinstance(byte_range, Span) and byte_range.length > 4 * MIB else 0
        self.under_way += nbytes
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.001)
        try:
            return await super().get(key, byte_range)
        finally:
            self.under_way -= nbytes


async def test_stored_bytes_of_large_values_that_are_on_their_way_are_bounded() -> None:
    """Those that do not compress: eight scans of three sources want 24 of them at once, 120 MiB."""
    store, rng = Transfers(ManualClock()), random.Random(1)
    settings: dict[str, Any] = {"auto_compaction": False, "auto_gc": False, "block_cache_bytes": 0}
    async with open_db(store, **settings) as db:
        for source in range(3):
            for key in (b"a", b"z"):
                await db.put(key + b"%d" % source, rng.randbytes(5 * MIB))
            await db.flush(l0=True)
    async with open_reader(store, **settings, decode_memory_bytes=16 * MIB) as db, asyncio.timeout(60):
        assert await asyncio.gather(*(_all(db) for _ in range(8))) == [6] * 8
    assert 10 * MIB < store.most <= 16 * MIB


async def test_a_scan_that_is_cancelled_or_dropped_gives_back_what_it_has(tmp_path: Path) -> None:
    await sources(tmp_path, 4, 3)
    async with slate.Environment() as env:
        async with env.open_reader(tmp_path, settings=LITTLE) as db, asyncio.timeout(60):
            cache = env._cache
            assert cache is not None
            budget = cache.decoding
            for _ in range(5):
                tasks = [asyncio.create_task(_all(db)) for _ in range(4)]
                await asyncio.sleep(0.005)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                scan = aiter(db.scan())
                await anext(scan)
                del scan
            assert await _all(db) == 9
            await asyncio.sleep(0.01)
            assert budget.held_bytes == 0


async def _all(db: slate.Readable) -> int:
    return len([key async for key, _ in db.scan()])
