"""Errors say what a caller does next: a missing thing, a wrong call and a wrong setup have kinds of their own, and a
failed read has no outcome of a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from slate_async.objectstore.local.store import LocalStore
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ByteRange, GetResult
from tests.engine import CONTIGUOUS, ManualClock, memory_store, open_db, open_reader, runtime

Use = Callable[[Any], Awaitable[object]]


async def _all(rows: slate.Scan) -> list[tuple[bytes, bytes]]:
    return [row async for row in rows]


async def _changes(db: Any) -> list[slate.Change]:
    return [change async for change in db.changes(from_seq=0, follow=False)]


async def _snapshot(db: Any) -> object:
    return db.snapshot()


READS: dict[str, Use] = {
    "get": lambda db: db.get(b"a"),
    "get_row": lambda db: db.get_row(b"a"),
    "get_many": lambda db: db.get_many([b"a", b"zz"]),
    "scan": lambda db: _all(db.scan()),
    "splits": lambda db: db.splits(),
    "row_statistics": lambda db: db.row_statistics(),
    "snapshot": _snapshot,
    "changes": _changes,
}
WRITES: dict[str, Use] = {
    "put": lambda db: db.put(b"a", b"1"),
    "delete": lambda db: db.delete(b"a"),
    "write": lambda db: db.write(slate.WriteBatch()),
}


async def failure(use: Use, db: object) -> slate.SlateError:
    """What a call raises."""

    async def called() -> None:
        await use(db)

    with pytest.raises(slate.SlateError) as caught:
        await called()
    return caught.value


@pytest.mark.parametrize("name", [*READS, "confirm"])
async def test_a_read_of_a_closed_database_has_no_outcome(name: str) -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        pass
    error = await failure(READS.get(name, lambda db: db.confirm()), db)
    assert isinstance(error, slate.ClosedError)
    assert error.outcome is None


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_to_a_closed_database_was_not_applied(name: str) -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        pass
    error = await failure(WRITES[name], db)
    assert (type(error), error.outcome) == (slate.ClosedError, "not_applied")


async def test_a_call_from_another_loop_has_an_outcome_only_if_it_writes() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:

        def elsewhere(use: Use) -> slate.SlateError:
            return asyncio.run(failure(use, db))

        for outcome, calls in ((None, READS), ("not_applied", WRITES)):
            for name, use in calls.items():
                error = await asyncio.to_thread(elsewhere, use)
                assert (name, type(error), error.outcome) == (name, slate.InvalidError, outcome)


@pytest.mark.parametrize("key", [b"", "text", b"k" * 65_536])
async def test_a_wrong_key_has_an_outcome_only_if_it_is_written(key: Any) -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        for read in (lambda db: db.get(key), lambda db: db.get_row(key), lambda db: db.get_many([key])):
            assert (await failure(read, db)).outcome is None
        for write in (lambda db: db.put(key, b""), lambda db: db.delete(key)):
            assert (await failure(write, db)).outcome == "not_applied"


class Refusing(MemoryStore):
    """Refuses reads of SSTs while ``refuses``, with the outcome of a write: some SDKs fail before they know what is
    asked."""

    refuses = False

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Unless it refuses."""
        self._refuse(key)
        return await super().get(key, byte_range)

    def _refuse(self, key: str) -> None:
        if self.refuses and key.startswith("sst/"):
            raise slate.ConfigError("no credentials found", outcome="not_applied")


@pytest.mark.parametrize("name", ["get", "get_row", "get_many", "scan", "row_statistics"])
async def test_a_read_that_the_store_refuses_has_no_outcome(name: str) -> None:
    store = Refusing(ManualClock())
    async with open_db(store, CONTIGUOUS) as db:
        await db.put(b"a", b"1")
        await db.flush(l0=True)
    async with open_reader(store, pin=False) as reader:
        store.refuses = True
        error = await failure(READS[name], reader)
    assert (type(error), error.outcome) == (slate.ConfigError, None)


async def test_what_is_not_there_has_a_kind_of_its_own(tmp_path: Path) -> None:
    def opened(path: Path) -> Awaitable[object]:
        return slate.open(path, create=False)

    with pytest.raises(slate.NotFoundError, match="there is no database"):
        await opened(tmp_path / "nothing")
    with pytest.raises(slate.NotFoundError, match="there is no database"):
        await slate.open_reader(tmp_path / "nothing")
    async with slate.open(tmp_path / "db") as db, slate.open_admin(tmp_path / "db") as admin:
        for _ in range(3):
            await db.put(b"a", b"1")
        with pytest.raises(slate.NotFoundError, match="no checkpoint"):
            await slate.open_reader(tmp_path / "db", "nightly")
        with pytest.raises(slate.NotFoundError, match="no checkpoint"):
            await admin.checkpoints.delete("nightly")
        with pytest.raises(slate.NotFoundError, match="there is no subscription"):
            await _changes_held(db)
        with pytest.raises(slate.NotFoundError, match="there is no SST"):
            await admin.inspect.sst("ab" * 16)
    async with slate.open_admin(tmp_path / "db") as admin:
        await admin.destroy()
        with pytest.raises(slate.NotFoundError, match="destroyed"):
            await admin.checkpoints.create()


async def _changes_held(db: slate.Db) -> None:
    async for _ in db.changes(subscription="indexer", subscription_lifetime=60.0, follow=False):
        pass


async def test_a_folder_that_is_removed_may_come_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "db", runtime())
    await store.put("a", b"1")
    (tmp_path / "db").rename(tmp_path / "elsewhere")
    with pytest.raises(slate.SlateError) as caught:
        await store.put("b", b"1")
    assert isinstance(caught.value, slate.UnavailableError)
    await store.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda path: slate.open("ftp://bucket/db"),
        lambda path: slate.open("s3://bucket/db?token=1"),
        lambda path: slate.open(path / "db", metastore="oracle://"),
        lambda path: slate.Settings(flush_bytes=-1),
        lambda path: slate.Settings.from_toml(path / "missing.toml"),
    ],
)
async def test_a_wrong_setup_has_a_kind_of_its_own(wrong: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(slate.ConfigError):
        await wrong(tmp_path)


async def test_a_wrong_call_is_neither() -> None:
    async with open_db(memory_store(), CONTIGUOUS) as db:
        for use in (lambda db: db.get(b""), lambda db: _all(db.scan(limit=-1)), lambda db: db.compact(level=77)):
            assert type(await failure(use, db)) is slate.InvalidError


def test_what_ends_a_database_is_no_public_name() -> None:
    for kind in (slate.Db, slate.DbReader, slate.Admin, slate.DbCompactor, slate.GarbageCollector, slate.IngestJob):
        assert not {"fail", "noun", "on_closed"} & set(dir(kind))
