"""Jobs that make their database: nobody else is there to apply them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.liveness import observer
from tests.engine import KINDS, abandon, memory_store, on, open_db, runtime
from tests.unit.database.test_ingest import NAME, open_job, table


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_database_is_made_and_a_waiting_load_is_its_first_writer(store: MemoryStore, kind: Any) -> None:
    fixed = {"log_protocol": kind.log_protocol, "wal_enabled": kind.wal_enabled}
    async with open_job(store, create=True, settings=fixed) as job:
        await job.write([table({"a": "1", "b": "2"})])
        assert (await job.commit(wait=False)).state == "pending"
        async with on(runtime()).open_reader(store, name=NAME) as reader:
            assert [row async for row in reader.scan()] == []
        info = await job.commit()
        assert (info.state, info.seq) == ("applied", 1)
    async with open_db(store, kind) as db:
        assert db.status().epoch == 2
        assert [row async for row in db.scan()] == [(b"a", b"1"), (b"b", b"2")]


async def test_loads_that_begin_at_once_make_a_database_and_all_come_in(store: MemoryStore) -> None:
    """One after another, whichever became the writer first; no other writer is there to apply them."""
    async with AsyncExitStack() as stack:
        jobs = [await stack.enter_async_context(open_job(store, f"job {n}", create=True)) for n in range(4)]
        for number, job in enumerate(jobs):
            await job.write([table({f"{number}": "x"})])
        last = await jobs[3].commit(timeout=5)
        infos = await asyncio.gather(*(job.commit(timeout=5) for job in jobs[:3]))
    assert [info.state for info in (*infos, last)] == ["applied"] * 4
    assert {info.seq for info in (*infos, last)} == {1, 2, 3, 4}
    async with open_db(store) as db:
        assert [key for key, _ in [row async for row in db.scan()]] == [b"0", b"1", b"2", b"3"]


async def test_a_writer_that_died_first_is_not_fenced_either(store: MemoryStore) -> None:
    """It may be alive, for all that the manifest says."""
    async with open_job(store, create=True) as job:
        await abandon(await open_db(store))
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.IngestPendingError):
            await job.commit(timeout=0.05)
        assert (await job.commit(mode="exclusive")).state == "applied"


async def test_a_writer_that_came_first_is_not_fenced(store: MemoryStore) -> None:
    async with open_job(store, create=True) as job, open_db(store) as db:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.IngestPendingError):
            await job.commit(timeout=0.05)  # this writer looks once a minute
        await db.put(b"b", b"2")
        await db.confirm()
        assert (await job.wait()).state == "applied"


async def test_a_writer_that_opens_at_the_same_time_is_not_fenced(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether there is a writer, and becoming it."""
    async with open_job(store, create=True) as job:
        await job.write([table({"a": "1"})])

        monkeypatch.setattr(observer, "has_writer", lambda state: False)
        async with open_db(store) as db:
            with pytest.raises(slate.IngestPendingError):
                await job.commit(timeout=0.05)
            await db.put(b"b", b"2")
            await db.confirm()
            assert (await job.wait()).state == "applied"
