"""Opening, closing, and what a database is between the two."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.errors import UnavailableError
from tests.engine import (
    CONTIGUOUS,
    KINDS,
    Kind,
    StoreInHand,
    contents,
    memory_store,
    open_db,
    settle,
    starts,
    until,
)


@pytest.fixture(params=["memory", "file", "path", "string"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """A fresh place for a database, named in each way."""
    places: dict[str, str | Path] = {
        "memory": f"memory://{tmp_path.name}",
        "file": f"file://{tmp_path}/db",
        "path": tmp_path / "db",
        "string": str(tmp_path / "db"),
    }
    return places[request.param]


# opening


@pytest.mark.parametrize("metastore", [None, "if-match"])
async def test_open_by_url(url: str | Path, kind: Kind, metastore: str | None) -> None:
    async with slate.open(url, metastore=metastore, settings=kind.settings()) as db:
        await db.put(b"a", b"1")
        assert db.status().log_protocol == kind.log_protocol
        assert db.status().wal_enabled == kind.wal_enabled
    db = await slate.open(url, metastore=metastore, create=False)
    assert await db.get(b"a") == b"1"
    assert db.status().epoch == 2
    await db.close()


async def test_create_false_needs_a_database(url: str | Path) -> None:
    with pytest.raises(slate.InvalidError, match="create=True"):
        await slate.open(url, create=False)
    async with slate.open(url):
        pass
    async with slate.open(url, create=False):
        pass


async def test_a_path_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.obj").write_text("Dear Sir")
    with pytest.raises(slate.InvalidError, match=r"letters/dear"):
        await slate.open(tmp_path)
    store = memory_store()
    await store.put("readme.md", b"hello")
    with pytest.raises(slate.InvalidError, match=r"readme\.md"):
        await open_db(store)
    assert [info.key async for info in store.list()] == ["readme.md"]


async def test_data_without_its_manifest_is_refused(kind: Kind) -> None:
    """The manifest is in another metastore, or lost: creating a second database over the data would bury it."""
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
    await store.delete([info.key async for info in store.list("manifest/")])
    with pytest.raises(slate.InvalidError, match="metastore"):
        await open_db(store, kind)


async def test_opening_with_another_metastore_is_refused() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"a", b"1")
    with pytest.raises(slate.InvalidError):
        await open_db(store, metastore="if-match")
    store = memory_store()
    async with open_db(store, metastore="if-match") as db:
        await db.put(b"a", b"1")
    with pytest.raises(slate.InvalidError):
        await open_db(store)


async def test_settings_follow_the_database(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind):
        pass
    async with slate.open(store, settings=slate.Settings()) as db:
        assert (db.status().log_protocol, db.status().wal_enabled) == (kind.log_protocol, kind.wal_enabled)
    other = next(each for each in KINDS if each.log_protocol != kind.log_protocol)
    with pytest.raises(slate.InvalidError, match="log_protocol"):
        await slate.open(store, settings=slate.Settings(log_protocol=other.log_protocol))
    with pytest.raises(slate.InvalidError, match="wal_enabled"):
        await slate.open(store, settings=slate.Settings(wal_enabled=not kind.wal_enabled))


async def test_a_refused_opening_takes_nothing_over() -> None:
    store = memory_store()
    async with open_db(store) as db:
        with pytest.raises(slate.InvalidError):
            await slate.open(store, settings=slate.Settings(wal_enabled=False))
        await db.put(b"a", b"1")
        assert db.status().state == "open"


async def test_flushed_acknowledgements_need_the_epoch_prefixed_log() -> None:
    with pytest.raises(slate.InvalidError, match="flushed"):
        await slate.open(memory_store(), settings=slate.Settings(ack="flushed"))
    store = memory_store()
    async with open_db(store, CONTIGUOUS):
        pass
    with pytest.raises(slate.InvalidError, match="flushed"):
        await slate.open(store, settings=slate.Settings(ack="flushed"))


async def test_a_name_goes_with_a_store_object() -> None:
    with pytest.raises(slate.InvalidError, match="name"):
        await slate.open("memory://somewhere", name="mine")


async def test_an_opening_that_fails_leaves_nothing_behind() -> None:
    before = len(asyncio.all_tasks())
    with pytest.raises(slate.InvalidError):
        await slate.open(memory_store(), create=False)
    store = StoreInHand(memory_store(), watch="log/")
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    with pytest.raises(slate.UnavailableError):
        await open_db(store, takeover_deadline_ms=300, retry_deadline_ms=200, request_timeout_ms=200)
    await settle()
    assert len(asyncio.all_tasks()) == before


async def test_a_cancelled_opening_leaves_nothing_behind(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"1")
    before = len(asyncio.all_tasks())
    for turns in range(0, 60, 3):
        opening = asyncio.ensure_future(_opened(open_db(store, kind)))
        await settle(turns)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().close()
    await settle()
    assert len(asyncio.all_tasks()) == before
    async with open_db(store, kind) as db:
        assert await contents(db) == {b"a": b"1"}


async def _opened(opening: slate.Opening[slate.Db]) -> slate.Db:
    return await opening


# closing


async def test_close_is_idempotent_and_makes_everything_durable(kind: Kind) -> None:
    store = memory_store()
    db = await open_db(store, kind)
    handle = await db.put(b"a", b"1", await_durable=False)
    await asyncio.gather(db.close(), db.close(), db.close())
    await db.close()
    assert handle.is_durable
    await handle.durable()
    await db.wait_closed()
    assert db.status().state == "closed"
    for call in (db.get(b"a"), db.put(b"a", b"2"), db.delete(b"a"), db.flush(), db.get_many([b"a"]), db.confirm()):
        with pytest.raises(slate.ClosedError):
            await call
    with pytest.raises(slate.ClosedError):
        db.scan()
    with pytest.raises(slate.ClosedError):
        db.snapshot()
    async with open_db(store, kind) as again:
        assert await again.get(b"a") == b"1"


async def test_close_may_be_cancelled_and_goes_on(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    db = await open_db(store, kind)
    store.hold = True
    await db.put(b"a", b"1", await_durable=False)
    closing = asyncio.ensure_future(db.close())
    await until(lambda: bool(store.held), "the last put")
    closing.cancel()
    await asyncio.wait([closing])
    assert db.status().state == "closing"
    store.release()
    await db.close()
    await db.wait_closed()
    assert db.status().state == "closed"
    async with open_db(store, kind) as again:
        assert await again.get(b"a") == b"1"


async def test_closing_refuses_writes_that_wait_for_room(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    db = await open_db(store, kind, max_unflushed_bytes=1000)
    store.hold = True
    await db.put(b"a", bytes(500), await_durable=False)
    waiting = starts(db.put(b"b", bytes(500), await_durable=False), db.put(b"c", bytes(500)))
    await settle()
    closing = asyncio.ensure_future(db.close())
    await asyncio.wait(waiting)
    for write in waiting:
        error = write.exception()
        assert isinstance(error, slate.ClosedError)
        assert error.outcome == "not_applied"
    store.release()
    await closing
    async with open_db(store, kind) as again:
        assert list(await contents(again)) == [b"a"]


async def test_async_with_never_replaces_the_error_of_its_body(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    with pytest.raises(KeyError, match="mine"):  # noqa: PT012
        async with open_db(store, kind, retry_deadline_ms=100, request_timeout_ms=100) as db:
            store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
            await db.put(b"a", b"1", await_durable=False)
            raise KeyError("mine")
    assert db.status().state in ("closed", "failed")


async def test_what_closing_raises_beside_an_error_of_the_body_is_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"memory://{tmp_path.name}"
    with pytest.raises(RuntimeError, match="mine"):  # noqa: PT012
        async with slate.open(url) as db, slate.open(url):
            await db.put(b"a", b"1", await_durable=False)
            raise RuntimeError("mine")
    (logged,) = [record for record in caplog.records if "closing failed, too" in record.message]
    assert "took over" in logged.message
    assert not logged.exc_info


async def test_async_with_raises_what_closing_raises_when_the_body_is_fine(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    with pytest.raises(slate.UnavailableError):  # noqa: PT012
        async with open_db(store, kind, retry_deadline_ms=100, request_timeout_ms=100) as db:
            store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
            await db.put(b"a", b"1", await_durable=False)


@pytest.mark.parametrize("flavour", ["memory", "file"])
async def test_no_task_and_no_thread_is_left(kind: Kind, flavour: str, tmp_path: Path) -> None:
    tasks, threads = asyncio.all_tasks(), threading.active_count()
    place = tmp_path / "db" if flavour == "file" else f"memory://{tmp_path.name}"
    async with slate.open(place, settings=kind.settings(manifest_poll_interval_ms=1)) as db:
        await asyncio.gather(*(db.put(b"%d" % n, bytes(3000)) for n in range(60)))
        await db.flush(l0=True)
        scan = db.scan()
        await anext(aiter(scan))
        await asyncio.sleep(0.02)
    await settle()
    assert asyncio.all_tasks() == tasks
    await until(lambda: threading.active_count() <= threads, "worker threads to end")


async def test_tasks_have_names_and_owners(kind: Kind) -> None:
    async with open_db(memory_store(), kind, auto_gc=True) as db:
        names = sorted(
            task.get_name()
            for task in asyncio.all_tasks()
            if "slate" in task.get_name() or task.get_name().startswith("memory://test/")
        )
        owned = ["compactor", "garbage collector", "heartbeat", "ingest applier", "log flusher", "log publisher"]
        expected = ["L0 flusher", *owned] if kind.wal_enabled else owned
        assert names == [*(f"memory://test/{name}" for name in expected), "slate/poll scheduler"]
        assert db.status().state == "open"


async def test_a_failing_background_task_closes_the_database(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db = await open_db(memory_store(), kind)
    (waiting,) = starts(_waits(db))

    async def broken(*_: object) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(db._writer.flusher, "_encode", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(slate.ClosedError, match="a bug") as caught:
        await db.put(b"a", b"1")
    assert caught.value.outcome == "unknown"
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), slate.ClosedError)
    assert "ZeroDivisionError" in caplog.text
    await db.close()
    assert db.status().state == "failed"


async def _waits(db: slate.Db) -> None:
    await db.wait_closed()
