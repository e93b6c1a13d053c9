"""Readers on a checkpoint: exactly what it keeps, nothing written, and a clear error when it was deleted."""

from __future__ import annotations

import uuid

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.log.names import epoch_key
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints, RefreshCheckpoint
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    START_MS,
    Kind,
    ManualClock,
    contents,
    memory_store,
    on,
    open_db,
    open_reader,
    runtime,
)
from tests.support.checkpoints import checkpoint_on_path
from tests.support.manifests import collect, commit, compact, head

ROWS = {b"a": b"1", b"b": b"1", b"c": b"1"}


async def filled(store: MemoryStore, kind: Kind) -> slate.Db:
    """An open database with `ROWS`, of which one is in the log, the others in an SST where there are L0 SSTs."""
    db = await open_db(store, kind)
    await db.put(b"a", b"0")
    await db.put(b"a", b"1")
    await db.put(b"b", b"1")
    await db.flush(l0=True)
    await db.put(b"c", b"1")
    return db


async def test_it_shows_its_state_whatever_happens_after(kind: Kind) -> None:
    store = memory_store()
    async with await filled(store, kind) as db:
        kept = await checkpoint_on_path(store)
        await db.delete(b"a")
        await db.put(b"d", b"2")
        async with open_reader(store, checkpoint=kept.id) as reader:
            for _ in range(2):
                assert await contents(reader) == ROWS
                await db.put(b"c", b"3")
                await db.flush(l0=True)
                await compact(store)
                await db.confirm()
                await collect(store, START_MS)
                await reader.refresh()
            status = reader.status()
            assert (status.following, status.checkpoint, status.last_seq) == (False, str(kept.id), 4)
            async with reader.as_of(seq=1) as then:
                assert await contents(then) == {b"a": b"0"}
            with pytest.raises(slate.InvalidError, match="stays at sequence number 4"):
                await reader.wait_for(5)
            for wrong in (-1, True, "5"):
                with pytest.raises(slate.InvalidError, match="whole number from 0 on"):
                    await reader.wait_for(wrong)  # type: ignore[arg-type]
            assert reader.metrics()["manifest.commits"] == 0
        async with open_reader(store, checkpoint=kept.id) as reader:
            assert await contents(reader) == ROWS


async def test_of_the_epoch_prefixed_log_it_is_a_manifest_a_last_object_and_an_end_of_life(clock: ManualClock) -> None:
    """As a snapshot file would be that names these three."""
    store = memory_store()
    async with open_db(store, EPOCHS, clock=clock) as db:
        await db.put(b"a", b"1")
        await db.put(b"a", b"2")
        kept = await db.checkpoints.create(lifetime=60)
        last = max([info.key async for info in store.list("log/")])
    assert (last, kept.expire_time) == (epoch_key(1, kept.log_end or 0), kept.create_time + 60)
    async with open_db(store, EPOCHS, clock=clock) as db:
        await db.put(b"a", b"3")
        await db.flush(l0=True)
    assert (await head(store)).version > kept.manifest_id
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=1_000)
    opening = on(runtime(clock)).open_gc(store, name="memory://test", settings=settings, periodic=False)
    async with opening as collector:
        clock.wall_ms += 59_000
        await collector.collect()
        async with open_reader(store, checkpoint=kept.id, clock=clock) as reader:
            assert await contents(reader) == {b"a": b"2"}
        clock.wall_ms += 1_000
        with pytest.raises(slate.InvalidError, match="expired"):
            await open_reader(store, checkpoint=kept.id, clock=clock)
        await collector.collect()
        assert [info.key async for info in store.list(last)] == [last], "clocks may differ by a second"
        clock.wall_ms += 1_000
        await collector.collect()
        assert [info.key async for info in store.list(last)] == []


async def test_a_copy_shows_what_its_source_shows(memory: MemoryStore, clock: ManualClock) -> None:
    async with open_db(memory, clock=clock) as db:
        await db.put(b"a", b"1", ttl=10)
        source = await db.checkpoints.create()
        clock.wall_ms += 60_000
        copy = await db.checkpoints.create(source=source.id)
        await db.checkpoints.delete(source.id)
        again = await db.checkpoints.create(source=copy.id)
    async with open_reader(memory, checkpoint=again.id, clock=clock) as reader:
        assert await contents(reader) == {b"a": b"1"}


async def test_expiry_is_judged_at_its_time(memory: MemoryStore, clock: ManualClock) -> None:
    async with open_db(memory, clock=clock) as db:
        await db.put(b"a", b"1", ttl=10)
        kept = await checkpoint_on_path(memory)
        clock.wall_ms += 60_000
        async with open_reader(memory, clock=clock, checkpoint=str(kept.id)) as reader:
            assert await reader.get(b"a") == b"1"
            assert await db.get(b"a") is None


async def test_a_checkpoint_that_goes_under_its_reader_is_named(kind: Kind) -> None:
    store = memory_store()
    async with await filled(store, kind) as db:
        kept = await checkpoint_on_path(store)
        async with open_reader(store, checkpoint=kept.id, block_cache_bytes=0) as reader:
            await db.put(b"a", b"2")
            await db.flush(l0=True)
            await compact(store)
            for _ in range(2):
                await db.confirm()
            await commit(store, DeleteCheckpoints(frozenset([kept.id])))
            await collect(store, START_MS)
            for read in (lambda: reader.get(b"a"), lambda: contents(reader), lambda: reader.get_many([b"b"])):
                with pytest.raises(slate.InvalidError, match=f"{kept.id} was deleted"):
                    await read()


async def test_what_it_names_and_is_not_there_is_corruption(memory: MemoryStore) -> None:
    async with await filled(memory, CONTIGUOUS):
        kept = await checkpoint_on_path(memory)
        async with open_reader(memory, checkpoint=kept.id) as reader:
            await memory.delete([(await head(memory)).l0[0].location])
            with pytest.raises(slate.CorruptionError, match="sst/"):
                await reader.get(b"a")


async def test_by_name(memory: MemoryStore) -> None:
    async with await filled(memory, CONTIGUOUS) as db:
        end = db.status().log_end
        for name in ("monday", "twice", "twice"):
            made = CreateCheckpoint(uuid.uuid4(), "user", START_MS, START_MS + 1000, name=name, log_end=end)
            await commit(memory, made)
        async with open_reader(memory, checkpoint="monday") as reader:
            assert await contents(reader) == ROWS
        opening = on(runtime()).open_reader(memory, "monday", name="memory://test")
        async with opening as reader:  # the second argument, as one would guess
            assert reader.status().checkpoint is not None
        with pytest.raises(slate.InvalidError, match="say which one"):
            await open_reader(memory, checkpoint="twice")
        with pytest.raises(slate.InvalidError, match="no checkpoint 'tuesday'"):
            await open_reader(memory, checkpoint="tuesday")


async def test_missing_expired_and_unfit_ones_are_refused(memory: MemoryStore, clock: ManualClock) -> None:
    async with await filled(memory, CONTIGUOUS), open_reader(memory, clock=clock) as follower:
        kept = await checkpoint_on_path(memory)
        await commit(memory, RefreshCheckpoint(kept.id, START_MS, START_MS + 1000))
        clock.wall_ms += 1000
        with pytest.raises(slate.InvalidError, match="has expired"):
            await open_reader(memory, clock=clock, checkpoint=kept.id)
        with pytest.raises(slate.InvalidError, match="there is no checkpoint"):
            await open_reader(memory, checkpoint=uuid.uuid4())
        with pytest.raises(slate.InvalidError, match="a reader's own"):
            await open_reader(memory, checkpoint=follower.status().checkpoint)
        with pytest.raises(slate.InvalidError, match="an id, a name or None"):
            open_reader(memory, checkpoint=7)
