"""Ingested rows in the change feed: they share a number, were never in the log, and come once, in their place."""

from __future__ import annotations

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.changes import ingested
from slate_async.engine.changes.change import Change
from slate_async.objectstore.memory import MemoryStore
from tests.engine import KINDS, Kind, memory_store, on, open_db, open_reader, runtime
from tests.support.feeds import all_of, taken
from tests.support.manifests import head

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Told = list[tuple[int, bytes, bytes | None]]


async def ingest(store: MemoryStore, db: slate.Db, job_id: str, rows: dict[bytes, bytes]) -> int:
    """Bring ``rows`` in beside the writer; the number they have."""
    table = pa.record_batch({"key": pa.array(rows, pa.binary()), "value": pa.array(rows.values(), pa.binary())})
    settings = slate.Settings(manifest_poll_interval_ms=10, sst_bytes=300, block_bytes=64)
    opening = on(runtime()).open_ingest(store, job_id=job_id, name="memory://test", settings=settings)
    async with opening as job:
        await job.write([table])
        await job.commit(wait=False)
        await db.confirm()  # it looks at the manifest, and applies
        return (await job.wait()).seq


async def collected(store: MemoryStore, db: slate.Db) -> int:
    """How many objects a collector has deleted."""
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    opening = on(runtime()).open_gc(store, name="memory://test", periodic=False, settings=settings)
    async with opening as collector:
        count = 0
        for _ in range(3):
            await db.confirm()
            count += len((await collector.collect()).objects)
        return count


def told(changes: list[Change]) -> Told:
    return [(change.seq, change.key, change.value) for change in changes]


def rows_of(name: bytes, count: int) -> dict[bytes, bytes]:
    return {b"%s%03d" % (name, number): name for number in range(count)}


@KIND
async def test_ingested_rows_come_once_in_their_place(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db, db.changes() as feed:
        await db.put(b"a", b"before")
        assert told(await taken(feed, 1)) == [(1, b"a", b"before")]
        assert await ingest(store, db, "one", rows_of(b"i", 20)) == 2
        found = await taken(feed, 19)
        assert feed.seq == 1, "the ingest is not whole yet"
        found += await taken(feed, 1)
        assert told(found) == [(2, key, b"i") for key in rows_of(b"i", 20)]
        assert feed.seq == 2
        await db.put(b"a", b"after")
        assert told(await taken(feed, 1)) == [(3, b"a", b"after")]


@KIND
async def test_a_feed_that_comes_late_finds_ingests_as_they_were(kind: Kind) -> None:
    """Overwritten, compacted and collected meanwhile; the subscription keeps them."""
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        async with db.changes(subscription="copy"):
            pass
        await ingest(store, db, "one", rows_of(b"i", 20))
        for key in rows_of(b"i", 20):
            await db.put(key, b"newer", await_durable=False)
        await ingest(store, db, "two", rows_of(b"j", 5))
        await db.delete(b"j000")
        await db.compact(full=True)
        await collected(store, db)
        expected = [
            (1, b"a", b"1"),
            *((2, key, b"i") for key in rows_of(b"i", 20)),
            *((3 + number, key, b"newer") for number, key in enumerate(rows_of(b"i", 20))),
            *((23, key, b"j") for key in rows_of(b"j", 5)),
            (24, b"j000", None),
        ]
        for _ in range(2):
            assert told(await all_of(db.changes(subscription="copy", follow=False))) == expected
        async with db.changes(subscription="copy", from_seq=2) as feed:
            assert told(await taken(feed, 1)) == [(3, b"i000", b"newer")]
            await feed.acknowledge(3, now=True)
            assert await collected(store, db)
        [subscription] = [checkpoint for checkpoint in (await head(store)).checkpoints if checkpoint.feed is not None]
        assert subscription.feed is not None
        assert {sst.global_seq for sst in subscription.feed.ingests} == {23}


@KIND
async def test_ingests_are_read_from_ssts_compacted_or_not(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, retention_ms=3_600_000) as db:
        await db.put(b"a", b"1")
        await ingest(store, db, "one", rows_of(b"i", 20))
        await db.put(b"i003", b"newer")
        expected = [(1, b"a", b"1"), *((2, key, b"i") for key in rows_of(b"i", 20)), (3, b"i003", b"newer")]
        assert told(await all_of(db.changes(follow=False, sort_memory_bytes=100))) == expected
        await db.compact(full=True)
        assert told(await all_of(db.changes(follow=False, sort_memory_bytes=100))) == expected
        assert told(await all_of(db.changes(follow=False, from_seq=1))) == expected[1:]


@KIND
async def test_parts_of_an_ingest_end_between_versions_of_a_key(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is one read of a block, and versions of one key fill several."""
    store = memory_store()
    async with open_db(store, kind, retention_ms=3_600_000, block_bytes=64) as db:
        for number in range(30):
            await db.put(b"i005", b"older %d" % number, await_durable=False)
        await ingest(store, db, "one", rows_of(b"i", 20))
        for number in range(100):
            await db.put(b"i%03d" % (number % 20), b"newer %d" % number, await_durable=False)
        for number in range(30):
            await db.put(b"i005", b"newest %d" % number, await_durable=False)
        await db.compact(full=True)
        expected = told(await all_of(db.changes(follow=False)))
        assert [row for row in expected if row[0] == 31] == [(31, key, b"i") for key in rows_of(b"i", 20)]
        monkeypatch.setattr(ingested, "PART_BYTES", 1)
        monkeypatch.setattr(ingested, "READ_BYTES", 1)
        assert told(await all_of(db.changes(follow=False))) == expected


@KIND
async def test_a_reader_that_retains_nothing_sees_ingests(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        async with open_reader(store, pin=False) as reader, reader.changes() as feed:
            await taken(feed, 1)
            await ingest(store, db, "one", rows_of(b"i", 3))
            await reader.refresh()
            assert told(await taken(feed, 3)) == [(2, key, b"i") for key in rows_of(b"i", 3)]
            await db.put(b"a", b"2")
            await reader.refresh()
            assert told(await taken(feed, 1)) == [(3, b"a", b"2")]
