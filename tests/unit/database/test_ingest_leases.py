"""Jobs without a name of the caller's end with their driver: nothing of them comes in later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.ingest import manage
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.manifest.edits.ingests import AbortIngest, RenewLease, find_ingest
from tests.engine import KINDS, ManualClock, commit_elsewhere, memory_store, on, open_db, runtime, until
from tests.unit.database.test_ingest import NAME, open_admin, open_job, table

LEASE_MS = 30_000
SKEW_MS = 60_000


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


def open_unnamed(store: MemoryStore, **more: Any) -> Any:
    return open_job(store, None, **more)


async def states(store: MemoryStore) -> list[str]:
    async with open_admin(store) as admin:
        return [info.state for info in await admin.ingests.list()]


async def until_pending(job: slate.IngestJob, *, lease_from_ms: int = 0) -> None:
    """Wait until it is committed, and its lease lasts until then at least."""
    while True:
        info = await job.info()
        if info.state == "pending" and info.expire_ms is not None and info.expire_ms >= lease_from_ms:
            return
        await asyncio.sleep(0.001)


async def die_committed(store: MemoryStore, run: Any = None, **rows: str) -> slate.IngestJob:
    """A driver is killed between its commit and its application."""
    job: slate.IngestJob = await open_unnamed(store, run=run or runtime())
    await job.write([table(rows or {"a": "lost"})])
    driver = job._job
    assert driver.spec is not None
    made = driver.written
    assert (await manage.commit(driver._driver, driver._clock, driver.spec, made, lease_ms=LEASE_MS)).state == "pending"
    await job._supervisor.close()
    return job


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_what_a_dead_driver_committed_is_not_applied_two_minutes_later(store: MemoryStore, kind: Any) -> None:
    async with open_db(store, kind) as db:
        await db.put(b"a", b"before")
    dead = await die_committed(store, a="lost", b="lost")
    clock = ManualClock()
    for later_ms in (120_000, 0):  # the second one's clock is behind: what has expired stays so
        clock.wall_ms += later_ms
        async with open_db(store, kind, clock=clock) as db:
            await db.put(b"c", b"after")
            await db.confirm()
            assert [row async for row in db.scan()] == [(b"a", b"before"), (b"c", b"after")]
            assert db.status().pending_ingests == 0
            if later_ms:
                assert db.metrics()["ingest.expired"] == 1
        clock.wall_ms -= later_ms
    assert await states(store) == ["expired"]
    with pytest.raises(slate.ConflictError, match="was expired, and does not begin anew"):
        await open_job(store, dead.job_id)
    await dead.close()


async def test_while_the_lease_may_last_by_any_clock_it_is_applied(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    dead = await die_committed(store)
    clock = ManualClock()
    clock.wall_ms += LEASE_MS + SKEW_MS - 1
    async with open_db(store, clock=clock) as db:
        await until(lambda: db.status().last_seq == 1, "the ingest")
        assert await db.get(b"a") == b"lost"
    await dead.close()


async def test_a_live_writer_that_had_no_room_refuses_it_too(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, room = ManualClock(), asyncio.Event()
    async with open_db(store, clock=clock) as db:
        monkeypatch.setattr(db._writer.ingests._pressure, "room", room.wait)
        dead = await die_committed(store)
        await db.confirm()
        clock.wall_ms += LEASE_MS + SKEW_MS
        room.set()
        await until(lambda: db.status().pending_ingests == 0, "its end")
        assert await db.get(b"a") is None
    await dead.close()


async def test_what_its_caller_named_stays_pending(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, "named", mode="ingest") as job, open_unnamed(store, mode="ingest") as unwaited:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.IngestPendingError):
            await job.commit(timeout=0.05)
        await unwaited.write([table({"b": "2"})])
        assert (await unwaited.commit(wait=False)).state == "pending"
    clock = ManualClock()
    clock.wall_ms += 10**9
    async with open_db(store, clock=clock) as db:
        await until(lambda: db.status().pending_ingests == 0, "the ingests")
        assert [row async for row in db.scan()] == [(b"a", b"1"), (b"b", b"2")]


async def test_a_commit_that_no_writer_applies_is_aborted_before_it_fails(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_unnamed(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.UnavailableError, match="was aborted, and none of its rows is there") as error:
            await job.commit(timeout=0.05)
        assert not isinstance(error.value, slate.IngestPendingError)
        assert error.value.outcome == "not_applied"
    assert await states(store) == ["aborted"]
    async with open_db(store) as db:
        assert await db.get(b"a") is None


async def test_a_commit_that_fails_otherwise_is_aborted_too(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_db(store), open_unnamed(store) as job:
        await job.write([table({"a": "1"})])

        async def failing(*_: Any, **__: Any) -> Any:
            raise slate.UnavailableError("no answer", outcome="unknown")

        monkeypatch.setattr(manage, "until_applied", failing)
        with pytest.raises(slate.UnavailableError, match=r"no answer; ingest .* was aborted") as error:
            await job.commit(mode="ingest")
        assert error.value.outcome == "not_applied"
    assert await states(store) == ["aborted"]


async def test_a_cancelled_commit_is_aborted(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_unnamed(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        committing = asyncio.ensure_future(job.commit())
        await until_pending(job)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
    assert await states(store) == ["aborted"]


async def test_an_abort_of_unknown_outcome_is_said_with_what_ends_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the lease ends it in any case."""
    await (await open_db(store)).close()
    async with open_unnamed(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        commit = job._driver.commit

        async def cut_off(edit: Any) -> Any:
            if isinstance(edit, AbortIngest):
                raise slate.UnavailableError("no answer", outcome="unknown")
            return await commit(edit)

        monkeypatch.setattr(job._driver, "commit", cut_off)
        said = f"slate --path {NAME} abort-ingest {job.job_id}"
        with pytest.raises(slate.IngestPendingError, match=said) as error:
            await job.commit(timeout=0.05)
        assert (error.value.outcome, error.value.info.job_id) == ("unknown", job.job_id)
    clock = ManualClock()
    clock.wall_ms += LEASE_MS + SKEW_MS
    async with open_db(store, clock=clock) as db:
        assert await db.get(b"a") is None


async def test_what_came_in_at_the_last_moment_is_no_failure(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_db(store) as db, open_unnamed(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        wait, waits = manage.until_applied, [1]

        async def late(*how: Any, **more: Any) -> Any:
            if waits:
                waits.pop()
                await db.confirm()
                await wait(*how, **more)
                raise manage.still_pending(await job.info(), 0.05)
            return await wait(*how, **more)

        monkeypatch.setattr(manage, "until_applied", late)
        assert (await job.commit()).state == "applied"
        assert await db.get(b"a") == b"1"


async def test_a_driver_that_lives_renews_its_lease(store: MemoryStore) -> None:
    """For as long as it waits for the writer, whose clock goes on."""
    await (await open_db(store)).close()
    clock = ManualClock()
    async with open_unnamed(store, mode="ingest", run=runtime(clock), settings={"ingest_lease_ms": 30}) as job:
        await job.write([table({"a": "1"})])
        committing = asyncio.ensure_future(job.commit())
        await until_pending(job)
        clock.wall_ms += 10**6
        await until_pending(job, lease_from_ms=clock.wall_ms)
        async with open_db(store, clock=clock) as db:
            assert (await committing).state == "applied"
            assert await db.get(b"a") == b"1"


async def test_a_driver_that_stood_still_for_too_long_learns_that_its_job_has_expired(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_unnamed(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        committing = asyncio.ensure_future(job.commit())
        await until_pending(job)
        clock = ManualClock()
        clock.wall_ms += LEASE_MS + SKEW_MS
        async with open_db(store, clock=clock) as db:
            with pytest.raises(slate.ConflictError, match="is expired, not committed: nobody renewed it"):
                await committing
            assert await db.get(b"a") is None


async def test_a_renewal_that_comes_after_the_end_renews_nothing(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    dead = await die_committed(store)
    assert dead._job.spec is not None
    clock = ManualClock()
    clock.wall_ms += LEASE_MS + SKEW_MS
    async with open_db(store, clock=clock) as db:
        await until(lambda: db.status().pending_ingests == 0, "its end")
        with pytest.raises(slate.ConflictError, match="expired"):
            await commit_elsewhere(store, RenewLease(dead.job_id, dead._job.spec.base_version, 10**15))
    await dead.close()


async def test_gc_takes_what_an_expired_job_left(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    dead = await die_committed(store)
    [sst] = dead._job.written
    clock = ManualClock()
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0)

    async def collect() -> list[str]:
        keys: list[str] = []
        async with on(runtime(clock)).open_gc(store, name=NAME, settings=settings, periodic=False) as gc:
            for _ in range(4):
                keys += [garbage.key for garbage in (await gc.collect()).objects]
                clock.wall_ms += 1
        return keys

    clock.wall_ms += LEASE_MS + SKEW_MS - 10
    assert sst.location not in await collect()
    clock.wall_ms += SKEW_MS
    assert sst.location in await collect()
    assert await states(store) == ["expired"]
    await dead.close()


async def test_an_exclusive_replacement_ends_what_nobody_renews_and_applies_what_is_named(store: MemoryStore) -> None:
    """In seconds, and without another writer."""
    async with open_db(store) as db:
        await db.put(b"a", b"before")
    dead = await die_committed(store)
    async with open_job(store, "named", mode="ingest") as named:
        await named.write([table({"n": "1"})])
        await named.commit(wait=False)
    clock = ManualClock()
    clock.wall_ms += LEASE_MS + SKEW_MS
    async with open_unnamed(store, mode="exclusive", replace=True, run=runtime(clock)) as job:
        assert [info.state for info in await all_jobs(store)][1:] == ["applied", "expired"]
        await job.write([table({"z": "new"})])
        assert (await job.commit()).state == "applied"
    async with open_db(store) as db:
        assert [row async for row in db.scan()] == [(b"z", b"new")]
    await dead.close()


async def all_jobs(store: MemoryStore) -> list[slate.IngestInfo]:
    async with open_admin(store) as admin:
        return list(await admin.ingests.list())


async def test_a_pending_lease_is_shown(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    dead = await die_committed(store)
    [info] = await all_jobs(store)
    assert info.state == "pending"
    assert info.expire_ms == ManualClock().now_ms() + LEASE_MS
    head = await dead._driver.existing()
    job = find_ingest(head, dead.job_id)
    assert job is not None
    assert job.leased
    await dead.close()
