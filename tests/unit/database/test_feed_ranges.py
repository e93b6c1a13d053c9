"""Ranges of a change feed, read by other processes than the one whose subscription it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import KINDS, Kind, ManualClock, StoreInHand, memory_store, on, open_db, runtime
from tests.support.feeds import taken
from tests.unit.database.test_feed_ingests import collected, ingest, rows_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Rows = list[tuple[int, str, bytes]]


def rows_in(batch: slate.RecordBatch) -> Rows:
    return list(zip(*(batch.column(name).to_pylist() for name in ("seq", "op", "key")), strict=True))


async def read_range(store: ObjectStore, after: FeedPosition, until: int, **asked: Any) -> Rows:
    async with on(runtime()).open_admin(store, name="memory://test") as admin:
        return [row async for batch in admin.read_changes("copy", after, until, **asked) for row in rows_in(batch)]


async def feed_rows(feed: slate.ChangeFeed, until: int) -> AsyncIterator[tuple[int, str, bytes]]:
    while feed.seq < until:
        for row in rows_in(await anext(feed.batches(max_rows=7))):
            yield row


async def write(db: slate.Db, first: int) -> None:
    """Fifty rows, the last of them deletes, over and over the same keys; half of them leave the log."""
    for number in range(first, first + 10):
        batch = slate.WriteBatch()
        for key in range(4):
            batch.put(b"%d" % key, b"%d" % number)
        batch.delete(b"0")
        await db.write(batch)
        if number == first + 5:
            await db.flush(l0=True)


@KIND
async def test_parts_are_what_the_feed_gives_whatever_happened_meanwhile(kind: Kind) -> None:
    """History in SSTs, an ingest and the log; compacted and collected between planning and reading."""
    store = memory_store()
    async with open_db(store, kind, retention_ms=3_600_000) as db:
        await write(db, 0)
        async with db.changes(subscription="copy", sort_memory_bytes=500) as feed:
            await write(db, 10)
            await ingest(store, db, "one", rows_of(b"i", 20))
            await write(db, 20)
            positions, whole = [feed.position], []
            async for batch in feed.batches(max_rows=7):
                whole.append(rows_in(batch))
                positions.append(feed.position)
                if feed.seq == 151:
                    break
            await db.compact(full=True)
            await collected(store, db)
            ranges = [await read_range(store, after, before.seq) for after, before in pairwise(positions)]
            assert [row for rows in ranges for row in rows] == [row for rows in whole for row in rows]
            assert len(whole) > 12
            assert len({position.log_position for position in positions}) > 3, (
                "they begin where they are, not at the subscription"
            )


@KIND
@pytest.mark.parametrize("retention_ms", [0, 3_600_000])
async def test_key_ranges_are_the_whole_range(kind: Kind, retention_ms: int) -> None:
    """A snapshot or exact history, an ingest before the subscription was made and one after, and the log."""
    store = memory_store()
    async with open_db(store, kind, retention_ms=retention_ms) as db:
        await write(db, 0)
        await ingest(store, db, "early", rows_of(b"2", 20))
        await db.compact(full=True)
        await write(db, 10)
        async with db.changes(subscription="copy", from_seq=0, sort_memory_bytes=500) as feed:
            position, seq = feed.position, db.status().last_seq
            whole = [row async for row in feed_rows(feed, seq)]
            await ingest(store, db, "late", rows_of(b"2", 20))
            await write(db, 20)
            whole += [row async for row in feed_rows(feed, seq + 51)]
            assert sum(key.startswith(b"20") for _, _, key in whole) >= 20
            bounds = [None, b"1", b"2005", b"3", None]
            ranges = [await read_range(store, position, feed.seq, start=a, end=b) for a, b in pairwise(bounds)]
            assert all(ranges)
            for (start, end), rows in zip(pairwise(bounds), ranges, strict=True):
                assert all((start or b"") <= key and (end is None or key < end) for _, _, key in rows)
            assert sorted(row for rows in ranges for row in rows) == sorted(whole)


@pytest.mark.parametrize("retention_ms", [0, 3_600_000])
async def test_keeping_what_was_found_reads_ssts_once_for_many_short_ranges(retention_ms: int) -> None:
    store, clock = StoreInHand(memory_store()), ManualClock()
    async with open_db(store, retention_ms=retention_ms, clock=clock) as db:
        for number in range(100):
            clock.wall_ms += 1
            await db.put(b"%d" % (number * 37 % 100), b"value", await_durable=False)
        await db.compact(full=True)
        async with db.changes(subscription="copy", from_seq=0) as feed:
            positions = [feed.position]
            while feed.seq < 100:
                await anext(feed.batches(max_rows=5))
                positions.append(feed.position)
            kept, found, opened = ReadAhead(), [], []
            for after, until in pairwise(positions):
                before = len(store.gets)
                found += await read_range(store, after, until.seq, ahead=kept)
                opened.append(any(key.startswith("sst/") for key in store.gets[before:]))
            assert [seq for seq, _, _ in found] == list(range(1, 101))
            assert opened == [True, *[False] * 19]
            assert await read_range(store, positions[0], 100, ahead=kept) == found, "as a task that is tried again"


async def test_what_is_read_ahead_is_of_all_keys() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await write(db, 0)
        async with db.changes(subscription="copy", from_seq=0) as feed:
            with pytest.raises(slate.InvalidError, match="give either ahead or start and end"):
                await read_range(store, feed.position, 50, start=b"1", ahead=ReadAhead())


async def test_what_was_acknowledged_is_refused() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await write(db, 0)
        async with db.changes(subscription="copy", from_seq=0) as feed:
            begin = feed.position
            await taken(feed, 30)
            assert len(await read_range(store, begin, 10)) == 10
            await feed.acknowledge(20, now=True)
            with pytest.raises(slate.InvalidError, match="acknowledged up to sequence number 20"):
                await read_range(store, begin, 10)
            assert [seq for seq, _, _ in await read_range(store, feed.position, 50)] == list(range(31, 51))


async def test_without_the_subscription_there_is_no_part() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"k", b"v")
        async with db.changes(subscription="other") as feed:
            with pytest.raises(slate.InvalidError, match="the subscription 'copy' of this feed no longer exists"):
                await read_range(store, feed.position, 1)


async def test_a_feed_that_retains_nothing_has_no_position() -> None:
    async with open_db(memory_store()) as db:
        feed = db.changes()
        with pytest.raises(slate.InvalidError, match="this feed has no position"):
            _ = feed.position
        await feed.aclose()
