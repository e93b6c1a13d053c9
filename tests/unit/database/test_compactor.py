"""A database that is compacted, beside its writer or from another process, says what it said before."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    KINDS,
    Kind,
    ManualClock,
    StoreInHand,
    contents,
    memory_store,
    open_db,
    open_reader,
    until,
)
from tests.unit.database.compactors import abandon, at_rest, fill, open_compactor

# ---- contents


@pytest.mark.parametrize("style", ["size_tiered", "leveled"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_database_compacted_beside_its_writer_says_what_was_written(kind: Kind, style: str) -> None:
    store = memory_store()
    small = {"sst_bytes": 2_000, "block_bytes": 500, "level_base_bytes": 4_000, "l0_sst_bytes": 4_000}
    async with open_db(store, kind, auto_compaction=True, l0_compact_ssts=2, compaction_style=style, **small) as db:
        model: dict[bytes, bytes] = {}
        for seed in range(4):
            model |= await fill(db, seed=seed)
            model = {key: value for key, value in model.items() if await db.get(key) is not None}
            assert await contents(db) == model
        await until(lambda: db.metrics()["compaction.committed"] >= 3, "compactions beside the writer")
        await db.compact()
        assert await contents(db) == model
        assert db.status().l0_ssts < 10
    async with open_db(store, kind) as db:
        assert await contents(db) == model


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_full_compaction_leaves_one_version_of_each_key_and_no_tombstone(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        model = await fill(db)
        events: list[slate.CompactionEvent] = []
        assert await db.compact(full=True, progress=events.append) == 1
        assert await contents(db) == model
        counts = db.metrics()
        assert counts["compaction.rows_in"] == 600
        assert counts["compaction.rows_out"] == len(model)
        assert counts["compaction.shadowed_rows"] + counts["compaction.dropped_tombstones"] == 600 - len(model)
        assert (events[0].kind, events[-1].kind) == ("begun", "committed")
        assert (events[-1].rows_done, events[-1].rows_total) == (600, 600)
        status = db.status()
        assert (status.l0_ssts, status.sorted_runs, status.log_start) == (0, 1, status.log_end + 1)
    async with open_db(store, kind) as db:
        assert await contents(db) == model
        assert (await db.put(b"more", b"")).seq == 601


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_tombstone_above_older_rows_stays(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        await db.put(b"a", b"old")
        await db.compact(full=True)
        await db.delete(b"a")
        await db.put(b"b", b"new")
        await db.compact(level=0)
        assert db.status().sorted_runs == 2
        assert await db.get(b"a") is None
        assert db.metrics()["compaction.dropped_tombstones"] == 0
        await db.compact(full=True)
        assert await contents(db) == {b"b": b"new"}
        assert db.metrics()["compaction.dropped_tombstones"] == 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_expired_row_hides_older_versions_for_ever(kind: Kind) -> None:
    clock = ManualClock()
    async with open_db(memory_store(), kind, clock=clock) as db:
        await db.put(b"a", b"old")
        await db.compact(full=True)
        await db.put(b"a", b"short", ttl=10)
        await db.flush(l0=True)
        await db.put(b"a", b"shorter", ttl=1)
        clock.wall_ms += 20_000
        await db.compact(level=0)
        assert db.metrics()["compaction.buried_rows"] == 1
        assert await db.get(b"a") is None
        await db.compact(full=True)
        assert await contents(db) == {}
        assert db.status().sorted_runs == 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_history_is_kept_as_long_as_asked(kind: Kind) -> None:
    clock = ManualClock()
    store = memory_store()
    async with open_db(store, kind, clock=clock, retention_ms=60_000) as db:
        for value in (b"1", b"2", b"3"):
            await db.put(b"a", value)
            await db.flush(l0=True)
            clock.wall_ms += 40_000
        await db.compact(full=True)  # version 1 ended 80 s ago; 2 lived until 40 s ago
        async with open_reader(store, clock=clock) as reader:
            assert await reader.as_of(seq=2).get(b"a") == b"2"
            assert await reader.as_of(seq=3).get(b"a") == b"3"
        clock.wall_ms += 600_000
        await db.put(b"b", b"")
        await db.flush(l0=True)
        await db.compact(full=True)
        async with open_reader(store, clock=clock) as reader:
            assert await reader.get(b"a") == b"3"
            with pytest.raises(slate.InvalidError):
                reader.as_of(seq=2)


async def test_a_scan_begun_before_a_compaction_ends_after_it() -> None:
    async with open_db(memory_store(), CONTIGUOUS, block_bytes=200) as db:
        model = await fill(db)
        seen: list[bytes] = []
        async for key, _ in db.scan():
            seen.append(key)
            if len(seen) == 3:
                await db.compact(full=True)
        assert seen == list(model)


async def test_a_range_and_a_level_that_are_asked_for() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        model = await fill(db)
        assert await db.compact(start=b"k10", end=b"k20") == 1
        assert await db.compact(level=0) == 0
        assert await contents(db) == model
        with pytest.raises(slate.InvalidError, match="no level 9"):
            await db.compact(level=9)
        with pytest.raises(slate.InvalidError):
            await db.compact(full=True, level=1)
        with pytest.raises(slate.InvalidError):
            await db.compact(start=b"b", end=b"a")


# ---- one lives


async def test_of_several_compactors_opened_at_once_one_lives() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        model = await fill(db)
        compactors = await asyncio.gather(*(open_compactor(store) for _ in range(5)))
        newest = max(compactors, key=lambda one: one.status().epoch)
        for compactor in compactors:
            if compactor is not newest:
                with pytest.raises(slate.FencedError):
                    await compactor.wait_closed()
                assert compactor.status().state == "fenced"
                with pytest.raises(slate.FencedError):
                    await compactor.compact()
        await newest.compact(full=True)
        await newest.close()
        await db.confirm()
        assert await contents(db) == model


async def test_a_writer_compacts_again_when_the_other_compactor_has_closed() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, auto_compaction=True, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
        await fill(db, rounds=2)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "a compaction of the writer's own")
        async with open_compactor(store, l0_compact_ssts=2) as other:
            await until(lambda: "elsewhere" in db.status().compactor, "the writer standing by")
            before = db.metrics()["compaction.committed"]
            await fill(db, rounds=3)
            await at_rest(other)
            assert db.metrics()["compaction.committed"] == before
            assert db.status().state == "open"
        await fill(db, rounds=4)
        await until(lambda: db.metrics()["compaction.committed"] > before, "the writer compacting again")


async def test_a_writer_waits_for_a_compactor_that_may_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await fill(db)
    crashed = await open_compactor(store, l0_compact_ssts=30)
    await abandon(crashed)
    async with open_db(store, CONTIGUOUS, auto_compaction=True, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
        await until(lambda: "elsewhere" in db.status().compactor, "the writer standing by")
        monkeypatch.setattr("slate_async.engine.compaction.embedded.PATIENCE_S", 0.05)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "patience to end")


async def test_the_compactor_of_a_dead_writer_is_not_waited_for() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, auto_compaction=True, l0_compact_ssts=2) as db:
        await fill(db, rounds=2)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "a compaction")
    async with open_db(store, CONTIGUOUS, auto_compaction=True, l0_compact_ssts=2) as db:
        await fill(db, rounds=3)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "the next writer's compaction")


async def test_a_fenced_writer_that_compacts_ends_and_takes_no_role_from_the_living() -> None:
    """It does not wait for its next look at the manifest."""
    store = memory_store()
    settings = {"auto_compaction": True, "l0_compact_ssts": 2, "manifest_poll_interval_ms": 60_000}
    zombie = await open_db(store, CONTIGUOUS, **settings)
    await fill(zombie, rounds=2)
    await until(lambda: zombie.metrics()["compaction.committed"] > 0, "a compaction")
    async with open_db(store, CONTIGUOUS, **settings) as db:
        with pytest.raises(slate.FencedError):
            await zombie.compact(full=True)
        with pytest.raises(slate.FencedError):
            await zombie.wait_closed()
        await fill(db, rounds=3)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "the living writer's compaction")
    await zombie.close()


async def test_there_is_no_compactor_of_nothing() -> None:
    with pytest.raises(slate.InvalidError, match="no database"):
        await open_compactor(memory_store())


async def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await fill(db)
        async with open_compactor(store, l0_compact_ssts=30) as compactor:
            compaction = asyncio.ensure_future(compactor.compact(full=True))
            await asyncio.sleep(0)
            compaction.cancel()
            assert await compactor.compact() == 0
            assert compactor.metrics()["compaction.committed"] == 0


async def test_closing_a_database_ends_calls_that_wait_for_a_compaction() -> None:
    held = StoreInHand(memory_store(), watch="sst/")
    db = await open_db(held, CONTIGUOUS_SST)
    await fill(db)
    held.hold = True
    compaction = asyncio.ensure_future(db.compact(full=True))
    await until(lambda: bool(held.held), "an upload on its way")
    await db.close()
    with pytest.raises(slate.ClosedError):
        await compaction
