"""Jobs and their tasks beside a live writer, on the four kinds of database."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.manifest.edits.apply_ingests import ShowIngests
from slate_async.storage.manifest.edits.ingests import CommitIngest
from slate_async.storage.manifest.state import ManifestState
from tests.engine import (
    CONTIGUOUS,
    KINDS,
    ManualClock,
    commit_elsewhere,
    memory_store,
    on,
    open_db,
    runtime,
    until,
)

NAME = "memory://test"


def table(rows: dict[str, str]) -> pa.Table:
    return pa.table({"key": list(rows), "value": list(rows.values())})


def open_job(store: ObjectStore, job_id: str | None = "job", **more: Any) -> Any:
    settings = slate.Settings(manifest_poll_interval_ms=10, **more.pop("settings", {}))
    return on(more.pop("run", None) or runtime()).open_ingest(
        store, job_id=job_id, name=NAME, settings=settings, **more
    )


def open_admin(store: ObjectStore) -> Any:
    return on(runtime()).open_admin(store, name=NAME)


async def ingested(store: ObjectStore, db: slate.Db, rows: dict[str, str], **more: Any) -> slate.IngestInfo:
    """``rows`` in the database, through its writer."""
    async with open_job(store, **more) as job:
        await job.write([table(rows)])
        await job.commit(wait=False)
        await db.confirm()
        info: slate.IngestInfo = await job.wait()
        return info


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_rows_take_their_place_among_the_writes(store: MemoryStore, kind: Any) -> None:
    async with open_db(store, kind) as db:
        await db.put(b"a", b"before")
        await db.put(b"b", b"before", await_durable=False)
        async with db.snapshot() as before:
            info = await ingested(store, db, {"a": "ingested", "c": "ingested"}, settings={"sst_bytes": 1})
            handle = await db.put(b"c", b"after")
            assert (info.state, info.rows, info.seq, handle.seq) == ("applied", 2, 3, 4)
            assert [row async for row in db.scan()] == [(b"a", b"ingested"), (b"b", b"before"), (b"c", b"after")]
            assert [row async for row in before.scan()] == [(b"a", b"before"), (b"b", b"before")]
            row = await db.get_row(b"a")
            assert row is not None
            assert row.seq == 3
    async with open_db(store, kind) as db:
        assert db.status().last_seq == 4
        assert await db.get(b"a") == b"ingested"
    async with open_admin(store) as admin:
        assert (await admin.verify()).findings == ()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_reader_follows_and_looks_back(store: MemoryStore, kind: Any) -> None:
    async with (
        open_db(store, kind) as db,
        on(runtime()).open_reader(store, name=NAME, settings=kind.settings()) as reader,
    ):
        await db.put(b"a", b"before")
        await reader.refresh()
        info = await ingested(store, db, {"a": "ingested"})
        await db.put(b"a", b"after")
        await reader.refresh()
        assert await reader.get(b"a") == b"after"
        async with reader.as_of(seq=info.seq) as then, reader.as_of(seq=info.seq - 1) as earlier:
            assert (await then.get(b"a"), await earlier.get(b"a")) == (b"ingested", b"before")


async def test_writes_wait_while_it_is_applied_and_come_after_it(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"1")
        with db._sequencer.paused():
            waiting = asyncio.ensure_future(db.put(b"a", b"2", await_durable=False))
            cancelled = asyncio.ensure_future(db.put(b"a", b"never", await_durable=False))
            await asyncio.sleep(0)
            assert await db.get(b"a") == b"1"
            cancelled.cancel()
            await asyncio.sleep(0)
        assert (await waiting).seq == 2
        assert await db.get(b"a") == b"2"
    assert cancelled.cancelled()


async def test_writes_that_wait_fail_when_the_writer_ends(store: MemoryStore) -> None:
    db = await open_db(store)
    with db._sequencer.paused():
        waiting = asyncio.ensure_future(db.put(b"a", b"1"))
        await asyncio.sleep(0)
        db._fail(slate.FencedError("another one"))
        with pytest.raises(slate.FencedError) as error:
            await waiting
        assert error.value.outcome == "not_applied"
    await db.close()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_driver_learns_only_what_the_writers_own_reads_show(
    store: MemoryStore, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest has the edit before the writer hears of it: a read that is confirmed then must not be too old."""
    async with open_db(store, kind) as db, open_job(store) as job:
        await job.write([table({"a": "1"})])
        await job.commit(wait=False)
        pin, heard = db._writer.pins.pin, asyncio.Event()

        async def late(state: ManifestState) -> ManifestState:
            if state.ingest_seq:
                await heard.wait()
            return await pin(state)

        monkeypatch.setattr(db._writer.pins, "pin", late)
        await db.confirm()
        await until(lambda: db._opened.driver.head is not None and db._opened.driver.head.ingest_seq > 0, "the edit")
        assert await db.get(b"a") is None
        assert (await job.info()).state == "pending"
        heard.set()
        await job.wait()
        assert await db.get(b"a") == b"1"


async def test_telling_is_tried_again(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_db(store) as db, open_job(store) as job:
        commit, failures = db._opened.driver.commit, [slate.UnavailableError("no answer")]

        async def failing(edit: Any) -> Any:
            if isinstance(edit, ShowIngests) and failures:
                raise failures.pop()
            return await commit(edit)

        monkeypatch.setattr(db._opened.driver, "commit", failing)
        monkeypatch.setattr("slate_async.engine.write.ingest_applier.REPORT_AGAIN_S", 0.001)
        await job.write([table({"a": "1"})])
        await job.commit(wait=False)
        await db.confirm()
        assert (await job.wait()).state == "applied"
        assert not failures


async def test_tasks_elsewhere_know_no_more_than_json(store: MemoryStore) -> None:
    async with open_db(store) as db, open_job(store) as job:
        told: list[str] = []
        for rows in ({"a": "1", "b": "2"}, {}, {"x": "3"}):
            async with on(runtime()).open_ingest_task(store, job.spec.to_json(), name=NAME) as task:
                told += [sst.to_json() for sst in await task.write([table(rows)] if rows else [])]
        ssts = [IngestedSst.from_json(result) for result in told]
        assert len(ssts) == 2  # no rows, no SST
        assert pickle.loads(pickle.dumps(job.spec)) == job.spec == IngestSpec.from_json(job.spec.to_json())
        await job.commit([*ssts, ssts[0]], wait=False)  # a message may come twice
        await db.confirm()
        assert (await job.wait()).rows == 3


async def test_what_tasks_wrote_somewhere_else_is_not_committed(store: MemoryStore) -> None:
    elsewhere = memory_store()
    await (await open_db(store)).close()
    async with open_job(store) as job, open_job(store) as another:
        async with on(runtime()).open_ingest_task(elsewhere, job.spec, name=NAME) as task:
            told = await task.write([table({"a": "1"})])
        with pytest.raises(slate.InvalidError, match=r"is not there: .* the same place"):
            await job.commit(told, wait=False)
        assert (await job.info()).state == "registered"
        await another.write([table({"b": "2"})])
        await another.commit(wait=False)
        assert (await job.commit(told, wait=False)).rows == 1  # the first answer stands, whatever became of these


async def test_without_a_writer_it_waits_and_says_what_to_do(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, mode="ingest") as job:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.IngestPendingError, match="mode='exclusive'") as late:
            await job.commit(timeout=0.05)
        assert (late.value.info.state, late.value.outcome) == ("pending", "unknown")
        assert (await job.commit(mode="exclusive")).state == "applied"
    async with open_db(store) as db:
        assert await db.get(b"a") == b"1"


async def test_exclusive_fences_the_live_writer(store: MemoryStore) -> None:
    db = await open_db(store)
    async with open_job(store) as job:
        await job.write([table({"a": "1"})])
        assert (await job.commit(mode="exclusive")).done
    with pytest.raises(slate.FencedError):
        await db.put(b"a", b"2")
    await db.close()


async def test_drivers_that_fence_one_another_all_get_their_answer(store: MemoryStore) -> None:
    """A writer that takes over applies jobs committed under the one before."""
    await (await open_db(store)).close()

    async def load(number: int) -> str:
        async with open_job(store, f"job {number}") as job:
            await job.write([table({f"{number}": "x"})])
            return str((await job.commit(mode="exclusive")).state)

    assert await asyncio.gather(*map(load, range(5))) == ["applied"] * 5
    async with open_db(store) as db:
        assert [key async for key, _ in db.scan()] == [b"0", b"1", b"2", b"3", b"4"]


async def test_exclusive_loads_make_room_where_nobody_compacts(store: MemoryStore) -> None:
    settings = {"l0_max_ssts": 4, "l0_compact_ssts": 2}
    for number in range(10):
        async with open_job(store, f"job {number}", create=True, settings=settings) as job:
            await job.write([table({f"{number}": "x"})])
            assert (await job.commit(mode="exclusive", timeout=20)).state == "applied"
    async with open_db(store) as db:
        assert db._writer.state.l0_count < 4
        assert len([row async for row in db.scan()]) == 10


async def test_a_writer_that_opens_the_database_applies_what_waits(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store) as job:
        await job.write([table({"a": "1"})])
        assert (await job.commit(wait=False)).state == "pending"
        async with open_db(store) as db:
            await job.wait()
            assert await db.get(b"a") == b"1"
            assert db.status().pending_ingests == 0
            assert db.metrics()["ingest.applied"] == 1


async def test_what_is_known_of_a_pending_job_is_known_of_the_applied_one(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    rows = pa.table({"key": ["a", "b", "c"], "value": ["1", None, "3"], "op": ["put", "delete", "put"]})
    async with open_job(store, settings={"sst_bytes": 1}) as job:
        await job.write([rows])
        pending = await job.commit(wait=False)
        applied = await job.commit(mode="exclusive")
    assert (pending.rows, pending.deletes, pending.ssts) == (2, 1, 3)
    assert pending.size > 0
    known = ("rows", "deletes", "ssts", "size")
    assert [getattr(applied, name) for name in known] == [getattr(pending, name) for name in known]


async def test_a_job_is_one_job_whichever_driver_opens_it(store: MemoryStore) -> None:
    async with open_db(store) as db:
        async with open_job(store) as first, open_job(store) as second:
            assert first.spec == second.spec
            await first.write([table({"a": "first"})])
            await second.write([table({"a": "second"})])
            await first.commit(wait=False)
            await db.confirm()
            assert await second.commit() == await first.commit()
        async with open_job(store) as later:
            assert (await later.commit()).state == "applied"
            with pytest.raises(slate.InvalidError, match="another id"):
                await later.write([table({"a": "third"})])
        assert await db.get(b"a") == b"first"


async def test_a_lost_answer_to_the_commit_is_no_second_commit(store: MemoryStore) -> None:
    """A driver that asks again after a crash, with SSTs of its own, gets what the first call did."""
    async with open_db(store) as db, open_job(store) as job:
        [sst] = await job.write([table({"a": "1"})])
        await job.commit(wait=False)
        again = CommitIngest(db._writer.state.manifest.database_id, "job", job.spec.base_version, (), 5)
        await commit_elsewhere(store, again)
        await db.confirm()
        assert (await job.wait()).rows == sst.rows


async def test_an_aborted_job_never_shows(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store) as job:
        await job.write([table({"a": "1"})])
        await job.commit(wait=False)
        assert (await job.abort()).state == "aborted"
        with pytest.raises(slate.ConflictError, match="aborted"):
            await job.commit()
    async with open_db(store) as db, open_admin(store) as admin:
        assert await db.get(b"a") is None
        assert [(job.job_id, job.state) for job in await admin.ingests.list()] == [("job", "aborted")]
        assert [listed.named for listed in await admin.ingests.objects("job")] == [False]


async def test_giving_up_spares_what_is_committed(store: MemoryStore) -> None:
    """A second driver of the same job fails, and knows nothing of the first one's commit."""
    await (await open_db(store)).close()
    async with open_job(store) as job, open_job(store) as failed, open_admin(store) as admin:
        await job.write([table({"a": "1"})])
        assert (await job.commit(wait=False)).state == "pending"
        assert (await failed.abort(unless_committed=True)).state == "pending"
        assert (await admin.ingests.abort("job", unless_committed=True)).state == "pending"
        assert (await job.commit(mode="exclusive")).state == "applied"
    async with open_job(store, "other") as job:
        assert (await job.abort(unless_committed=True)).state == "aborted"


async def test_giving_up_late_leaves_a_job_begun_anew_alone(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store) as sleeper, open_admin(store) as admin:
        await admin.ingests.abort("job")
        async with open_job(store) as anew:
            await anew.write([table({"a": "1"})])
            assert (await sleeper.abort(unless_committed=True)).state == "registered"
            assert (await anew.commit(mode="exclusive")).state == "applied"


async def test_the_administration_aborts_what_nobody_goes_on_with(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    await (await open_job(store)).close()
    async with open_admin(store) as admin:
        assert [job.state for job in await admin.ingests.list()] == ["registered"]
        assert (await admin.ingests.abort("job")).state == "aborted"
        with pytest.raises(slate.InvalidError, match="no ingest"):
            await admin.ingests.abort("another")


async def test_gc_spares_a_job_while_it_lives_and_then_takes_what_it_left(store: MemoryStore) -> None:
    clock = ManualClock()
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)

    async def collect() -> list[str]:
        async with on(runtime(clock)).open_gc(store, name=NAME, settings=settings, periodic=False) as collector:
            keys: list[str] = []
            for _ in range(3):
                keys += [
                    garbage.key for garbage in (await collector.collect()).objects if garbage.key.startswith("sst/")
                ]
            return keys

    async with open_db(store, clock=clock) as db, open_job(store, lifetime=60, run=runtime(clock)) as job:
        failed = await job.write([table({"a": "an attempt that failed"})])
        [sst] = await job.write([table({"a": "1"})])
        job._job.written.remove(failed[0])
        for number in range(3):
            await db.put(b"%d" % number, b"")
            await db.flush(l0=True)
        assert await collect() == []
        await job.commit(wait=False)
        await db.confirm()
        await job.wait()
        await db.put(b"z", b"")
        await db.flush(l0=True)
        taken = await collect()
        assert failed[0].location in taken
        assert sst.location not in taken
        assert await db.get(b"a") == b"1"
    late = await open_job(store, "late", lifetime=60, run=runtime(clock))
    await late.write([table({"a": "2"})])
    clock.wall_ms += 61_000
    await collect()
    with pytest.raises(slate.ConflictError, match="expired"):
        await late.commit()
    await late.close()


async def test_an_open_job_is_renewed(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, lifetime=0.05) as job, open_admin(store) as admin:
        [begun] = await admin.ingests.list()
        [now] = [begun]
        while now.expire_ms == begun.expire_ms:
            job._job._clock.wall_ms += 10
            await asyncio.sleep(0.01)
            [now] = await admin.ingests.list()


@pytest.mark.parametrize(
    "call",
    [
        lambda: slate.open_ingest("memory://x", job_id=""),
        lambda: slate.open_ingest("memory://x", job_id="a\nb"),
        lambda: slate.open_ingest_task("memory://x", "{}"),
        lambda: slate.open_ingest_task("memory://x", "no json"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(call: Any) -> None:
    with pytest.raises(slate.InvalidError):
        call()


@pytest.mark.parametrize("batch", [("app",), ("", 1), ("app", -1), ("app", True), "app", ("app", 1, ""), ("app", 1, 2)])
async def test_a_batch_is_an_app_and_a_number(store: MemoryStore, batch: Any) -> None:
    await (await open_db(store, CONTIGUOUS)).close()
    async with open_job(store) as job:
        with pytest.raises(slate.InvalidError):
            await job.commit(batch=batch)


async def test_there_must_be_a_database(store: MemoryStore) -> None:
    with pytest.raises(slate.InvalidError, match="no database"):
        await open_job(store)
    assert [info async for info in store.list("")] == []


async def test_many_ssts_of_one_ingest_count_as_one_in_l0(store: MemoryStore) -> None:
    async with open_db(store, l0_max_ssts=8, l0_compact_ssts=2) as db:
        rows = {f"{number:03}": "x" for number in range(40)}
        await ingested(store, db, rows, settings={"sst_bytes": 1})
        assert len(db._writer.state.manifest.l0) == 40
        assert db._writer.state.l0_count == 1
        await db.put(b"020", b"y")
        await asyncio.wait_for(db.flush(l0=True), 20)
        assert [row async for row in db.scan(b"019", b"022")] == [(b"019", b"x"), (b"020", b"y"), (b"021", b"x")]


async def test_a_large_ingest_becomes_a_run_as_it_is(store: MemoryStore) -> None:
    async with open_db(store, auto_compaction=True, sst_bytes=1, l0_compact_ssts=4) as db:
        await ingested(store, db, {"a": "1", "b": "2"}, settings={"sst_bytes": 1})
        await until(lambda: len(db._writer.state.manifest.runs) == 1, "the move")
        [run] = db._writer.state.manifest.runs
        assert [sst.global_seq for sst in run.ssts] == [1, 1]
        assert await db.get(b"b") == b"2"


@pytest.mark.parametrize("given", [lambda rows: table(rows), lambda rows: table(rows).to_batches()[0]])
async def test_one_table_or_batch_is_taken_as_it_is(store: MemoryStore, given: Any) -> None:
    async with open_job(store, create=True) as job:
        await job.write(given({"a": "1", "b": "2"}))
        await job.commit()
    async with open_db(store) as db:
        assert [row async for row in db.scan()] == [(b"a", b"1"), (b"b", b"2")]


async def test_a_writer_polls_more_often_for_a_while_after_an_ingest(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_db(store, manifest_poll_interval_ms=80) as db:
        poll = db._head.poll
        assert poll is not None
        assert poll.interval_s == 0.08
        await ingested(store, db, {"a": "1"})
        await until(lambda: poll.interval_s == 0.01, "polls that are more frequent")
        monkeypatch.setattr("slate_async.engine.write.ingest_applier.EXPECTED_S", 0.0)
        await until(lambda: poll.interval_s == 0.08, "the usual polls")
