"""Stretches of a held change feed, read by others than the one who holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPlace
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import KINDS, Kind, ManualClock, StoreInHand, memory_store, open_db, runtime
from tests.unit.database.test_changes import taken
from tests.unit.database.test_feed_ingests import collected, ingest, rows_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Rows = list[tuple[int, str, bytes]]


def rows_in(batch: slate.RecordBatch) -> Rows:
    return list(zip(*(batch.column(name).to_pylist() for name in ("seq", "op", "key")), strict=True))


async def part(store: ObjectStore, after: FeedPlace, until: int, **asked: Any) -> Rows:
    async with slate.open_admin(store, name="memory://test", runtime=runtime()) as admin:
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
        async with db.changes(hold="copy", room_bytes=500) as feed:
            await write(db, 10)
            await ingest(store, db, "one", rows_of(b"i", 20))
            await write(db, 20)
            places, whole = [feed.place], []
            async for batch in feed.batches(max_rows=7):
                whole.append(rows_in(batch))
                places.append(feed.place)
                if feed.seq == 151:
                    break
            await db.compact(full=True)
            await collected(store, db)
            parts = [await part(store, after, before.seq) for after, before in pairwise(places)]
            assert [row for rows in parts for row in rows] == [row for rows in whole for row in rows]
            assert len(whole) > 12
            assert len({place.log_position for place in places}) > 3, "they begin where they are, not at the hold"


@KIND
@pytest.mark.parametrize("retention_ms", [0, 3_600_000])
async def test_parts_of_ranges_of_keys_are_the_whole_stretch(kind: Kind, retention_ms: int) -> None:
    """A snapshot or exact history, an ingest before the hold was made and one after, and the log."""
    store = memory_store()
    async with open_db(store, kind, retention_ms=retention_ms) as db:
        await write(db, 0)
        await ingest(store, db, "early", rows_of(b"2", 20))
        await db.compact(full=True)
        await write(db, 10)
        async with db.changes(hold="copy", from_seq=0, room_bytes=500) as feed:
            place, seq = feed.place, db.status().last_seq
            whole = [row async for row in feed_rows(feed, seq)]
            await ingest(store, db, "late", rows_of(b"2", 20))
            await write(db, 20)
            whole += [row async for row in feed_rows(feed, seq + 51)]
            assert sum(key.startswith(b"20") for _, _, key in whole) >= 20
            bounds = [None, b"1", b"2005", b"3", None]
            parts = [await part(store, place, feed.seq, start=a, end=b) for a, b in pairwise(bounds)]
            assert all(parts)
            for (start, end), rows in zip(pairwise(bounds), parts, strict=True):
                assert all((start or b"") <= key and (end is None or key < end) for _, _, key in rows)
            assert sorted(row for rows in parts for row in rows) == sorted(whole)


@pytest.mark.parametrize("retention_ms", [0, 3_600_000])
async def test_who_keeps_what_was_found_reads_ssts_once_for_many_short_stretches(retention_ms: int) -> None:
    store, clock = StoreInHand(memory_store()), ManualClock()
    async with open_db(store, retention_ms=retention_ms, clock=clock) as db:
        for number in range(100):
            clock.wall_ms += 1
            await db.put(b"%d" % (number * 37 % 100), b"value", await_durable=False)
        await db.compact(full=True)
        async with db.changes(hold="copy", from_seq=0) as feed:
            places = [feed.place]
            while feed.seq < 100:
                await anext(feed.batches(max_rows=5))
                places.append(feed.place)
            kept, found, opened = ReadAhead(), [], []
            for after, until in pairwise(places):
                before = len(store.gets)
                found += await part(store, after, until.seq, ahead=kept)
                opened.append(any(key.startswith("sst/") for key in store.gets[before:]))
            assert [seq for seq, _, _ in found] == list(range(1, 101))
            assert opened == [True, *[False] * 19]
            assert await part(store, places[0], 100, ahead=kept) == found, "as a task that is tried again"


async def test_what_is_read_ahead_is_of_all_keys() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await write(db, 0)
        async with db.changes(hold="copy", from_seq=0) as feed:
            with pytest.raises(slate.InvalidError, match="give either ahead or start and end"):
                await part(store, feed.place, 50, start=b"1", ahead=ReadAhead())


async def test_what_was_acknowledged_is_refused() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await write(db, 0)
        async with db.changes(hold="copy", from_seq=0) as feed:
            begin = feed.place
            await taken(feed, 30)
            assert len(await part(store, begin, 10)) == 10
            await feed.acknowledge(20, now=True)
            with pytest.raises(slate.InvalidError, match="acknowledged up to sequence number 20"):
                await part(store, begin, 10)
            assert [seq for seq, _, _ in await part(store, feed.place, 50)] == list(range(31, 51))


async def test_without_the_hold_there_is_no_part() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"k", b"v")
        async with db.changes(hold="other") as feed:
            with pytest.raises(slate.InvalidError, match="the hold 'copy' of this feed is gone"):
                await part(store, feed.place, 1)


async def test_a_feed_that_holds_nothing_has_no_place() -> None:
    async with open_db(memory_store()) as db:
        feed = db.changes()
        with pytest.raises(slate.InvalidError, match="once it has begun"):
            _ = feed.place
        await feed.aclose()
