"""The change feed of one database: what it delivers, from where, and in what form."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.changes.change import CHANGE_SCHEMA, Change
from tests.engine import CONTIGUOUS, KINDS, START_MS, Kind, ManualClock, memory_store, open_db, open_reader
from tests.support.feeds import all_of, taken
from tests.support.manifests import collect

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
NOW = START_MS / 1000


@KIND
async def test_every_put_and_delete_comes_as_it_happened(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        await db.put(b"a", b"1")
        await db.put(b"a", b"2", ttl=60)
        await db.delete(b"a")
        batch = slate.WriteBatch()
        batch.put(b"b", b"3")
        batch.delete(b"c")
        await db.write(batch)
        assert await all_of(db.changes(follow=False)) == [
            Change("put", b"a", b"1", 1, NOW, None),
            Change("put", b"a", b"2", 2, NOW, NOW + 60),
            Change("delete", b"a", None, 3, NOW, None),
            Change("put", b"b", b"3", 4, NOW, None),
            Change("delete", b"c", None, 5, NOW, None),
        ]
        assert [change.seq for change in await all_of(db.changes(from_seq=3, follow=False))] == [4, 5]
        assert [change.seq for change in await all_of(db.changes(from_seq=1, until_seq=3))] == [2, 3]
        assert await all_of(db.changes(from_seq="now", follow=False)) == []


@KIND
async def test_it_goes_on_while_the_writer_writes_and_flushes(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db, db.changes() as feed:
        for number in range(1, 8):
            await db.put(b"key", b"%d" % number)
            if number % 3 == 0:
                await db.flush(l0=True)
            [change] = await taken(feed, 1)
            assert (change.seq, change.value) == (number, b"%d" % number)
            assert feed.seq == number


@KIND
async def test_a_reader_has_the_same_feed(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db, open_reader(store, manifest_poll_interval_ms=10) as reader:
        await db.put(b"a", b"1")
        async with reader.changes() as feed:
            assert [change.seq for change in await taken(feed, 1)] == [1]
            waiting = asyncio.create_task(taken(feed, 2))
            await db.put(b"b", b"2")
            await db.flush(l0=True)
            await db.put(b"c", b"3")
            assert [change.seq for change in await waiting] == [2, 3]


@KIND
async def test_from_the_beginning_it_reads_ssts_and_then_the_log(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        for number in range(30):
            await db.put(b"%d" % (number % 7), b"%d" % number, await_durable=False)
            if number % 8 == 7:
                await db.flush(l0=True)
        await db.flush()
        found = await all_of(db.changes(follow=False, sort_memory_bytes=200))
        assert [(change.seq, change.value) for change in found] == [(n + 1, b"%d" % n) for n in range(30)]
        assert not await all_of(db.changes(from_seq=30, follow=False))


@KIND
async def test_what_was_compacted_is_a_snapshot_or_an_error(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        for key, value in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]:
            await db.put(key, value)
        await db.delete(b"b")
        await db.compact(full=True)
        await db.put(b"a", b"6")
        async with db.changes(follow=False) as feed:
            found = await all_of(feed)
            assert feed.snapshot_seq == 5
        assert [(change.op, change.key, change.seq) for change in found] == [
            ("put", b"a", 3),
            ("put", b"c", 4),
            ("put", b"a", 6),
        ]
        assert [change.seq for change in await all_of(db.changes(from_seq=5, follow=False))] == [6]
        with pytest.raises(slate.InvalidError, match=r"from sequence number 5 on.*from 3 on.*retention_ms"):
            await all_of(db.changes(from_seq=3, follow=False))
        with pytest.raises(slate.InvalidError, match="from sequence number 5 on"):
            await all_of(db.changes(initial="error", follow=False))
        assert [checkpoint.owner for checkpoint in await db.checkpoints.list() if checkpoint.owner == "feed"] == []


@KIND
async def test_with_retention_it_stays_exact(kind: Kind) -> None:
    async with open_db(memory_store(), kind, retention_ms=3_600_000) as db:
        for number in range(1, 6):
            await db.put(b"a", b"%d" % number)
        await db.compact(full=True)
        async with db.changes(follow=False) as feed:
            assert [change.value for change in await all_of(feed)] == [b"1", b"2", b"3", b"4", b"5"]
            assert feed.snapshot_seq == 0


@KIND
async def test_what_an_open_feed_has_not_delivered_stays(kind: Kind) -> None:
    """Compaction drops older versions, and a collector the log; the feed reads on in what it retains."""

    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
        async with db.changes() as feed:
            assert [change.value for change in await taken(feed, 1)] == [b"1"]
            for number in range(2, 10):
                await db.put(b"a", b"%d" % number)
                await db.flush(l0=True)
            await db.compact(full=True)
            await collect(store, START_MS)
            assert [change.value for change in await taken(feed, 8)] == [b"%d" % n for n in range(2, 10)]
        assert [checkpoint.owner for checkpoint in await db.checkpoints.list() if checkpoint.owner == "feed"] == []


async def test_batches_are_columns() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), clock=clock) as db:
        await db.put(b"a", b"1", ttl=60)
        await db.delete(b"b")
        async with db.changes(follow=False) as feed:
            [batch] = [batch async for batch in feed.batches()]
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.equals(CHANGE_SCHEMA)
        now = datetime.fromtimestamp(NOW, UTC)
        assert batch.to_pydict() == {
            "op": ["put", "delete"],
            "key": [b"a", b"b"],
            "value": [b"1", None],
            "seq": [1, 2],
            "create_time": [now, now],
            "expire_time": [datetime.fromtimestamp(NOW + 60, UTC), None],
        }


@KIND
@pytest.mark.parametrize("flushed", [False, True])
async def test_a_batch_write_is_never_torn(kind: Kind, flushed: bool) -> None:
    clock = ManualClock()
    sizes = [3, 1, 7, 2, 5, 30, 1, 1, 4]
    async with open_db(memory_store(), kind, clock=clock) as db:
        ends, seq = {0}, 0
        for size in sizes:
            clock.wall_ms += 1
            batch = slate.WriteBatch()
            for number in range(size):
                batch.put(b"%d" % number, b"value")
            seq = (await db.write(batch, await_durable=False)).seq
            ends.add(seq)
        await db.flush(l0=flushed)
        async with db.changes(follow=False, sort_memory_bytes=300) as feed:
            batches = [batch.column("seq").to_pylist() async for batch in feed.batches(max_rows=6)]
        assert [number for batch in batches for number in batch] == list(range(1, seq + 1))
        assert {batch[-1] for batch in batches} <= ends
        assert all(len(batch) <= 6 or len(batch) == 7 or len(batch) == 30 for batch in batches)


async def test_rows_left_over_come_with_the_next_iteration() -> None:
    async with open_db(memory_store()) as db:
        for number in range(5):
            await db.put(b"a", b"%d" % number)
        async with db.changes(from_seq=1) as feed:
            assert [change.seq for change in await taken(feed, 2)] == [2, 3]
            assert feed.seq == 3
            assert [change.seq for change in await taken(feed, 2)] == [4, 5]
            with pytest.raises(slate.InvalidError, match="not both"):
                feed.batches()


async def test_waiting_may_be_cancelled_and_loses_nothing() -> None:
    async with open_db(memory_store()) as db, db.changes() as feed:
        batches = feed.batches()
        for number in range(1, 5):
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await anext(batches)
            await db.put(b"a", b"x")
            async with asyncio.timeout(10):
                assert (await anext(batches)).column("seq").to_pylist() == [number]


async def test_wrong_arguments_are_refused_at_the_call() -> None:
    async with open_db(memory_store()) as db:
        await db.put(b"a", b"1")
        for wrong in (
            {"from_seq": -1},
            {"from_seq": "then"},
            {"until_seq": True},
            {"initial": "all"},
            {"subscription": ""},
            {"subscription_lifetime": 5},
            {"sort_memory_bytes": 0},
        ):
            with pytest.raises(slate.InvalidError):
                db.changes(**wrong)  # type: ignore[arg-type]
        feed = db.changes()
        with pytest.raises(slate.InvalidError):
            feed.batches(0)
        with pytest.raises(slate.InvalidError, match="not durable yet"):
            await all_of(db.changes(from_seq=2))
        with pytest.raises(slate.InvalidError, match="no subscription with a name"):
            await feed.acknowledge(1)
        await feed.aclose()
        with pytest.raises(slate.ClosedError):
            await anext(aiter(feed))


async def test_it_ends_with_its_owner() -> None:
    db = await open_db(memory_store(), CONTIGUOUS)
    feed = db.changes()
    waiting = asyncio.create_task(taken(feed, 1))
    await asyncio.sleep(0.01)
    await db.close()
    with pytest.raises(slate.ClosedError):
        await waiting


@KIND
@pytest.mark.parametrize("way", ["rows", "batches"])
async def test_a_whole_snapshot_is_left_behind_though_its_last_rows_were_dropped(kind: Kind, way: str) -> None:
    async with open_db(memory_store(), kind) as db:
        await db.put(b"a", b"1")
        await db.put(b"b", b"2")
        await db.delete(b"b")
        await db.compact(full=True)
        async with db.changes(follow=False) as feed:
            count = len([item async for item in (feed if way == "rows" else feed.batches())])
            assert (count, feed.seq, feed.snapshot_seq) == (1, 3, 3)
        await db.put(b"c", b"4")
        found = await all_of(db.changes(from_seq=feed.seq, follow=False))
        assert [change.seq for change in found] == [4]
