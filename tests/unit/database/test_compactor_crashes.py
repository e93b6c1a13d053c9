"""Compactors that die, sleep or fail: what they began is resumed, and nothing of theirs is taken for another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import OVERWRITE, ObjectStore, PutMode
from slate_async.types import Buffer
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    EPOCHS,
    EPOCHS_SST,
    KINDS,
    Kind,
    StoreInHand,
    contents,
    memory_store,
    open_db,
    until,
)
from tests.unit.database.compactors import abandon, fill, open_compactor

BOUNDS = (b"k2", b"k5")
"""Cut the keys of `fill` into three ranges."""


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
    monkeypatch.setattr("slate_async.engine.compaction.compactor.split", split)
    return merged


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
    return sum(len(compaction.finished) for compaction in state.compactions)


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
        assert [(type(failure), failure.object_name, str(failure)) for failure in told] == [
            (slate.CorruptionError, first, str(told[0]))
        ] * 3
        assert len({id(failure) for failure in told}) == 3, "each caller an error of its own"
        assert db.status().state == "open"
        assert db.status().compactor.startswith("failed: sst/")
        await db.put(b"still", b"writable")
