"""Batches of streams, each of which is in once."""

from __future__ import annotations

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from tests.engine import memory_store, open_db
from tests.unit.database.test_ingest import open_admin, open_job, table


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


async def test_each_batch_of_a_stream_is_in_once(store: MemoryStore) -> None:
    async with open_db(store) as db:
        async with open_job(store, "one") as job:
            await job.write([table({"a": "1"})])
            await job.commit(batch=("app", 1), wait=False)
            await db.confirm()
            await job.wait()
        await db.put(b"a", b"later")
        async with open_job(store, "again") as job:
            await job.write([table({"a": "1"})])
            assert (await job.commit(batch=("app", 1))).state == "duplicate"
        assert await db.get(b"a") == b"later"


async def test_a_query_that_counts_anew_needs_another_app_id(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, "one") as job:
        await job.commit(batch=("app", 4, "query 1"))
    async with open_job(store, "two") as job:
        with pytest.raises(slate.InvalidError, match="counted by query query 1") as raised:
            await job.commit(batch=("app", 0, "query 2"))
        assert (raised.value.outcome, (await job.info()).state) == ("not_applied", "registered")
        async with open_admin(store) as admin:
            await admin.ingests.forget_app("app")
        assert (await job.commit(batch=("app", 0, "query 2"))).batch_id == 0


async def test_a_query_is_refused_under_an_app_id_that_was_counted_by_hand(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, "one") as job:
        await job.commit(batch=("app", 5))
    async with open_job(store, "query/0") as job:
        await job.write([table({"a": "1"})])
        with pytest.raises(slate.InvalidError, match="up to 5 are in, or wait, and name no query"):
            await job.commit(batch=("app", 0, "query"))
        async with open_admin(store) as admin:
            await admin.ingests.forget_app("app")
        assert (await job.commit(batch=("app", 0, "query"))).state == "applied"
    async with open_db(store) as db:
        assert await db.get(b"a") == b"1"


async def test_a_stream_that_is_forgotten_may_begin_anew_with_the_same_jobs(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    async with open_job(store, "app/0") as job:
        await job.write([table({"a": "1"})])
        await job.commit(batch=("app", 0), mode="ingest", wait=False)
        async with open_admin(store) as admin:
            with pytest.raises(slate.ConflictError, match="'app/0' of app 'app' is committed, and not in yet"):
                await admin.ingests.forget_app("app")
        assert (await job.commit(batch=("app", 0), mode="exclusive")).state == "applied"
    async with open_admin(store) as admin:
        await admin.ingests.forget_app("app")
        assert await admin.ingests.list() == []
    async with open_job(store, "app/0") as job:
        await job.write([table({"a": "2"})])
        assert (await job.commit(batch=("app", 0))).state == "applied"
    async with open_db(store) as db:
        assert await db.get(b"a") == b"2"


async def test_a_batch_is_not_taken_for_a_job_of_the_same_name(store: MemoryStore) -> None:
    """Else its rows would be lost, and its stream go on."""
    await (await open_db(store)).close()
    for pending in (True, False):
        async with open_job(store, "app/7") as job:
            await job.write([table({"a": "1"})])
            await job.commit(wait=False, mode="ingest" if pending else "exclusive")
            with pytest.raises(slate.ConflictError, match=r"as no batch .* needs another job id"):
                await job.commit(batch=("app", 7), wait=False)
    async with open_job(store, "app/8") as job:
        await job.commit(batch=("app", 8))
        assert (await job.commit(batch=("app", 8))).state == "applied"
        with pytest.raises(slate.ConflictError, match="as batch 8 of 'app'"):
            await job.commit(batch=("app", 9))


async def test_the_streams_that_are_counted_can_be_seen(store: MemoryStore) -> None:
    await (await open_db(store)).close()
    for job_id, batch in (("one", ("web", 4, "query 1")), ("two", ("app", 2))):
        async with open_job(store, job_id) as job:
            await job.commit(batch=batch)
    async with open_admin(store) as admin:
        assert await admin.ingests.apps() == [slate.IngestApp("app", 2, None), slate.IngestApp("web", 4, "query 1")]
        await admin.ingests.forget_app("web")
        assert [app.app_id for app in await admin.ingests.apps()] == ["app"]
