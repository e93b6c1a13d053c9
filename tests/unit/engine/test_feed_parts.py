"""Stretches of a held change feed, read by others than the one who holds it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import slate_async as slate
from slate_async.changes.hold import FeedPlace
from slate_async.objectstore.memory import MemoryStore
from tests.engine import KINDS, Kind, memory_store, open_db, runtime
from tests.unit.engine.test_changes import taken
from tests.unit.engine.test_feed_ingests import collected, ingest, rows_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Rows = list[tuple[int, str, bytes]]


def rows_in(batch: slate.RecordBatch) -> Rows:
    return list(zip(*(batch.column(name).to_pylist() for name in ("seq", "op", "key")), strict=True))


async def part(store: MemoryStore, after: FeedPlace, until: int) -> Rows:
    async with slate.open_admin(store, name="memory://test", runtime=runtime()) as admin:
        return [row async for batch in admin.read_changes("copy", after, until) for row in rows_in(batch)]


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
