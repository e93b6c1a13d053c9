"""A database that is compacted says what it said before: beside its writer, from another process, after any crash."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

import slate_async as slate
from slate_async.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.compaction.local_executor import LocalExecutor
from slate_async.environment import Opening
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import OVERWRITE, Buffer, ObjectStore, PutMode
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    EPOCHS,
    EPOCHS_SST,
    KINDS,
    Kind,
    ManualClock,
    StoreInHand,
    contents,
    memory_store,
    open_db,
    open_reader,
    runtime,
    until,
)

BOUNDS = (b"k2", b"k5")
"""Cut the keys of `fill` into three ranges."""


def open_compactor(
    store: ObjectStore, clock: ManualClock | None = None, **options: object
) -> Opening[slate.DbCompactor]:
    """A compactor of the database in the root of ``store``; ``progress`` is no setting."""
    progress = options.pop("progress", None)
    settings = slate.Settings(**{"manifest_poll_interval_ms": 5, **options})
    return slate.open_compactor(
        store,
        name="memory://test",
        settings=settings,
        runtime=runtime(clock),
        progress=progress,  # type: ignore[arg-type]
    )


async def abandon(compactor: slate.DbCompactor) -> None:
    """What a crash leaves: every task ends where it stands."""
    await compactor._supervisor.close()


async def fill(db: slate.Db, *, rounds: int = 6, keys: int = 100, seed: int = 1) -> dict[bytes, bytes]:
    """Puts, overwrites and deletes, an L0 SST (or several) for each round; what a scan shows afterwards."""
    rng = random.Random(seed)
    model: dict[bytes, bytes] = {}
    for number in range(rounds):
        for _ in range(keys):
            key = b"k%02d" % rng.randrange(keys)
            if rng.random() < 0.3:
                model.pop(key, None)
                await db.delete(key, await_durable=False)
            else:
                model[key] = b"%d of round %d" % (rng.getrandbits(60), number)
                await db.put(key, model[key], await_durable=False)
        await db.flush(l0=True)
    return dict(sorted(model.items()))


async def at_rest(compactor: slate.DbCompactor) -> None:
    await compactor.compact()
    assert compactor.status().registered == 0


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """Cuts every compaction at `BOUNDS`, and tells which ranges (by their start) were merged, as they end."""
    merged: list[bytes | None] = []
    run = LocalExecutor.run

    async def counted(
        self: LocalExecutor, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None
    ) -> RangeResult:
        result = await run(self, task, progress)
        merged.append(task.start)
        return result

    async def split(*_: object) -> tuple[bytes, ...]:
        return BOUNDS

    monkeypatch.setattr(LocalExecutor, "run", counted)
    monkeypatch.setattr("slate_async.compaction.compactor.split", split)
    return merged


# ---- contents


@pytest.mark.parametrize("style", ["size_tiered", "leveled"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_database_compacted_beside_its_writer_says_what_was_written(kind: Kind, style: str) -> None:
    store = memory_store()
    small = {"sst_bytes": 2_000, "block_bytes": 500, "level_base_bytes": 4_000, "l0_sst_bytes": 4_000}
    async with open_db(store, kind, compactor=True, l0_compact_ssts=2, compaction=style, **small) as db:
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
            assert await reader.at(seq=2).get(b"a") == b"2"
            assert await reader.at(seq=3).get(b"a") == b"3"
        clock.wall_ms += 600_000
        await db.put(b"b", b"")
        await db.flush(l0=True)
        await db.compact(full=True)
        async with open_reader(store, clock=clock) as reader:
            assert await reader.get(b"a") == b"3"
            with pytest.raises(slate.InvalidError):
                reader.at(seq=2)


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


# ---- crashes


class Crashing(StoreInHand):
    """A store whose puts come to a halt at the ``left``-th one; ``after`` it took effect, or before."""

    def __init__(self, inner: ObjectStore, left: int, *, after: bool) -> None:
        super().__init__(inner, watch="never/")
        self.left = left
        self.after = after
        self.crashed = asyncio.Event()

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        self.left -= 1
        if self.left == 0 and not self.after:
            await self._halt()
        etag = await super().put(key, data, mode=mode, metadata=metadata)
        if self.left == 0:
            await self._halt()
        return etag

    async def _halt(self) -> None:
        self.crashed.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("kind", "after"), [(CONTIGUOUS, False), (CONTIGUOUS_SST, True), (EPOCHS, True), (EPOCHS_SST, False)], ids=str
)
async def test_a_compactor_killed_at_any_request_is_resumed(
    kind: Kind, after: bool, ranges: list[bytes | None]
) -> None:
    before_all = MemoryObjects()
    async with open_db(memory_store(before_all), kind) as db:
        model = await fill(db, rounds=4, keys=80)
    crashes = 0
    while True:
        ranges.clear()
        store = memory_store(copied(before_all))
        crashing = Crashing(store, crashes + 2, after=after)  # the claim is a put, too, and part of opening
        compactor = await open_compactor(crashing, compaction_parallelism=1)
        compaction = asyncio.ensure_future(compactor.compact(full=True))
        crash = asyncio.ensure_future(crashing.crashed.wait())
        await asyncio.wait([compaction, crash], return_when=asyncio.FIRST_COMPLETED)
        crash.cancel()
        if compaction.done():
            await compaction
            await compactor.close()
            break
        crashes += 1
        noted = noted_ranges(compactor)
        await abandon(compactor)
        compaction.cancel()
        async with open_compactor(store) as other:
            noted = noted_ranges(other)
            before = len(ranges)
            await other.compact()
            assert len(ranges) - before <= len(BOUNDS) + 1 - noted, "a finished range was done again"
        async with open_db(store, kind) as db:
            assert await contents(db) == model
            assert (db.status().l0_ssts, db.status().sorted_runs) == (0, 1)
    assert crashes >= 2 * (len(BOUNDS) + 1), "each range puts an object and is noted"


def copied(objects: MemoryObjects) -> MemoryObjects:
    """The same objects in a store of their own."""
    copy = MemoryObjects()
    copy.objects, copy.sorted_keys, copy.writes = dict(objects.objects), list(objects.sorted_keys), objects.writes
    return copy


def noted_ranges(compactor: slate.DbCompactor) -> int:
    state = compactor._opened.driver.head
    assert state is not None
    return sum(len(one.finished) for one in state.compactions)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_sleeping_compactor_commits_nothing_over_its_successor(kind: Kind, ranges: list[bytes | None]) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        model = await fill(db)
        held = StoreInHand(store, watch="sst/", hold=True)
        sleeping = await open_compactor(held)
        compaction = asyncio.ensure_future(sleeping.compact(full=True))
        await until(lambda: bool(held.held), "an upload on its way")
        async with open_compactor(store) as other:
            await other.compact(full=True)
            await db.delete(b"k00")
            await db.flush(l0=True)
            await other.compact(full=True)
            held.release()
            with pytest.raises(slate.FencedError):
                await compaction
            with pytest.raises(slate.FencedError):
                await sleeping.wait_closed()
        await db.confirm()
        model.pop(b"k00", None)
        assert await contents(db) == model


@pytest.mark.parametrize("kind", [CONTIGUOUS_SST, EPOCHS_SST], ids=str)
async def test_a_compactor_whose_log_its_successor_took_is_fenced_and_reports_no_damage(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep, wake = asyncio.Event(), asyncio.Event()
    run = LocalExecutor.run

    async def first_one_sleeps(
        self: LocalExecutor, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None
    ) -> RangeResult:
        if not asleep.is_set():
            asleep.set()
            await wake.wait()
        return await run(self, task, progress)

    monkeypatch.setattr(LocalExecutor, "run", first_one_sleeps)
    store = memory_store()
    async with open_db(store, kind) as db:
        await fill(db)
    sleeping = await open_compactor(store, manifest_poll_interval_ms=20_000)
    compaction = asyncio.ensure_future(sleeping.compact(full=True))
    await asleep.wait()
    async with open_compactor(store) as other:
        await other.compact(full=True)
    await store.delete([info.key async for info in store.list("log/")])  # as a collector does
    wake.set()
    with pytest.raises(slate.FencedError):
        await compaction
    with pytest.raises(slate.FencedError):
        await sleeping.wait_closed()


async def test_a_store_that_does_not_answer_is_waited_out() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        model = await fill(db)
        failing = StoreInHand(store, watch="sst/")
        failing.fail_before = lambda key: slate.UnavailableError("down", outcome="unknown")
        events: list[slate.CompactionEvent] = []
        brief = {"retry_deadline_ms": 50, "request_timeout_ms": 50}
        async with open_compactor(failing, progress=events.append, **brief) as compactor:
            compaction = asyncio.ensure_future(compactor.compact(full=True))
            await until(lambda: any(event.kind == "failed" for event in events), "a failed try")
            failing.fail_before = lambda key: None
            assert await compaction == 1
            assert compactor.metrics()["compaction.resumed"] >= 1
        await db.confirm()
        assert await contents(db) == model


async def failure_of(compaction: Awaitable[int]) -> slate.CorruptionError:
    with pytest.raises(slate.CorruptionError) as raised:
        await compaction
    return raised.value


async def test_stored_bytes_that_are_wrong_end_the_compactor_and_nothing_is_committed() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        await fill(db)
        [first, *_] = [info.key async for info in store.list("sst/")]
        bytes_ = bytearray((await store.get(first)).data)
        bytes_[100] ^= 1
        await store.put(first, bytes_)
        compactor = await open_compactor(store)
        with pytest.raises(slate.ClosedError) as raised:
            await compactor.compact(full=True)
        assert isinstance(raised.value.__cause__, slate.CorruptionError)
        told = [await failure_of(db.compact(full=True)) for _ in range(3)]
        assert [(type(one), one.object_name, str(one)) for one in told] == [
            (slate.CorruptionError, first, str(told[0]))
        ] * 3
        assert len({id(one) for one in told}) == 3, "each caller an error of its own"
        assert db.status().state == "open"
        assert db.status().compactor.startswith("failed: sst/")
        await db.put(b"still", b"writable")


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


async def test_a_writer_compacts_again_when_the_other_compactor_is_gone() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, compactor=True, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
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
    async with open_db(store, CONTIGUOUS, compactor=True, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
        await until(lambda: "elsewhere" in db.status().compactor, "the writer standing by")
        monkeypatch.setattr("slate_async.compaction.resident.PATIENCE_S", 0.05)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "patience to end")


async def test_the_compactor_of_a_dead_writer_is_not_waited_for() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, compactor=True, l0_compact_ssts=2) as db:
        await fill(db, rounds=2)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "a compaction")
    async with open_db(store, CONTIGUOUS, compactor=True, l0_compact_ssts=2) as db:
        await fill(db, rounds=3)
        await until(lambda: db.metrics()["compaction.committed"] > 0, "the next writer's compaction")


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


async def test_closing_a_database_ends_who_waits_for_a_compaction() -> None:
    held = StoreInHand(memory_store(), watch="sst/")
    db = await open_db(held, CONTIGUOUS_SST)
    await fill(db)
    held.hold = True
    compaction = asyncio.ensure_future(db.compact(full=True))
    await until(lambda: bool(held.held), "an upload on its way")
    await db.close()
    with pytest.raises(slate.ClosedError):
        await compaction
