"""A compactor that loses its compactions to a collector: beside a writer it begins again, alone it ends; a dead one's
garbage goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.storage.manifest.edits.compactions import work_mark
from tests.engine import KINDS, Kind, ManualClock, contents, memory_store, open_db, until
from tests.unit.database import compactors
from tests.unit.database.compactors import fill, open_compactor
from tests.unit.database.test_auto_gc import SOON, until_clean
from tests.unit.database.test_garbage_collector import check_exact, head_of, open_gc

STALLED_MS = 60_000


class Sleeping:
    """Merges that stand still while ``asleep``."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.woken = asyncio.Event()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        run = LocalExecutor.run

        async def sleeping(
            executor: LocalExecutor, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None
        ) -> RangeResult:
            self.begun.set()
            await self.woken.wait()
            return await run(executor, task, progress)

        patch.setattr(LocalExecutor, "run", sleeping)


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Sleeping:
    made = Sleeping()
    made.install(monkeypatch)
    return made


async def give_up(store: Any) -> None:
    """What collectors of other processes do when the compactor stands still."""
    clock = ManualClock()
    for _ in range(2):
        async with open_gc(store, clock, gc_stalled_compaction_ms=STALLED_MS) as collector:
            report = await collector.collect()
        clock.wall_ms += STALLED_MS
    assert len(report.evicted) == 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_beside_a_writer_it_claims_again_and_goes_on(kind: Kind, sleeping: Sleeping) -> None:
    store = memory_store()
    async with open_db(store, kind, auto_compaction=True, l0_compact_ssts=2, manifest_poll_interval_ms=5) as db:
        model = await fill(db, rounds=3)
        await sleeping.begun.wait()
        before = (await head_of(store)).compactor_epoch
        await give_up(store)
        sleeping.woken.set()
        await until(lambda: db.metrics()["compaction.committed"] > 0, "the writer compacting again")
        assert db.status().state == "open"
        head = await head_of(store)
        assert head.compactor_epoch >= before + 2, "the role was taken away, and claimed again"
        assert await contents(db) == model
    async with open_db(store, kind, auto_compaction=False) as again:
        assert await contents(again) == model
    await check_exact(store)


async def test_alone_it_ends_as_if_another_had_taken_over(sleeping: Sleeping) -> None:
    store = memory_store()
    async with open_db(store) as db:
        model = await fill(db, rounds=3)
    compactor = await open_compactor(store, l0_compact_ssts=2)
    await sleeping.begun.wait()
    runs = (await head_of(store)).runs
    await give_up(store)
    sleeping.woken.set()
    with pytest.raises(slate.FencedError):
        await compactor.wait_closed()
    assert (await head_of(store)).runs == runs
    async with open_compactor(store, l0_compact_ssts=2) as successor:
        await successor.compact()
    await check_exact(store)
    async with open_db(store) as db:
        assert await contents(db) == model


async def test_a_writer_that_does_not_compact_gives_a_dead_ones_work_up(sleeping: Sleeping) -> None:
    store = memory_store()
    async with open_db(store) as db:
        model = await fill(db, rounds=3)
    compactor = await open_compactor(store, l0_compact_ssts=2)
    await sleeping.begun.wait()
    await compactors.abandon(compactor)
    assert work_mark(await head_of(store))
    settings, clock = {**SOON, "auto_compaction": False, "gc_stalled_compaction_ms": 50}, ManualClock()
    async with open_db(store, clock=clock, **settings) as db:
        await until(lambda: db.metrics()["gc.rounds"] > 0, "a round that sees the work")
        clock.wall_ms += 50
        await until(lambda: not db._writer.state.manifest.compactions, "the end of the dead compactor's work")
        await until_clean(store)
        assert await contents(db) == model
