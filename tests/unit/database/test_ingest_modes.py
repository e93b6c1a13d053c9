"""Who applies a job: the writer that lives, or its driver, which finds out before it begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from tests.engine import KINDS, ManualClock, abandon, memory_store, open_db, runtime
from tests.unit.database.test_ingest import open_admin, open_job, table
from tests.unit.database.test_ingest_leases import until_pending

BEAT_MS = 60


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


def later(ms: int) -> Any:
    """A runtime whose wall clock is ahead by so much."""
    clock = ManualClock()
    clock.wall_ms += ms
    return runtime(clock)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_without_a_writer_the_driver_becomes_it_at_once(store: MemoryStore, kind: Any) -> None:
    async with open_db(store, kind) as db:
        await db.put(b"a", b"before")
    for number in range(2):
        async with open_job(store, None) as job:
            await job.write([table({f"{number}": "x"})])
            assert (await job.commit(timeout=5)).state == "applied"
    async with open_db(store, kind) as db:
        assert [key async for key, _ in db.scan()] == [b"0", b"1", b"a"]


async def test_beside_a_writer_that_beats_it_waits_for_that_one(store: MemoryStore) -> None:
    async with open_db(store, heartbeat_interval_ms=BEAT_MS, manifest_poll_interval_ms=20) as db:
        said: list[str] = []
        async with open_job(store, None, on_wait=said.append) as job:
            await job.write([table({"a": "1"})])
            assert (await job.commit()).state == "applied"
        assert (await db.get(b"a"), db.status().epoch, said) == (b"1", 1, [])
        await db.put(b"b", b"2")


async def test_the_role_of_a_writer_that_died_is_given_back_before_any_work(store: MemoryStore) -> None:
    dead = await open_db(store, heartbeat_interval_ms=BEAT_MS)
    await dead.put(b"a", b"before")
    await abandon(dead)
    said: list[str] = []
    async with open_job(store, None, run=later(10_000), on_wait=said.append) as job:
        assert said == [f"writer epoch 1 is silent; waiting {3 * BEAT_MS / 1000:g} s at most, to see whether it lives"]
        async with open_admin(store) as admin:
            assert [info.owner for info in await admin.checkpoints.list()] == []
        await job.write([table({"b": "1"})])
        assert (await job.commit(timeout=5)).state == "applied"
    async with open_db(store) as db:
        assert [row async for row in db.scan()] == [(b"a", b"before"), (b"b", b"1")]


async def test_a_silent_writer_that_beats_again_is_not_fenced(store: MemoryStore) -> None:
    async with open_db(store, heartbeat_interval_ms=BEAT_MS, manifest_poll_interval_ms=20) as db:
        async with open_job(store, None, run=later(10_000)) as job:  # whose clock makes each beat an old one
            await job.write([table({"a": "1"})])
            assert (await job.commit()).state == "applied"
        assert (await db.put(b"b", b"2")).seq == 2


async def test_a_writer_that_dies_while_tasks_work_is_found_out_by_the_commit(store: MemoryStore) -> None:
    dead = await open_db(store, heartbeat_interval_ms=BEAT_MS)
    async with open_job(store, None) as job:
        await abandon(dead)
        await job.write([table({"a": "1"})])
        assert (await job.commit(timeout=10)).state == "applied"


async def test_a_writer_that_closes_while_the_commit_waits_is_replaced_at_once(store: MemoryStore) -> None:
    db = await open_db(store)  # which looks once a minute
    async with open_job(store, None) as job:
        await job.write([table({"a": "1"})])
        committing = asyncio.ensure_future(job.commit())
        await until_pending(job)
        await db.close()
        assert (await committing).state == "applied"


async def test_a_writer_that_does_not_beat_is_counted_on(store: MemoryStore) -> None:
    dead = await open_db(store, heartbeat_interval_ms=0)
    await abandon(dead)
    said: list[str] = []
    async with open_job(store, None, run=later(10**9), on_wait=said.append) as job:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.UnavailableError, match="was aborted") as error:
            await job.commit(timeout=0.05)
        assert (error.value.outcome, said) == ("not_applied", [])


async def test_a_job_that_is_in_waits_for_nobody(store: MemoryStore) -> None:
    async with open_job(store, "done", create=True) as job:
        await job.write([table({"a": "1"})])
        await job.commit()
    await abandon(await open_db(store, heartbeat_interval_ms=30_000))
    async with asyncio.timeout(5), open_job(store, "done", run=later(10**9)) as job:
        assert (await job.commit()).state == "applied"


@pytest.mark.parametrize("call", [lambda job: job.commit(mode="both"), lambda job: job.commit(mode=True)])
async def test_other_modes_are_refused(store: MemoryStore, call: Any) -> None:
    async with open_job(store, create=True) as job:
        with pytest.raises(slate.InvalidError, match="mode is one of auto, ingest, exclusive"):
            await call(job)
    with pytest.raises(slate.InvalidError, match="mode is one of"):
        open_job(store, mode="exclusively")
