"""`slate_async.storage.sst.scan`: which blocks are read together, how far ahead, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from slate_async.codec.columns import Columns
from slate_async.errors import UnavailableError
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.scan import (
    JOINED_BYTES,
    JOINED_ROWS,
    PREFETCH_LEAST_BYTES,
    PREFETCH_READS_AHEAD,
    READS_AHEAD,
    joined,
    plan_reads,
)
from tests.support.rows import R, columns_of, rows_of
from tests.support.sst_readers import CountingStore, reader_of
from tests.unit.storage.sst.test_reader import big_rows, big_sst


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_prefetching_scan_has_several_reads_under_way_before_the_first_came(reverse: bool) -> None:
    store, rows = CountingStore(), big_rows(20_000)
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    before, store.gate = len(store.reads), asyncio.Event()
    scan = reader.scan(None, None, reverse=reverse, read_ahead_bytes=8000)
    scan.prefetch()
    first = asyncio.ensure_future(anext(scan))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(store.reads) - before == PREFETCH_READS_AHEAD
    store.gate.set()
    batches = [await first, *[batch async for batch in scan]]
    assert [row for batch in batches[:: -1 if reverse else 1] for row in rows_of(batch)] == rows


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_prefetching_scan_of_more_than_the_cache_holds_goes_past_it(reverse: bool) -> None:
    rows = big_rows(20_000)
    for cache_bytes, kept in ((200_000, False), (1 << 30, True)):
        cache = BlockCache(cache_bytes)
        scan = reader_of(CountingStore(), big_sst(rows), cache=cache).scan(b"00003", b"39990", reverse=reverse)
        scan.prefetch()
        batches = [rows_of(batch) async for batch in scan]
        assert [row for batch in batches[:: -1 if reverse else 1] for row in batch] == rows[2:19_995]
        assert (cache.stats().blocks > 0) == kept
        assert (len(batches) < 10) != kept


async def test_many_prefetching_scans_share_what_is_under_way() -> None:
    reader = reader_of(CountingStore(), big_sst(big_rows(20_000)))
    sizes = []
    for among in (1, 4, 1000):
        scan = reader.scan(None, None, read_ahead_bytes=4 << 20)
        scan.prefetch(among)
        sizes.append(scan.read_ahead_bytes)
    assert sizes == [4 << 20, 1 << 20, PREFETCH_LEAST_BYTES]


async def test_a_scan_that_was_started_reads_before_it_is_asked() -> None:
    store, rows = CountingStore(), big_rows(20_000)
    reader = reader_of(store, big_sst(rows))
    scan = reader.scan(None, None, read_ahead_bytes=8000)
    scan.start()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(store.reads) == 1 + READS_AHEAD
    assert [row for batch in [batch async for batch in scan] for row in rows_of(batch)] == rows


async def test_a_scan_that_was_started_ends_what_it_started() -> None:
    store = CountingStore()
    reader = reader_of(store, big_sst(big_rows()))
    store.gate = asyncio.Event()
    scan = reader.scan(None, None)
    scan.start()
    await asyncio.sleep(0)
    await scan.aclose()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_an_abandoned_scan_ends_its_read_ahead() -> None:
    store, rows = CountingStore(), big_rows(20_000)
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    store.gate = asyncio.Event()
    store.gate.set()
    scan = reader.scan(None, None, read_ahead_bytes=8000)
    seen = 0
    async for batch in scan:
        seen += len(batch)
        if len(store.reads) == 3:
            store.gate.clear()
            await asyncio.sleep(0)
            break
    await scan.aclose()
    assert 0 < seen < len(rows)
    assert (len(store.reads), store.cancelled) == (3 + READS_AHEAD, READS_AHEAD)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_dropped_scan_ends_its_read_ahead() -> None:
    store = CountingStore()
    reader = reader_of(store, big_sst(big_rows(20_000)))
    await reader.load()
    store.gate = asyncio.Event()
    store.gate.set()
    scan = reader.scan(None, None, read_ahead_bytes=8000)
    while len(store.reads) < 3:
        await anext(scan)
    store.gate.clear()
    await asyncio.sleep(0)
    del scan
    for _ in range(3):
        await asyncio.sleep(0)
    assert store.cancelled == READS_AHEAD
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_read_ahead_that_fails_fails_the_scan() -> None:
    store, rows = CountingStore(), big_rows(20_000)
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    scan = reader.scan(None, None, read_ahead_bytes=8000)
    while len(store.reads) < 5:
        await anext(scan)
    store.failure = UnavailableError("down")
    with pytest.raises(UnavailableError):
        await consumed(scan)
    assert store.failure is None


def test_blocks_that_hide_rows_are_joined() -> None:
    hiding = [columns_of([R(b"%03d" % i, kind=1)]) for i in range(10)]
    shown = [replace(columns_of([R(b"%03d" % i)]), seen_from=1) for i in range(10, 13)]
    more = [columns_of([R(b"%03d" % i, b"x" * (JOINED_BYTES // 2))]) for i in range(13, 16)]
    for reverse in (False, True):
        parts = [*hiding, *shown, *more][:: -1 if reverse else 1]
        found = list(joined(parts, reverse=reverse))
        keys = [[row.key for row in rows_of(part)] for part in (found[::-1] if reverse else found)]
        assert [key for some in keys for key in some] == [b"%03d" % i for i in range(16)]
        assert [len(some) for some in keys] == [10, 1, 1, 1, *([1, 1, 1])]
        assert all(part in found for part in shown)
    many = [columns_of([R(b"%05d" % i)]) for i in range(JOINED_ROWS + 5)]
    assert [len(part) for part in joined(many, reverse=False)] == [JOINED_ROWS, 5]


async def consumed(scan: AsyncIterator[Columns]) -> None:
    async for _ in scan:
        pass


def test_reads_grow_and_hold_a_block_at_least() -> None:
    assert list(plan_reads([10] * 12, range(12), first_bytes=10, most_bytes=lambda: 40)) == [
        [0],
        [1, 2],
        [3, 4, 5, 6],
        [7, 8, 9, 10],
        [11],
    ]
    assert list(plan_reads([500, 1, 1], [2, 1, 0], first_bytes=10, most_bytes=lambda: 5)) == [[2, 1], [0]]
    assert list(plan_reads([], [], first_bytes=10, most_bytes=lambda: 5)) == []


# Damage
