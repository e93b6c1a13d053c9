"""Opening, closing, and what a database is between the two."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from metastores.names import body_key
from metastores.protocol import VersionRef
from slate_async.environment import OpeningDb
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectInfo, ObjectStore
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
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
    (tmp_path / "letters" / "dear.txt").write_text("Dear Sir")
    with pytest.raises(slate.InvalidError, match=r"letters/dear\.txt"):
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


async def _opened(opening: OpeningDb) -> slate.Db:
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
    async with open_db(memory_store(), kind) as db:
        names = sorted(
            task.get_name()
            for task in asyncio.all_tasks()
            if "slate" in task.get_name() or task.get_name().startswith("memory://test/")
        )
        expected = ["memory://test/log flusher", "memory://test/log publisher", "slate/poll scheduler"]
        assert names == (["memory://test/L0 flusher", *expected] if kind.wal_enabled else expected)
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


# the wrong loop, thread or process


async def test_another_thread_and_another_loop_are_refused() -> None:
    found: list[BaseException | None] = []
    async with open_db(memory_store()) as db:
        await db.put(b"a", b"1")

        def elsewhere() -> None:
            async def calls() -> None:
                for call in (lambda: db.get(b"a"), lambda: db.put(b"a", b"2"), lambda: db.flush(), lambda: db.close()):
                    try:
                        await call()
                    except BaseException as error:  # noqa: BLE001 - judged below
                        found.append(error)
                    else:
                        found.append(None)

            asyncio.run(calls())
            try:
                db.scan()
            except BaseException as error:  # noqa: BLE001 - judged below
                found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [type(error) for error in found] == [slate.InvalidError] * 5
        assert await db.get(b"a") == b"1"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    async def parent() -> int:
        async with slate.open(tmp_path / "db") as db:
            await db.put(b"a", b"1")
            child = os.fork()
            if child == 0:
                os._exit(_in_child(db))
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert await db.get(b"a") == b"1"
            await db.put(b"b", b"2")
            return os.waitstatus_to_exitcode(status)

    assert asyncio.run(parent()) == 0


def _in_child(db: slate.Db) -> int:
    """0 if every use is refused: within the inherited loop, and within a loop of the child's own."""
    refused = 0
    calls = (lambda: db.get(b"a"), lambda: db.put(b"a", b"2"))
    for call in calls:  # the running loop is the parent's, so a coroutine can be driven by hand
        try:
            call().send(None)
        except slate.InvalidError:
            refused += 1
        except BaseException:  # noqa: BLE001 - counted as not refused
            return 2
    return 0 if refused == len(calls) else 1


# what it says about itself


async def test_status_and_metrics(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        empty = db.status()
        assert (empty.path, empty.state, empty.epoch, empty.last_seq) == ("memory://test", "open", 1, 0)
        for number in range(10):
            await db.put(b"%d" % number, bytes(100))
        await db.put(b"x", b"y", await_durable=False)
        status = db.status()
        assert status.last_seq == 11
        assert status.durable_seq >= 10
        assert status.unflushed_bytes > 0
        assert status.memtable_bytes > 0
        assert status.log_end > empty.log_end
        batch = slate.WriteBatch()
        batch.put(b"b", b"c")
        await db.write(batch)
        await db.get(b"0")
        await db.flush(l0=True)
        status = db.status()
        assert status.durable_seq == 12
        assert status.unflushed_bytes == 0
        assert status.l0_ssts > 0
        assert (status.sst_bytes > 0) == kind.wal_enabled
        assert status.log_start > empty.log_start or not kind.wal_enabled
        metrics = db.metrics()
        assert (metrics["db.puts"], metrics["db.batches"], metrics["db.reads"]) == (11, 1, 1)
        assert metrics["log.rows"] == 12
        assert metrics["log.written_bytes"] > 1000
        assert metrics["l0.rows"] == (12 if kind.wal_enabled else 0)
        assert metrics["manifest.commits"] >= 2
        assert all(isinstance(value, int | float) for value in metrics.values())
    assert db.status().state == "closed"
    assert str(db.status().database_id) == empty.database_id


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_nothing_secret_is_said(
    kind: Kind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    said = []
    with caplog.at_level(logging.DEBUG):
        store = StoreInHand(memory_store())
        db = await open_db(store, kind, retry_deadline_ms=100, request_timeout_ms=100)
        async with db.snapshot() as snap:
            said += [repr(db), repr(snap), str(db.status()), repr(db.status())]
        store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
        with pytest.raises(slate.SlateError) as caught:
            await db.put(b"private-key", b"private-value")
        said += [str(caught.value), repr(caught.value)]
        await db.close()
    said.append(caplog.text)
    for secret in ("hush-hush", "private-key", "private-value"):
        assert not any(secret in text for text in said)
    assert repr(db) == "<Db memory://test epoch=1 failed>"


async def test_secrets_in_a_url_are_refused_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for url in (
            "s3://user:hush-hush@bucket/db",
            "s3://bucket/db?aws_secret_access_key=hush-hush",
            "az://container/db?sas_token=hush-hush",
        ):
            with pytest.raises(slate.InvalidError) as caught:
                await slate.open(url)
            assert "hush-hush" not in str(caught.value)
    assert "hush-hush" not in caplog.text


# pins


async def test_dropped_scans_and_snapshots_free_their_pins(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        for number in range(600):
            await db.put(b"%03d" % number, b"v", await_durable=False)
        await db.flush(l0=True)
        view = db._writer.view
        assert not view.pinned
        scan, snap = db.scan(), db.snapshot()
        begun = aiter(scan)
        await anext(begun)
        assert view.pinned
        del scan, snap
        gc.collect()
        assert view.pinned  # the iterator still needs its scan
        del begun
        gc.collect()
        await settle()
        assert not view.pinned
        async with db.scan() as closed:
            await anext(aiter(closed))
            assert view.pinned
        assert not view.pinned
        async for _ in db.scan():
            pass
        assert not view.pinned
        await db.get(b"001")
        await db.get_many([b"001", b"002"])
        assert not view.pinned


async def test_all_methods_of_a_view_are_shared(memory: MemoryStore) -> None:
    def needs(view: slate.Readable) -> slate.Readable:
        return view

    async with open_db(memory) as db:
        await db.put(b"a", b"1")
        async with db.snapshot() as snap:
            for view in (needs(db), needs(snap)):
                assert await view.get(b"a") == b"1"
                assert await view.get_many([b"a"]) == [b"1"]
                assert (await view.get_row(b"a") or (None,))[0] == b"a"
                assert [pair async for pair in view.scan(prefix=b"a", reverse=True, limit=1)] == [(b"a", b"1")]


async def test_what_an_unfinished_creation_leaves_is_no_reason_to_refuse() -> None:
    store = memory_store()
    await store.put(body_key(VersionRef(1, "0" * 32)), b"the body of a version that no head names")
    async with open_db(store, metastore="if-match") as db:
        await db.put(b"a", b"1")


async def test_a_database_created_while_this_one_looks_is_opened() -> None:
    """Between reading the manifest and listing the folder another process makes the database and writes to it."""

    class Late:
        """Lists only after somebody else has created and used the database."""

        def __init__(self, inner: ObjectStore) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            if prefix == "":
                async with open_db(self._inner) as other:
                    await other.put(b"a", b"1")
            async for info in self._inner.list(prefix, start_after=start_after):
                yield info

    async with open_db(Late(memory_store())) as db:  # type: ignore[arg-type]
        assert await db.get(b"a") == b"1"
