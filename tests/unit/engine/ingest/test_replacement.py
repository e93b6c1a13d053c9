"""Ingests that replace what was there: which keys they delete, beside a writer and as the only one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.codec.columns import Columns
from slate_async.engine.ingest.replacement import gaps, over_deletes
from slate_async.engine.ingest.spec import IngestedSst
from slate_async.objectstore.memory import MemoryStore
from slate_async.types import DELETE, PUT
from tests.engine import KINDS, ManualClock, memory_store, on, open_db, runtime, settle

NAME = "memory://test"


def table(rows: dict[str, str]) -> pa.Table:
    return pa.table({"key": list(rows), "value": list(rows.values())})


def open_job(store: MemoryStore, job_id: str = "job", **more: Any) -> Any:
    settings = slate.Settings(manifest_poll_interval_ms=10, **more.pop("settings", {}))
    more = {"replace": True, **more}
    return on(more.pop("run", None) or runtime()).open_ingest(
        store, job_id=job_id, name=NAME, settings=settings, **more
    )


def open_admin(store: MemoryStore, **more: Any) -> Any:
    return on(more.pop("run", None) or runtime()).open_admin(store, name=NAME)


async def contents(readable: Any) -> dict[str, str]:
    return {key.decode(): value.decode() async for key, value in readable.scan()}


async def applied(job: Any, db: slate.Db, *ssts: Any) -> slate.IngestInfo:
    await job.commit(*ssts, wait=False)
    await db.confirm()
    info: slate.IngestInfo = await job.wait()
    return info


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_its_rows_are_all_that_is_left(store: MemoryStore, kind: Any) -> None:
    async with open_db(store, kind) as db:
        for key in "abcdefgh":
            await db.put(key.encode(), b"old")
        await db.flush()
        await db.delete(b"h")
        await db.put(b"i", b"in the log")
        async with db.snapshot() as before, open_job(store) as job:
            await job.write([table({"b": "new", "c": "new"})])
            await job.write([table({"e": "new", "g": "new", "gg": "new"})])
            info = await applied(job, db)
            assert await contents(db) == dict.fromkeys(["b", "c", "e", "g", "gg"], "new")
            assert len(await contents(before)) == 8
        await db.put(b"f", b"later")
        rows = {key: await db.get_row(key.encode()) for key in "bg"}
        assert [row is not None and row.seq == info.seq for row in rows.values()] == [True, True]
    async with (
        open_db(store, kind) as db,
        on(runtime()).open_reader(store, name=NAME, settings=kind.settings()) as reader,
    ):
        assert len(await contents(db)) == 6
        async with reader.as_of(seq=info.seq - 1) as earlier, reader.as_of(seq=info.seq) as then:
            assert (len(await contents(earlier)), len(await contents(then))) == (8, 5)
        await db.compact(full=True)
        assert len(await contents(db)) == 6
    async with open_admin(store) as admin:
        assert (await admin.verify()).findings == ()
        assert [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "ingest"] == []


async def test_what_is_first_put_meanwhile_stays_and_what_was_there_goes(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
        await db.put(b"b", b"old")
        async with open_job(store, "late") as job:
            await db.put(b"a", b"again")
            await db.put(b"c", b"new here")
            await job.write([table({"x": "1"})])
            await applied(job, db)
            assert await contents(db) == {"c": "new here", "x": "1"}


async def test_of_two_at_once_the_first_wins(store: MemoryStore) -> None:
    """Neither knows what the other brings, and both together are what nobody asked for."""
    async with open_db(store) as db, open_job(store, "first") as first, open_job(store, "second") as second:
        await second.write([table({"b": "2"})])
        await first.write([table({"a": "1"})])
        await applied(first, db)
        for attempt in (second.write([table({"c": "2"})]), second.commit()):
            with pytest.raises(slate.ConflictError, match="'second' was aborted; begin again"):
                await attempt
        assert await contents(db) == {"a": "1"}
        async with open_job(store, "second") as again:
            await again.write([table({"b": "2"})])
            await applied(again, db)
        assert await contents(db) == {"b": "2"}


async def test_what_waits_to_be_applied_is_replaced_too(store: MemoryStore) -> None:
    for number, replace in enumerate((False, True)):
        async with open_job(store, f"waits {number}", replace=replace, create=True) as waits:
            await waits.write([table({f"a{number}": "old"})])
            await waits.commit(wait=False)
        beginning = asyncio.ensure_future(open_job(store, f"job {number}", mode="ingest").__aenter__())
        await settle(1000)
        assert not beginning.done()
        async with open_db(store) as db:
            async with await beginning as job:
                await job.write([table({"b": "new"})])
                await applied(job, db)
            assert await contents(db) == {"b": "new"}


async def test_what_nobody_applies_cannot_be_replaced(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.engine.ingest.open.WAIT_S", 0.05)
    async with open_job(store, "waits", replace=False, create=True) as waits:
        await waits.write([table({"a": "old"})])
        await waits.commit(wait=False)
    with pytest.raises(slate.IngestPendingError, match="'waits' is committed, and no writer has applied it"):
        await open_job(store, mode="ingest")


@pytest.mark.parametrize("mode", ["auto", "exclusive"])
async def test_who_replaces_without_a_writer_applies_what_waits_in_order(store: MemoryStore, mode: str) -> None:
    """At once: nobody else would."""
    await (await open_db(store)).close()
    for number in range(2):
        async with open_job(store, f"job {number}", replace=False, mode="ingest") as waits:
            await waits.write([table({"a": f"{number}", f"only {number}": "x"})])
            await waits.commit(wait=False)
    async with open_job(store, mode=mode) as job:
        async with on(runtime()).open_reader(store, name=NAME) as reader:
            rows = [row async for row in reader.scan()]
        assert rows == [(b"a", b"1"), (b"only 0", b"x"), (b"only 1", b"x")]
        await job.write([table({"b": "new"})])
        assert (await job.commit()).state == "applied"
    async with open_db(store) as db:
        assert await contents(db) == {"b": "new"}


async def test_what_waits_comes_before_the_first_row_of_the_next_writer(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as job:
        await job.write([table({"b": "new"})])
        await job.commit(wait=False)
    async with open_db(store) as db:
        handle = await db.put(b"c", b"after", await_durable=False)
        assert handle.seq == 3  # 2 is that of what waited
        assert await contents(db) == {"b": "new", "c": "after"}


async def test_rows_that_have_expired_by_one_clock_are_deleted_for_all(store: MemoryStore) -> None:
    """A task whose clock is ahead may not see them; a reader whose clock is behind may."""
    clock, ahead = ManualClock(), ManualClock()
    ahead.wall_ms = clock.wall_ms + 60_000
    async with open_db(store, clock=clock) as db:
        for key in (b"a", b"c", b"e"):
            await db.put(key, b"old", ttl=30)
        async with open_job(store, run=runtime(ahead)) as job:
            await job.write([table({"b": "new", "d": "new"})])
            await applied(job, db)
        assert await contents(db) == {"b": "new", "d": "new"}


async def test_no_rows_leave_nothing(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
        async with open_job(store) as job:
            assert (await applied(job, db)).deletes == 1
        assert await contents(db) == {}
        async with open_job(store, "again") as job:
            info = await job.commit()
            assert (info.state, info.rows, info.seq) == ("applied", 0, 0)


async def test_the_change_feed_gives_every_delete_under_its_number(store: MemoryStore) -> None:
    async with open_db(store) as db:
        for key in "abcd":
            await db.put(key.encode(), b"old")
        async with open_job(store) as job:
            await job.write([table({"b": "new", "bb": "new"})])
            info = await applied(job, db)
        seen = []
        async for change in db.changes(from_seq=4):
            seen.append((change.key, change.op, change.seq))
            if len(seen) == 5:
                break
    ops = [(b"a", "delete"), (b"b", "put"), (b"bb", "put"), (b"c", "delete"), (b"d", "delete")]
    assert seen == [(key, op, info.seq) for key, op in ops]


async def test_tasks_elsewhere_answer_for_their_ranges(store: MemoryStore) -> None:
    async with open_db(store) as db:
        for number in range(100):
            await db.put(b"%02d" % number, b"old")
        async with open_job(store, settings={"sst_bytes": 200, "block_bytes": 100}) as job:
            told: list[IngestedSst] = []
            for rows in (range(10, 30, 2), range(60, 80, 3)):
                spec = job.spec.to_json()
                async with on(runtime()).open_ingest_task(store, spec, name=NAME) as task:
                    told += await task.write([table({f"{number:02}": "new" for number in rows})])
            assert len({result.part for result in told}) == 2
            assert len(told) > 4
            info = await applied(job, db, [IngestedSst.from_json(result.to_json()) for result in told])
        assert (info.rows, info.deletes) == (17, 83)
        assert await contents(db) == {f"{number:02}": "new" for number in [*range(10, 30, 2), *range(60, 80, 3)]}


async def test_exclusively_it_replaces_all_or_nothing(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as job:
        await job.write([table({"b": "new"})])
        assert (await job.commit(mode="exclusive")).state == "applied"
        assert (await job.commit(mode="exclusive")).state == "applied"
    async with open_job(store, "second") as job:
        await job.write([table({"c": "new"})])
        async with open_db(store) as db:
            await db.put(b"z", b"meanwhile")
            with pytest.raises(
                slate.ConflictError, match="as of sequence number 2, but the database is at 3 now"
            ) as error:
                await job.commit(mode="exclusive")
            assert error.value.outcome == "not_applied"
        assert (await job.info()).state == "aborted"
    async with open_job(store, "second") as job:  # begins anew
        await job.write([table({"c": "new"})])
        assert (await job.commit(mode="exclusive")).state == "applied"
    async with open_db(store) as db:
        assert await contents(db) == {"c": "new"}


async def test_exclusively_nothing_else_waits_to_come_in(store: MemoryStore) -> None:
    """Not even what another driver commits between this one's look and its commit."""
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as job, open_job(store, "other", replace=False) as other:
        await job.write([table({"b": "new"})])
        await other.write([table({"c": "new"})])
        commit = job._job._commit

        async def late(*how: Any, **more: Any) -> Any:
            await other.commit(wait=False)
            return await commit(*how, **more)

        job._job._commit = late
        with pytest.raises(slate.ConflictError, match="replaces all rows, but another ingest was applied meanwhile"):
            await job.commit(mode="exclusive")
        assert (await job.info()).state == "aborted"


async def test_exclusively_what_the_own_writer_applies_counts_too(store: MemoryStore) -> None:
    """It waited when the writer was opened, and came in after the look at the newest number."""
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as job, open_job(store, "other", replace=False) as other:
        await job.write([table({"b": "new"})])
        await other.write([table({"c": "new"})])
        await other.commit(wait=False)
        commit = job._job._commit

        async def late(*how: Any, **more: Any) -> Any:
            await other.wait()
            return await commit(*how, **more)

        job._job._commit = late
        with pytest.raises(slate.ConflictError, match="replaces all rows"):
            await job.commit(mode="exclusive")
    async with open_db(store) as db:
        assert await contents(db) == {"a": "old", "c": "new"}


async def test_a_driver_that_lost_the_writers_role_replaces_nothing(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as job:
        commit = job._job._commit

        async def late(*how: Any, **more: Any) -> Any:
            async with open_db(store) as db:
                await db.put(b"b", b"another writer's")
            return await commit(*how, **more)

        job._job._commit = late
        with pytest.raises(slate.FencedError):
            await job.commit(mode="exclusive")
    async with open_db(store) as db:
        assert await contents(db) == {"a": "old", "b": "another writer's"}


async def test_a_resumed_job_replaces_the_same(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
        async with open_job(store) as first:
            base = first.spec.replaces
        await db.put(b"b", b"later")
        async with open_job(store) as second:
            assert second.spec.replaces == base
            await second.write([table({"x": "1"})])
            with pytest.raises(slate.InvalidError, match="'job' replaces what was there, and was begun so"):
                await open_job(store, replace=False)
            await applied(second, db)
        assert await contents(db) == {"b": "later", "x": "1"}
        with pytest.raises(slate.InvalidError, match="'job' replaces what was there, and was begun so"):
            await open_job(store, replace=False)
        async with open_job(store) as again:
            assert (await again.commit()).state == "applied"
        async with open_job(store, "other", replace=False):
            with pytest.raises(slate.InvalidError, match="'other' adds rows, and was begun so"):
                await open_job(store, "other")


async def test_two_drivers_of_one_job_get_one_answer(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
        async with open_job(store) as first, open_job(store) as second:
            await first.write([table({"x": "1"})])
            await second.write([table({"x": "2"})])
            info = await applied(first, db)
            assert await second.write([table({"y": "2"})]) == []
            assert await second.commit() == info
            async with on(runtime()).open_ingest_task(store, second.spec, name=NAME) as task:
                with pytest.raises(slate.ConflictError, match="kept no longer: it was committed"):
                    await task.write([table({"y": "2"})])
        assert await contents(db) == {"x": "1"}


async def test_two_exclusive_drivers_of_one_job_get_one_answer(store: MemoryStore) -> None:
    async with open_db(store) as db:
        await db.put(b"a", b"old")
    async with open_job(store) as first, open_job(store) as second:
        await first.write([table({"x": "1"})])
        await second.write([table({"x": "2"})])
        replaced = second._job._replaced

        async def slow(*told: Any) -> Any:
            found = await replaced(*told)
            await first.commit(mode="exclusive")
            return found

        second._job._replaced = slow
        assert (await second.commit(mode="exclusive")).state == "applied"
    async with open_db(store) as db:
        assert await contents(db) == {"x": "1"}


async def test_a_job_that_has_expired_says_so(store: MemoryStore) -> None:
    clock = ManualClock()
    async with open_db(store, clock=clock) as db:
        await db.put(b"a", b"old")
        async with open_job(store, run=runtime(clock), lifetime=10) as job:
            await job.write([table({"x": "1"})])
            clock.wall_ms += 60_000
            with pytest.raises(slate.ConflictError, match="'job' has expired: its driver did not renew it in time"):
                await job.commit()


async def test_its_checkpoint_lives_as_long_as_the_job(store: MemoryStore) -> None:
    clock = ManualClock()
    run = runtime(clock)
    async with open_db(store, clock=clock) as db:
        await db.put(b"a", b"old")
        job = await open_job(store, run=run, lifetime=10)
        async with open_admin(store, run=run) as admin:
            [held] = [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "ingest"]
            assert held.expire_time == pytest.approx(clock.wall_ms / 1000 + 10)
            with pytest.raises(slate.InvalidError, match="an ingest made it for itself"):
                await admin.checkpoints.delete(held.id)
            await job.abort()
            assert [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "ingest"] == []
        await job.close()


async def test_a_cancelled_write_leaves_nothing_open(store: MemoryStore) -> None:
    async with open_db(store) as db, open_job(store, "first") as first:
        await db.put(b"a", b"old")
        began = asyncio.Event()

        async def endless() -> AsyncIterator[pa.Table]:
            number = 0
            while True:
                began.set()
                yield table({f"{number:09}": "new"})
                number += 1
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(first.write(endless()))
        await began.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        job = await open_job(store)
        await job.write([table({"x": "1"})])
        await applied(job, db)
        await job.close()
        assert await contents(db) == {"x": "1"}


# ---- the merge and the gaps


def columns(keys: list[bytes], *, value: bytes = b"new") -> Columns:
    rows = len(keys)
    kinds = np.full(rows, PUT, np.uint8)
    seqs = np.arange(1, rows + 1, dtype=np.uint64)
    return Columns(
        pa.array(keys, pa.binary()), pa.array([value] * rows, pa.binary()), seqs, kinds, None, seqs.view("i8")
    )


@pytest.mark.parametrize("seed", range(20))
async def test_the_merge_against_a_model(seed: int, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one round, and in many; old rows in memory, in SSTs, or in both."""
    monkeypatch.setattr("slate_async.engine.ingest.replacement.ROUND_BYTES", (1, 50, 1_000, 4 << 20)[seed % 4])
    rng = np.random.default_rng(seed)
    universe = [b"%03d" % number for number in range(200)]
    there = sorted(rng.choice(universe, rng.integers(0, 150), replace=False).tolist())
    new = sorted(rng.choice(universe, rng.integers(1, 150), replace=False).tolist())

    async def batches() -> AsyncIterator[Columns]:
        left = new
        while left:
            size = int(rng.integers(1, 40))
            yield columns(left[:size])
            left = left[size:]

    async with open_db(store) as db:
        for number, key in enumerate(there):
            await db.put(key, b"old", await_durable=False)
            if number == len(there) * (seed % 3) // 2:
                await db.flush(l0=True)
        found = [part async for part in over_deletes(batches(), db.snapshot, 7, runtime())]
    keys = [key for part in found for key in part.keys.to_pylist()]
    deleted = {
        key for part in found for key, kind in zip(part.keys.to_pylist(), part.kinds, strict=True) if kind == DELETE
    }
    removed = {key for key in there if new[0] <= key <= new[-1]} - set(new)
    assert keys == sorted({*new, *removed})
    assert deleted == removed


async def test_rows_too_large_to_be_joined_hide_the_old_ones(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slate_async.engine.compaction.rounds.MAX_JOINED_BYTES", 1)

    async def batches() -> AsyncIterator[Columns]:
        yield columns([b"a", b"b", b"d"], value=b"large")

    async with open_db(store) as db:
        for key in (b"b", b"c", b"d", b"e"):
            await db.put(key, b"old")
        found = [part async for part in over_deletes(batches(), db.snapshot, 7, runtime())]
    rows = [(key, kind) for part in found for key, kind in zip(part.keys.to_pylist(), part.kinds, strict=True)]
    assert rows == [(b"a", PUT), (b"b", PUT), (b"c", DELETE), (b"d", PUT)]


def sst(part: str, first: bytes, last: bytes) -> IngestedSst:
    return IngestedSst("there", b"0" * 16, 1, 1, 0, first, last, 1, 1, 1, part=part)


def test_gaps_lie_between_parts_not_between_their_ssts() -> None:
    assert gaps([]) == [(None, None)]
    ssts = [sst("two", b"m", b"n"), sst("one", b"a", b"b"), sst("one", b"d", b"e")]
    assert gaps(ssts) == [(None, b"a"), (b"e", b"m"), (b"n", None)]
    nested = [sst("outer", b"a", b"z"), sst("inner", b"c", b"d")]
    assert gaps(nested) == [(None, b"a"), (b"z", None)]
