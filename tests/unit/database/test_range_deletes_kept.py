"""SSTs whose rows a range delete hides, all of them: they leave the database whole, and stay stored for whoever needs
them. And how long the range delete stays."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from tests.engine import ManualClock, StoreInHand, contents, memory_store, on, open_db, open_reader, runtime, until

KEYS = [b"k%02d" % number for number in range(20)]
ROWS = [(key, b"v") for key in KEYS]
HOUR_MS = 3_600_000
AN_SST_EACH = {"sst_bytes": 1, "block_bytes": 1}


async def stored(store: MemoryStore, clock: ManualClock | None = None) -> int:
    """SSTs in the store, once a collector has nothing more to do."""
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    async with on(runtime(clock)).open_gc(store, name="memory://test", periodic=False, settings=settings) as collector:
        for _ in range(5):
            await collector.collect()
    return len([info async for info in store.list("sst/")])


async def fill(db: slate.Db) -> None:
    """An SST for each row, in one run."""
    batch = slate.WriteBatch()
    for key, value in ROWS:
        batch.put(key, value)
    await db.write(batch)
    await db.compact(full=True)
    assert db.status().l0_ssts == 0


async def drop(db: slate.Db) -> None:
    """All of them, by a range delete and without reading one."""
    await db.delete_range(None, None)
    await db.flush(l0=True)
    before = db.metrics()["compaction.rows_in"]
    await db.compact()
    assert db.metrics()["compaction.rows_in"] == before
    assert (db.status().l0_ssts, db.status().sorted_runs, db.status().range_deletes) == (1, 0, 0)
    assert await contents(db) == {}


async def test_ssts_that_are_dropped_whole_stay_stored_for_a_checkpoint() -> None:
    store = memory_store()
    async with open_db(store, **AN_SST_EACH) as db:
        await fill(db)
        info = await db.checkpoints.create()
        await drop(db)
    assert await stored(store) >= len(KEYS)
    async with open_reader(store, checkpoint=info.id) as reader:
        assert [row async for row in reader.scan()] == ROWS
        assert await reader.get(KEYS[5]) == b"v"
    async with on(runtime()).open_admin(store, name="memory://test") as admin:
        await admin.checkpoints.delete(info.id)
    assert await stored(store) == 1, "nothing else kept them"


async def test_they_stay_stored_for_a_snapshot() -> None:
    store = memory_store()
    async with open_db(store, **AN_SST_EACH) as db:
        await fill(db)
        with db.snapshot() as snapshot:
            await drop(db)
            assert await stored(store) >= len(KEYS)
            assert [row async for row in snapshot.scan()] == ROWS
            assert await snapshot.get_many(KEYS) == [b"v"] * len(KEYS)
    assert await stored(store) == 1, "nothing else kept them"


async def test_they_stay_stored_for_a_subscription() -> None:
    """Which gives each change, and not what is left in their place: those that the log has no more are in SSTs only."""
    store = memory_store()
    async with open_db(store, **AN_SST_EACH) as db:
        await fill(db)
    assert await stored(store) == len(KEYS)
    async with open_db(store, **AN_SST_EACH) as db:
        async with db.changes(subscription="copy", from_seq=0, follow=False) as feed:
            await feed.acknowledge(0, now=True)
        await drop(db)
    assert await stored(store) >= len(KEYS)
    async with open_db(store) as db:
        async with db.changes(subscription="copy", follow=False) as feed:
            found = [change async for change in feed]
            assert [(change.key, change.value) for change in found[:-1]] == ROWS
            assert [(change.seq, change.op) for change in found[19:]] == [(20, "put"), (21, "delete_range")]
            await feed.acknowledge(21, now=True)
    assert await stored(store) == 1, "nothing else kept them"


async def test_history_keeps_them_until_nobody_may_look_back_so_far() -> None:
    clock, store = ManualClock(), memory_store()
    async with open_db(store, clock=clock, retention_ms=HOUR_MS, **AN_SST_EACH) as db:
        await fill(db)
        clock.wall_ms += HOUR_MS // 2
        await db.delete_range(None, None)
        await db.compact(full=True)
        assert db.status().range_deletes == 1
        assert await stored(store, clock) >= len(KEYS)
        with db.as_of(seq=20) as snapshot:
            assert [row async for row in snapshot.scan()] == ROWS
        async with db.changes(from_seq=0, follow=False) as feed:
            assert [change.seq async for change in feed] == list(range(1, 22))
        clock.wall_ms += 2 * HOUR_MS
        await db.put(b"later", b"")
        merged = db.metrics()["compaction.rows_in"]
        await db.compact()
        assert db.metrics()["compaction.rows_in"] <= merged + 1, "they went whole"
        assert db.status().range_deletes == 0
        with pytest.raises(slate.InvalidError, match="history"):
            db.as_of(seq=20)
        assert await contents(db) == {b"later": b""}
    assert await stored(store, clock) <= 3


async def test_a_range_delete_outlives_compactions_that_began_before_it() -> None:
    """What such a one writes may hold rows that it hides."""
    store = StoreInHand(memory_store(), watch="sst/")
    async with open_db(store) as db:
        for key in KEYS:
            await db.put(key, b"v", await_durable=False)
        await db.flush(l0=True)
        store.hold = True
        compaction = asyncio.ensure_future(db.compact(full=True))
        await until(lambda: bool(store.held), "the compaction's output")
        store.hold = False
        await db.delete_range(KEYS[3], KEYS[17])
        await db.flush(l0=True)
        assert db.status().range_deletes == 1
        store.release()
        await compaction
        left = dict(ROWS[:3] + ROWS[17:])
        assert await contents(db) == left
        await db.compact(full=True)
        assert await contents(db) == left
        assert db.status().range_deletes == 0
    async with open_db(store) as db:
        assert await contents(db) == left
