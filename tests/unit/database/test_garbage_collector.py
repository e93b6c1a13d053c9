"""A garbage collector beside a real database of each kind: nothing is missed, in the end nothing is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from metastores.names import MANIFEST
from slate_async.objectstore.local.store import LocalStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints
from slate_async.storage.manifest.edits.compactions import ClaimCompactor, RegisterCompaction
from slate_async.storage.manifest.state import Compaction, ManifestState
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    Kind,
    ManualClock,
    StoreInHand,
    abandon,
    contents,
    memory_store,
    on,
    open_db,
    open_reader,
    runtime,
    until,
)
from tests.live_set import live_set
from tests.property.gc.oracle import driver_of

NAME = "memory://test"


def open_gc(
    store: Any, clock: ManualClock | None = None, *, periodic: bool = False, **settings: int
) -> slate.Opening[slate.GarbageCollector]:
    chosen = slate.Settings(**{"gc_min_age_ms": 0, "version_keep_ms": 0, "gc_clock_skew_ms": 0, **settings})
    return on(runtime(clock)).open_gc(store, name=NAME, periodic=periodic, settings=chosen)


async def check_exact(store: ObjectStore, clock: ManualClock | None = None) -> None:
    """After a few rounds the store holds what lives, and nothing else."""
    async with open_gc(store, clock) as collector:
        for _ in range(5):
            await collector.collect()
    found = await live_set(store, PutIfAbsentFactory(), NAME, runtime())
    assert (found.missing, found.left) == ([], [])


async def head_of(store: ObjectStore) -> ManifestState:
    head = await driver_of(store, runtime()).load()
    assert head is not None
    return head


async def fill(db: slate.Db, name: bytes, rounds: int = 4) -> dict[bytes, bytes]:
    """Rows that overwrite each other, flushed often."""
    rows = {b"%02d" % number: b"%s %d" % (name, number) for number in range(20)}
    for number in range(rounds):
        for key, value in rows.items():
            await db.put(key, value if number == rounds - 1 else b"older", await_durable=False)
        await db.flush(l0=True)
    return rows


async def test_collecting_beside_a_writer_that_compacts_crashes_and_is_taken_over(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind):
        pass
    async with open_gc(store) as collector:
        for life in range(4):
            db = await open_db(store, kind, l0_compact_ssts=2, manifest_poll_interval_ms=5)
            rows = await fill(db, b"life %d" % life)
            await collector.collect()
            assert await contents(db) == rows
            if life % 2:
                await abandon(db)
            else:
                await db.close()
            await collector.collect()
    async with open_db(store, kind, auto_compaction=False) as db:
        assert await contents(db) == rows
    await check_exact(store)


async def test_a_checkpoint_of_the_log_keeps_it_and_lets_it_go(kind: Kind) -> None:
    store = memory_store()
    clock = ManualClock()
    async with open_db(store, kind, clock=clock, auto_compaction=False, l0_max_ssts=100) as db:
        rows = await fill(db, b"kept")
        end = db.status().log_end
    head = await head_of(store)
    ranges = ((head.writer_epoch, 1),) if kind.log_protocol == "epoch_prefixed" else ()
    driver, checkpoint = driver_of(store, runtime(clock)), runtime().ids.uuid()
    await driver.load()
    await driver.commit(CreateCheckpoint(checkpoint, "user", clock.now_ms(), None, log_end=end, log_ranges=ranges))
    async with open_db(store, kind, clock=clock, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
        newer = await fill(db, b"newer")
        await db.compact(full=True)
    await check_exact(store, clock)
    async with open_reader(store, checkpoint=checkpoint, clock=clock) as reader:
        assert await contents(reader) == rows
    await driver.commit(DeleteCheckpoints(frozenset({checkpoint})))
    kept = await count(store)
    await check_exact(store, clock)
    assert await count(store) < kept
    async with open_db(store, kind, clock=clock) as db:
        assert await contents(db) == newer


async def count(store: ObjectStore) -> int:
    return len([info async for info in store.list()])


async def test_scans_of_writer_and_reader_never_meet_a_deleted_sst(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, auto_compaction=False, l0_max_ssts=100, manifest_poll_interval_ms=5) as db:
        before = await fill(db, b"before")
        async with open_reader(store) as reader, open_gc(store) as collector:
            scans = [db.scan(), reader.scan()]
            iterators = [aiter(scan) for scan in scans]
            firsts = [await anext(iterator) for iterator in iterators]
            await fill(db, b"after")
            await db.compact(full=True)
            for _ in range(3):
                await collector.collect()
            for first, rest in zip(firsts, iterators, strict=True):
                assert dict([first, *[row async for row in rest]]) == before
    await check_exact(store)


async def test_rounds_are_reported_and_repeat() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await fill(db, b"rows")
    async with open_gc(store, periodic=True, gc_interval_ms=1) as collector:
        reports = collector.rounds()
        first, second = await anext(reports), await anext(reports)
        assert first.dry_run is second.dry_run is False
        assert collector.last is not None
        dry = await collector.collect(dry_run=True)
        assert dry.dry_run
        assert not collector.last.dry_run
        assert collector.metrics()["gc.rounds"] >= 2
        waiting = asyncio.ensure_future(collect_all(reports))
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 10)


async def test_a_dry_run_counts_the_versions_that_a_round_deletes() -> None:
    """Young ones stay for readers that poll, and one round deletes so many."""
    store, clock = memory_store(), ManualClock()
    async with open_db(store, auto_compaction=False) as db:
        await fill(db, b"rows")
    counted = []
    for keep_ms, most, later_ms in ((600_000, 100, 0), (600_000, 2, 600_001), (0, 100, 0)):
        clock.wall_ms += later_ms
        async with open_gc(store, clock, version_keep_ms=keep_ms, gc_max_deletes_per_round=most) as collector:
            await collector.collect()  # what it commits is counted by no dry run
            dry, real = await collector.collect(dry_run=True), await collector.collect()
        assert dry.manifest_versions == real.manifest_versions
        counted.append(real.manifest_versions)
    assert counted[:2] == [0, 2]


async def collect_all(reports: Any) -> list[slate.GcReport]:
    return [report async for report in reports]


async def test_more_than_a_round_may_delete_goes_in_rounds_that_follow_at_once() -> None:
    store = memory_store()
    async with open_db(store, auto_compaction=False) as db:
        await fill(db, b"rows", rounds=10)
    async with open_gc(store, periodic=True, gc_interval_ms=3_600_000, gc_max_deletes_per_round=2) as collector:
        await until(lambda: collector.last is not None and not collector.last.truncated, "the last round")
        assert collector.metrics()["gc.rounds"] > 3


async def test_one_gc_process_for_several_databases(tmp_path: Path) -> None:
    stores = [memory_store(), LocalStore(tmp_path / "db", runtime())]
    for store in stores:
        async with open_db(store, auto_compaction=False) as db:
            await fill(db, b"rows")
    async with slate.Environment(runtime=runtime()) as environment:
        for store in stores:
            collector = await environment.open_gc(
                store, name=NAME, settings=slate.Settings(gc_min_age_ms=0, version_keep_ms=0)
            )
            await until(lambda one=collector: one.last is not None, "a round")  # type: ignore[misc]
    for store in stores:
        await check_exact(store)
    await stores[1].close()


async def test_it_waits_out_an_outage() -> None:
    store = memory_store()
    async with open_db(store, auto_compaction=False) as db:
        await fill(db, b"rows")
    listing, failures = store.list, 0

    def failing(prefix: str = "", *, start_after: str = "") -> Any:
        nonlocal failures
        if prefix == "sst/" and failures < 3:
            failures += 1
            raise slate.UnavailableError("out of order")
        return listing(prefix, start_after=start_after)

    store.list = failing  # type: ignore[method-assign]
    async with open_gc(store, periodic=True, gc_interval_ms=1) as collector:
        await until(lambda: collector.last is not None, "a round that gets through")
        assert failures == 3


async def test_closing_it_ends_calls_that_wait_for_a_round() -> None:
    store = StoreInHand(memory_store(), watch="manifest/")
    async with open_db(store, CONTIGUOUS) as db:
        await db.checkpoints.create(lifetime=0.001)
    clock = ManualClock()
    clock.wall_ms += 1_000
    collector = await open_gc(store, clock)
    store.hold = True
    waiting = asyncio.ensure_future(collector.collect())
    await until(lambda: bool(store.held), "a commit on its way")
    await collector.close()
    with pytest.raises(slate.ClosedError):
        await waiting


async def test_it_closes_itself_when_something_that_lives_is_lost() -> None:
    store = memory_store()
    async with open_db(store, auto_compaction=False) as db:
        await fill(db, b"rows")
    driver = driver_of(store, runtime())
    await driver.load()
    ids = [runtime().ids.uuid() for _ in range(3)]
    *held, head = [
        await driver.commit(CreateCheckpoint(checkpoint_id, "user", 0, None, log_end=0)) for checkpoint_id in ids
    ]
    stored = await driver.read_stored(head.ref)
    assert stored is not None
    lost = next(state.ref for state in held if state.ref != stored.base)
    await store.delete([MANIFEST.version_key(lost.version)])
    collector = await open_gc(store, periodic=True)
    with pytest.raises(slate.ClosedError, match="missing"):
        await asyncio.wait_for(collector.wait_closed(), 10)
    with pytest.raises(slate.ClosedError, match="missing"):
        await collector.collect()
    await collector.close()


async def test_it_refuses_a_manifest_that_is_not_of_these_ssts() -> None:
    mine, other = memory_store(), memory_store()
    for store in (mine, other):
        async with open_db(store, auto_compaction=False) as db:
            await fill(db, b"rows")
    await mine.delete([info.key async for info in mine.list("manifest/")])
    async for info in other.list("manifest/"):
        await mine.put(info.key, (await other.get(info.key)).data)
    with pytest.raises(slate.CorruptionError):
        await open_gc(mine)


async def test_there_must_be_a_database() -> None:
    with pytest.raises(slate.InvalidError, match="no database"):
        await open_gc(memory_store())


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_what_a_writer_that_died_between_upload_and_commit_left(kind: Kind) -> None:
    store = memory_store()
    db = await open_db(store, kind, auto_compaction=False)
    await fill(db, b"rows")
    put, uploaded = store.put, asyncio.Event()

    async def dying(key: str, *given: Any, **more: Any) -> str:
        etag = await put(key, *given, **more)
        if key.startswith("sst/"):
            uploaded.set()
            await asyncio.Event().wait()
        return etag

    store.put = dying  # type: ignore[method-assign]
    await db.put(b"k", b"v")
    flushing = asyncio.ensure_future(db.flush(l0=True))
    await uploaded.wait()
    await abandon(db)
    flushing.cancel()
    store.put = put  # type: ignore[method-assign]
    async with open_db(store, kind, auto_compaction=False) as again:
        assert await again.get(b"k") == b"v"
    await check_exact(store)


async def test_an_abandoned_compaction_is_reported_until_a_compactor_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    store, clock, age = memory_store(), ManualClock(), 10_000
    async with open_db(store, CONTIGUOUS, clock=clock, auto_compaction=False) as db:
        rows = await fill(db, b"rows")
    driver = driver_of(store, runtime(clock))
    await driver.load()
    state, left = await driver.commit(ClaimCompactor("killed")), runtime().ids.uuid()
    l0 = tuple(sst.object_id for sst in state.l0)
    begun = Compaction(left, 1, state.version, clock.now_ms(), 0, True, l0, (), state.last_run_id + 1, 0)
    await driver.commit(RegisterCompaction(begun))
    holding = slate.BlockingCompaction(left, state.version, clock.now_ms())
    async with open_gc(store, clock, gc_min_age_ms=age, version_keep_ms=0) as collector:
        clock.wall_ms += age
        assert (await collector.collect()).blocked_by == ()
        clock.wall_ms += 1
        assert [(await collector.collect()).blocked_by for _ in range(2)] == [(holding,)] * 2
        assert [record.message for record in caplog.records if str(left) in record.message] == [f"{NAME}: {holding}"]
        async with on(runtime(clock)).open_compactor(store, name=NAME, auto_compaction=False) as compactor:
            await compactor.compact()
        assert (await collector.collect()).blocked_by == ()
    async with open_db(store, CONTIGUOUS, clock=clock) as db:
        assert await contents(db) == rows
