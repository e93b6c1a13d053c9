"""A writer collects beside compacting: what is left is near what lives, and an idle database is not looked at."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from slate_async.engine.clone.housekeeping import GcRounds
from slate_async.objectstore.memory import MemoryStore
from slate_async.runtime.system import SystemIds
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from tests.engine import KINDS, Kind, ManualClock, commit_elsewhere, memory_store, on, open_db, runtime, until
from tests.live_set import live_set

NAME = "memory://test"
SOON: dict[str, Any] = {
    "auto_gc": True,
    "auto_compaction": True,
    "l0_max_ssts": 16,
    "l0_compact_ssts": 2,
    "manifest_poll_interval_ms": 10,
    "gc_interval_ms": 10,
    "gc_min_age_ms": 0,
    "gc_clock_skew_ms": 0,
}


async def rewrite(db: slate.Db, times: int) -> None:
    """The same rows again and again, each time into an L0 SST of its own."""
    for turn in range(times):
        batch = slate.WriteBatch()
        for number in range(50):
            batch.put(b"%04d" % number, random.Random(turn * 50 + number).randbytes(400))
        await db.write(batch)
        await db.flush(l0=True)


async def left(store: MemoryStore) -> list[str]:
    """What nothing needs, but for versions: each commit leaves one."""
    found = await live_set(store, PutIfAbsentFactory(), NAME, runtime())
    assert found.missing == []
    return [key for key in found.left if key.startswith(("sst/", "log/"))]


async def stored_bytes(store: MemoryStore) -> int:
    """Of SSTs and log objects."""
    return sum([info.size async for info in store.list() if info.key.startswith(("sst/", "log/"))])


async def until_clean(store: MemoryStore) -> None:
    for _ in range(2_000):
        if not await left(store):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{await left(store)} are kept for ever")


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_database_alone_ends_near_its_live_size(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, **SOON) as db:
        await rewrite(db, 30)
        await db.compact(full=True)
        for _ in range(2_000):
            if await stored_bytes(store) < 1.5 * db.status().sst_bytes:
                break
            await asyncio.sleep(0.01)
        await until_clean(store)
        assert await stored_bytes(store) < 1.5 * db.status().sst_bytes
        assert db.metrics()["gc.objects"] > 20
        await rewrite(db, 1)
        assert len([row async for row in db.scan()]) == 50
    async with open_db(store, kind) as again:
        assert len([row async for row in again.scan()]) == 50
    async with on(runtime()).open_admin(store, name=NAME) as admin:
        assert (await admin.verify()).findings == ()


async def until_no_round_comes(db: slate.Db) -> None:
    """Until no round comes by itself."""
    before, same = -1.0, 0
    async with asyncio.timeout(20):
        while same < 10:
            await asyncio.sleep(0.02)
            now = db.metrics()["gc.rounds"]
            before, same = now, same + 1 if now == before else 0


async def test_nothing_is_listed_where_nothing_was_made_garbage() -> None:
    store = memory_store()
    async with open_db(store, **SOON) as db:
        await rewrite(db, 5)
        await until_clean(store)
        await until_no_round_comes(db)
        rounds = db.metrics()["gc.rounds"]
        assert rounds > 0
        await db.put(b"in the log", b"makes no garbage")
        await asyncio.sleep(0.2)
        assert db.metrics()["gc.rounds"] == rounds
        await rewrite(db, 1)
        await until(lambda: db.metrics()["gc.rounds"] > rounds, "a round after a flush")


async def test_a_checkpoint_that_expires_is_collected_by_itself() -> None:
    store, clock = memory_store(), ManualClock()
    async with open_db(store, clock=clock, **SOON) as db:
        await rewrite(db, 2)
        expiring = CreateCheckpoint(SystemIds().uuid(), "user", clock.now_ms(), clock.now_ms() + 60_000)
        await commit_elsewhere(store, expiring)
        await until(
            lambda: any(checkpoint.owner == "user" for checkpoint in db._writer.state.manifest.checkpoints),
            "the checkpoint",
        )
        await until_no_round_comes(db)
        clock.wall_ms += 60_000
        await until(
            lambda: all(checkpoint.owner != "user" for checkpoint in db._writer.state.manifest.checkpoints), "its end"
        )


async def test_off_it_does_nothing() -> None:
    store = memory_store()
    async with open_db(store, **{**SOON, "auto_gc": False}) as db:
        await rewrite(db, 5)
        await asyncio.sleep(0.1)
        assert db.metrics()["gc.rounds"] == 0
        assert await left(store)


async def test_what_is_damaged_ends_the_collecting_and_not_the_writer() -> None:
    store = memory_store()
    async with open_db(store, **{**SOON, "auto_gc": True, "gc_interval_ms": 300}) as db:
        await rewrite(db, 2)
        kept = await db.checkpoints.create()
        await rewrite(db, 2)
        await store.delete([f"manifest/{kept.manifest_id:020}.manifest"])
        await asyncio.sleep(1)
        await rewrite(db, 2)
        assert db.status().state == "open"
        assert db.metrics()["gc.failures"] == 1
        assert len([row async for row in db.scan()]) == 50


async def test_an_error_that_nobody_expects_is_logged_and_ends_the_collecting_and_not_the_writer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[GcRounds] = []

    async def broken(self: GcRounds) -> Any:
        calls.append(self)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(GcRounds, "collect", broken)
    async with open_db(memory_store(), **SOON) as db:
        await rewrite(db, 2)
        await until(lambda: db.metrics()["gc.failures"] > 0, "the error")
        await rewrite(db, 2)
        await asyncio.sleep(0.1)
        assert len(calls) == db.metrics()["gc.failures"] == 1
        assert db.status().state == "open"
    [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


async def test_a_round_that_could_not_come_to_its_end_is_counted_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    collect, failed = GcRounds.collect, [slate.UnavailableError("no answer"), slate.InvalidError("not now")]

    async def collect_in_the_end(self: GcRounds) -> Any:
        if failed:
            raise failed.pop()
        return await collect(self)

    monkeypatch.setattr(GcRounds, "collect", collect_in_the_end)
    async with open_db(memory_store(), **SOON) as db:
        await rewrite(db, 2)
        await until(lambda: db.metrics()["gc.rounds"] > 0, "a round")
        assert db.metrics()["gc.failures"] == 2


def test_the_end_of_the_event_loop_is_no_error_of_gc(caplog: pytest.LogCaptureFixture) -> None:
    """A program that fails without closing its database is told of its own mistake only."""

    async def program() -> None:
        await slate.open("memory://left-open", settings=slate.Settings(auto_gc=True))

    asyncio.run(program())
    told = [record for record in caplog.records if "GC stopped" in record.getMessage()]
    assert [(record.levelno, record.exc_info) for record in told] == [(logging.WARNING, None)]
    assert "its event loop ended" in told[0].getMessage()
