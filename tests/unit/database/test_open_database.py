"""What an open database says of itself, which calls it refuses, and what it pins."""

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
from metastores.names import MANIFEST
from metastores.protocol import VersionRef
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectInfo, ObjectStore
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    Kind,
    StoreInHand,
    memory_store,
    open_db,
    open_reader,
    settle,
)

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
        assert getattr(found[1], "outcome", None) == "not_applied"
        assert await db.get(b"a") == b"1"


async def test_a_write_is_waited_for_on_its_own_loop() -> None:
    store = StoreInHand(memory_store())
    async with open_db(store) as db:
        store.hold = True
        handle = await db.put(b"a", b"1", await_durable=False)
        with pytest.raises(slate.InvalidError, match="event loop that made it") as caught:
            await asyncio.to_thread(asyncio.run, handle.durable())
        assert caught.value.outcome == "unknown"
        store.release()
        await handle.durable()


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


# what hot paths read of it

MOST_ATTRIBUTES = 29
"""CPython keeps so many of an object where its compiled access finds them. With one more every access to any of them
looks into a dict: that was a twelfth of a put."""


async def test_handles_have_few_enough_attributes_to_be_read_fast() -> None:
    store = memory_store()
    async with open_db(store) as db, open_reader(store) as reader:
        await db.put(b"a", b"1")
        for hot in (db, reader, db._reads, reader._reads, db._sequencer, db._writer.state, db._writer.state.view):
            if hasattr(hot, "__dict__"):
                assert len(vars(hot)) <= MOST_ATTRIBUTES, hot


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
        assert (metrics["db.writes"], metrics["db.batches"], metrics["db.reads"]) == (11, 1, 1)
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
        view = db._writer.state.view
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
    await store.put(MANIFEST.body_key(VersionRef(1, "0" * 32)), b"the body of a version that no head names")
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
