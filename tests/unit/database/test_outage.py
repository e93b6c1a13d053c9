"""The store goes away for longer than a writer tries: reads go on, writes are refused, and the database opens itself
again, unless another writer has taken over."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pyarrow as pa
import pytest

import slate_async as slate
from tests.engine import CONTIGUOUS, EPOCHS, Kind, contents, on, open_db, runtime, starts, until
from tests.unit.database.away import SHORT, back, failed, out, outages


async def test_reads_go_on_writes_are_refused_and_the_database_comes_back(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        assert await contents(db) == {b"a": b"1"}  # so that it is in memory where the log holds SSTs
        before = db.status()
        assert before.state == "open"
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        assert await failed(sent) == "unknown"
        assert (db.status().state, db.status().epoch) == ("degraded", before.epoch)
        assert await db.get(b"a") == b"1"
        assert await db.get(b"a", durable=True) == b"1"
        assert await db.get(b"b", durable=True) is None
        batch = slate.WriteBatch()
        batch.put(b"c", b"1")
        for call in (db.put(b"c", b"1"), db.write(batch, await_durable=False)):
            with pytest.raises(slate.UnavailableError) as caught:
                await call
            assert caught.value.outcome == "not_applied"
        with pytest.raises(slate.UnavailableError) as caught:
            await db.flush()
        assert caught.value.outcome == "unknown"
        store.down = False
        await back(db)
        assert db.status().epoch > before.epoch
        handle = await db.put(b"d", b"1")
        assert handle.seq > 2
        assert await contents(db) == {b"a": b"1", b"d": b"1"}
        assert db.status().state == "open"
    async with open_db(store, kind) as again:
        assert await contents(again) == {b"a": b"1", b"d": b"1"}


async def test_what_did_not_land_leaves_memory_at_once_and_what_landed_stays(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, flush_parallelism=1, flush_interval_ms=0, **SHORT) as db:
        await db.put(b"old", b"1")
        await db.put(b"key", b"1")
        assert len(await contents(db)) == 2
        store.down, store.landing = True, lambda key: key.startswith("log/")
        (landing,) = starts(db.put(b"landed", b"1"))
        await until(lambda: db.status().flushes_in_flight == 1, "the first object to be sent")
        waiting = starts(db.put(b"key", b"2"), db.delete(b"old"), db.put(b"new", b"1"))
        await until(lambda: db.status().last_seq == 6, "them to be applied")
        assert await contents(db) == {b"key": b"2", b"landed": b"1", b"new": b"1"}
        snapshot = db.snapshot()
        assert [await failed(write) for write in waiting] == ["not_applied"] * 3
        left = {b"key": b"1", b"landed": b"1", b"old": b"1"}
        assert await contents(db) == left
        assert {key: value async for key, value in snapshot.scan()} == left
        assert await snapshot.get_many([b"key", b"old", b"new"]) == [b"1", b"1", None]
        assert await db.get(b"key") == b"1"
        assert await failed(landing) == "unknown"
        assert await db.get(b"landed", durable=True) is None
        store.down = False
        await back(db)
        assert await contents(db) == left
        assert await db.get(b"landed", durable=True) == b"1"
        assert (await db.put(b"new", b"2")).seq > 6
        assert {key: value async for key, value in snapshot.scan()} == left
        snapshot.close()


async def test_what_was_sent_and_is_not_found_leaves_snapshots_too(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"key", b"1")
        assert await db.get(b"key") == b"1"
        store.down = True
        (sent,) = starts(db.put(b"key", b"2"))
        await until(lambda: db.status().last_seq == 2, "it to be applied")
        snapshot = db.snapshot()
        assert await failed(sent) == "unknown"
        assert await snapshot.get(b"key") == b"2"
        store.down = False
        await back(db)
        assert (await snapshot.get(b"key"), await db.get(b"key")) == (b"1", b"1")
        await db.put(b"key", b"3")
        assert (await snapshot.get(b"key"), await db.get(b"key")) == (b"1", b"3")
        snapshot.close()


async def test_what_is_known_of_the_compactor_is_of_the_writer_that_came_back() -> None:
    store = outages()
    async with open_db(store, CONTIGUOUS, **SHORT) as db:
        said = db.status().compactor
        db._writer.compactor_role.failure = slate.CorruptionError("is damaged", object_name="sst/1")
        assert db.status().compactor.startswith("failed: sst/1")
        store.down = True
        (sent,) = starts(db.put(b"a", b"1"))
        assert await failed(sent) == "unknown"
        assert db.status().compactor.startswith("failed: sst/1")
        store.down = False
        await back(db)
        assert db.status().compactor == said
        assert db._writer.pressure._compactor is db._writer.compactor_role
        assert db._compaction.compactor._role is db._writer.compactor_role


async def test_the_writer_of_before_the_outage_and_its_memtables_are_freed(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        before = weakref.ref(db._writer.sequencer)
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        assert await failed(sent) == "unknown"
        store.down = False
        await back(db)
        await db.put(b"c", b"1")
        del sent
        gc.collect()
        assert before() is None


async def test_a_writer_that_took_over_meanwhile_is_never_fenced(kind: Kind) -> None:
    store = outages()
    older = await open_db(store, kind, **SHORT)
    await older.put(b"a", b"1")
    store.down = True
    (sent,) = starts(older.put(b"lost", b"1"))
    assert await failed(sent) == "unknown"
    async with open_db(store.inner, kind) as newer:
        await newer.put(b"b", b"1")
        store.down = False
        with pytest.raises(slate.FencedError):
            await older.wait_closed()
        assert older.status().state == "fenced"
        await older.close()
        await newer.put(b"c", b"1")
        await newer.confirm()
        assert await contents(newer) == {b"a": b"1", b"b": b"1", b"c": b"1"}


async def test_a_claim_whose_answer_was_lost_is_its_own(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        await failed(sent)
        versions = db.status().manifest_version

        def claims(key: str) -> bool:
            return key.startswith(("manifest/", "log/"))

        def newest() -> int:
            assert db._opened.driver.head is not None
            return db._opened.driver.head.version

        for _ in range(3):  # goes away again in the middle of it
            store.down = False
            await until(lambda before=versions: newest() > before, "a claim")  # type: ignore[misc]
            versions = newest()
            store.down, store.landing = True, claims
            await asyncio.sleep(0.05)
        store.down = False
        await back(db)
        await db.put(b"c", b"1")
        assert await contents(db) == {b"a": b"1", b"c": b"1"}
    async with open_db(store, kind) as again:
        assert await contents(again) == {b"a": b"1", b"c": b"1"}


async def test_several_outages_and_what_is_read_meanwhile(kind: Kind) -> None:
    """What a snapshot reads stays pinned over the claims of its own process, whichever process compacts."""
    store = outages()
    settings = {**SHORT, "l0_compact_ssts": 2, "l0_max_ssts": 100, "auto_compaction": True}
    async with open_db(store, kind, **settings) as db:
        snapshots = []
        for number in range(4):
            await db.put(b"key", b"%d" % number)
            await db.flush(l0=True)
            snapshots.append(db.snapshot())
            store.down = True
            (sent,) = starts(db.put(b"never", b"1"))
            await failed(sent)
            store.down = False
            await back(db)
            await db.compact(full=True)
        for number, snapshot in enumerate(snapshots):
            assert await snapshot.get(b"key") == b"%d" % number
        pins = [checkpoint for checkpoint in db._writer.state.manifest.checkpoints if checkpoint.owner == "writer"]
        assert len(pins) >= 4
        for snapshot in snapshots:
            snapshot.close()
        await until(
            lambda: len([x for x in db._writer.state.manifest.checkpoints if x.owner == "writer"]) == 1,
            "idle pins to go",
        )
        assert db.metrics()["log.flushes"] >= 4


async def test_closing_in_an_outage_raises_a_loss_that_was_not_reported() -> None:
    store = outages()
    db = await open_db(store, CONTIGUOUS, **SHORT)
    store.down = True
    handle = await db.put(b"a", b"1", await_durable=False)
    await out(db)
    with pytest.raises(slate.UnavailableError) as caught:
        await db.close()
    assert caught.value.outcome == "unknown"
    db = await open_db(store.inner, CONTIGUOUS, **SHORT)
    await db.close()
    assert not handle.is_durable


async def test_a_loss_in_an_outage_that_is_over_is_reported_by_flush_and_close(kind: Kind) -> None:
    store = outages()
    db = await open_db(store, kind, **SHORT)
    store.down = True
    await db.put(b"a", b"1", await_durable=False)
    await out(db)
    store.down = False
    await back(db)
    with pytest.raises(slate.UnavailableError):
        await db.flush()
    await db.flush()
    with pytest.raises(slate.UnavailableError):
        await db.close()


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_handle_that_raises_a_loss_when_it_closes_still_gives_everything_back(
    flushed: bool, kind: Kind
) -> None:
    store = outages()
    db = await open_db(store, kind, **SHORT)
    store.down = True
    await db.put(b"a", b"1", await_durable=False)
    await out(db)
    store.down = False
    await back(db)
    if flushed:
        with pytest.raises(slate.UnavailableError):
            await db.flush()
    await db.put(b"b", b"2")
    with pytest.raises(slate.UnavailableError):
        await db.close()
    async with await on(runtime()).open_reader(store, name="memory://test", pin=False) as reader:
        assert (await reader.writer_life()).state == "closed"  # a standby need not wait for beats
        assert await contents(reader) == {b"b": b"2"}


async def test_a_feed_goes_on_over_an_outage(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db, db.changes(from_seq=0) as feed:
        changes = aiter(feed)
        await db.put(b"a", b"1")
        assert (await anext(changes)).key == b"a"
        (coming,) = starts(anext(changes))
        await asyncio.sleep(0.01)
        store.down = True
        (sent,) = starts(db.put(b"never", b"1"))
        await failed(sent)
        store.down = False
        await back(db)
        await db.put(b"b", b"1")
        assert (await coming).key == b"b"


async def test_an_ingest_that_came_meanwhile_is_applied_above_all_numbers_given(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        assert await failed(sent) == "unknown"
        async with on(runtime()).open_ingest(store.inner, job_id="job", name="memory://test") as job:
            await job.write([pa.table({"key": ["c"], "value": ["ingested"]})])
            await job.commit(wait=False)
            store.down = False
            await back(db)
            info = await job.wait()
        assert (info.state, info.seq) == ("applied", 3)
        assert (await db.put(b"d", b"1")).seq == 4
        assert await contents(db) == {b"a": b"1", b"c": b"ingested", b"d": b"1"}
        async with db.changes(from_seq=0, follow=False) as feed:
            assert [(change.seq, change.key) async for change in feed] == [(1, b"a"), (3, b"c"), (4, b"d")]
        await db.flush(l0=True)
        await db.compact(full=True)
        async with db.changes(from_seq=0, follow=False) as feed:
            assert {change.key async for change in feed} == {b"a", b"c", b"d"}


async def test_on_outage_close() -> None:
    store = outages()
    db = await open_db(store, CONTIGUOUS, **{**SHORT, "on_outage": "close"})
    store.down = True
    (sent,) = starts(db.put(b"a", b"1"))
    assert await failed(sent) == "unknown"
    with pytest.raises(slate.ClosedError):
        await db.wait_closed()
    await db.close()


async def test_what_a_range_delete_hid_is_back_when_it_is_undone() -> None:
    store = outages()
    async with open_db(store, flush_parallelism=1, flush_interval_ms=0, **SHORT) as db:
        for key in (b"a", b"b", b"c"):
            await db.put(key, b"1")
        await db.delete_range(b"c", b"d")
        left = {b"a": b"1", b"b": b"1"}
        store.down = True
        (sent,) = starts(db.delete_range(b"a", b"b"))
        await until(lambda: db.status().flushes_in_flight == 1, "the first object to be sent")
        (unsent,) = starts(db.delete_range(None, None))
        await until(lambda: db.status().last_seq == 6, "it to be applied")
        snapshot = db.snapshot()
        assert await contents(db) == {}
        assert await snapshot.get_many([b"a", b"b"]) == [None, None]
        assert await failed(unsent) == "not_applied"
        assert {key: value async for key, value in snapshot.scan()} == {b"b": b"1"}
        assert await failed(sent) == "unknown"
        store.down = False
        await back(db)
        assert await contents(db) == left
        assert {key: value async for key, value in snapshot.scan()} == left
        assert await snapshot.get_many([b"a", b"b", b"c"]) == [b"1", b"1", None]
        assert [await snapshot.get(key) for key in (b"a", b"c")] == [b"1", None]
        await db.delete_range(b"b", None)
        assert await contents(db) == {b"a": b"1"}
        assert {key: value async for key, value in snapshot.scan()} == left
        snapshot.close()
    async with open_db(store) as again:
        assert await contents(again) == {b"a": b"1"}


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_write_whose_read_gets_no_answer_is_certainly_not_applied(kind: Kind) -> None:
    """Whoever waits for the same read is told of a read."""
    store = outages()
    async with open_db(store, kind) as db:
        await db.put(b"n", b"1")
        people = db.map("people", key=str, value=dict[str, str], indexes=[slate.Index("mail", unique=True)])
        await people.put("ann", {"mail": "a@b"})
        await db.flush(l0=True)
    async with open_db(store, kind, **SHORT) as db:
        people = db.map("people", key=str, value=dict[str, str], indexes=[slate.Index("mail", unique=True)])
        without = db.map("people", key=str, value=dict[str, str])  # which has to see whether it has indexes
        batch = slate.WriteBatch()
        people.within(batch).put("bob", {"mail": "b@b"})
        store.down, store.away = True, lambda key: key.startswith(("sst/", "log/"))
        writes = starts(
            db.put(b"n", b"2", if_absent=True),
            db.delete(b"n", if_value=b"1"),
            db.update(b"n", lambda value: value),
            db.touch(b"n", ttl=60),
            db.increment(b"n"),
            db.increment(b"m", token=b"n"),
            people.put("ann", {"mail": "c@b"}),
            people.delete("ann"),
            without.put("bob", {}),
            db.write(batch),
        )
        (read,) = starts(db.get(b"n"))
        assert [await failed(write) for write in writes] == ["not_applied"] * len(writes)
        assert await failed(read) is None
        assert db.status().last_seq == 2 or db.metrics()["db.writes"] == 0
        store.down = False
        assert await db.get(b"n") == b"1"
        assert await people.get("ann") == {"mail": "a@b"}


async def test_a_write_whose_read_finds_damage_is_certainly_not_applied() -> None:
    async with open_db(outages(), merge_operator="json_merge_patch") as db:
        await db.put(b"n", b"no JSON")
        await db.merge(b"n", b"{}")
        for write in (
            db.put(b"n", b"2", if_value=b"1"),
            db.update(b"n", lambda value: value),
            db.increment(b"m", token=b"n"),
        ):
            with pytest.raises(slate.MergeError) as caught:
                await write
            assert (caught.value.outcome, caught.value.key) == ("not_applied", b"n")
        with pytest.raises(slate.MergeError) as caught:
            await db.get(b"n")
        assert caught.value.outcome is None
