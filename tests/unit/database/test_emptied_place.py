"""A writer whose objects are removed while it is open ends once its own GC meets that: see `EmbeddedGc`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from metastores.memory import MemoryFactory
from slate_async.engine.clone.housekeeping import GcRounds
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ByteRange, GetResult
from slate_async.storage.manifest.marker import MARKER, WrongPlaceError
from tests.engine import (
    CONTIGUOUS,
    KINDS,
    Kind,
    ManualClock,
    StoreInHand,
    abandon,
    contents,
    memory_store,
    open_db,
    until,
)
from tests.unit.database.test_places import Town, fill, keys
from tests.unit.database.test_vanished_folder import SHORT

SOON: dict[str, Any] = {
    "auto_gc": True,
    "gc_interval_ms": 10,
    "gc_min_age_ms": 0,
    "gc_clock_skew_ms": 0,
}


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Rounds begin once it is set."""
    collect, event = GcRounds.collect, asyncio.Event()

    async def later(self: GcRounds, **options: Any) -> Any:
        await event.wait()
        return await collect(self, **options)

    monkeypatch.setattr(GcRounds, "collect", later)
    return event


async def _ends(db: slate.Db, said: str) -> None:
    await until(lambda: db.status().state == "failed", "its end")
    with pytest.raises(slate.ClosedError, match=said) as refused:
        await db.put(b"k", b"v")
    assert refused.value.outcome == "not_applied"


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_writer_without_its_marker_or_with_anothers_ends(
    kind: Kind, others: bool, emptied: asyncio.Event
) -> None:
    town, store = Town(kind, MemoryFactory()), memory_store()
    async with town.open(store, **SOON) as db:
        await db.put(b"k", b"v")
        await store.delete(await keys(store))
        if others:
            other = memory_store()
            await fill(Town(kind, MemoryFactory()), other)
            await store.put(MARKER, (await other.get(MARKER)).data)
        await db.put(b"k", b"into nowhere")
        emptied.set()
        await _ends(db, "is not the place of database .*, and the one there is of" if others else "and there is none")


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_writer_that_does_not_collect_notices_that_its_marker_is_missing_once_it_commits(kind: Kind) -> None:
    """Its metadata is elsewhere, so every commit succeeds. While it commits nothing it asks for nothing."""
    town, store = Town(kind, MemoryFactory()), StoreInHand(memory_store())
    async with town.open(store, **{**SOON, "auto_gc": False, "heartbeat_interval_ms": 0}) as db:
        await db.put(b"k", b"v")
        store.gets.clear()
        await db.checkpoints.create()
        await until(lambda: MARKER in store.gets, "a look at the marker")
        await asyncio.sleep(0.1)
        store.gets.clear()
        await asyncio.sleep(0.05)
        assert MARKER not in store.gets
        await store.delete(await keys(store))
        await db.put(b"k", b"into nowhere")
        await db.checkpoints.create()
        await _ends(db, "and there is none")


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_writer_whose_manifest_was_removed_with_all_the_rest_ends(
    kind: Kind, commits: bool, emptied: asyncio.Event
) -> None:
    """With ``commits`` there is a newest version, which was put after that, but not what it is a change to."""
    store = memory_store()
    async with open_db(store, kind, **SOON) as db:
        await db.put(b"k", b"v")
        await store.delete(await keys(store))
        if commits:
            await db.checkpoints.create()
        emptied.set()
        await _ends(db, "base is missing" if commits else "was committed, but")


class _Silent(MemoryStore):
    """Does not answer requests for the marker, once ``silent``."""

    silent = False

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        if self.silent and key == MARKER:
            raise slate.UnavailableError("no answer")
        return await super().get(key, byte_range)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_writer_whose_place_is_not_found_to_be_wrong_by_a_second_look_goes_on(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[GcRounds] = []

    async def wrong(self: GcRounds, **_: Any) -> Any:
        rounds.append(self)
        raise WrongPlaceError("not the place")

    monkeypatch.setattr(GcRounds, "collect", wrong)
    town, store = Town(CONTIGUOUS, MemoryFactory()), _Silent(ManualClock())
    async with town.open(store, **SOON, retry_deadline_ms=100, request_timeout_ms=50) as db:
        store.silent = silent
        await until(lambda: len(rounds) > 3, "more rounds")
        await db.put(b"k", b"v")
        assert db.status().state == "open"
        store.silent = False


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_folder_that_vanished_is_an_outage_for_gc_too(elsewhere: bool, tmp_path: Path) -> None:
    root, away = tmp_path / "db", tmp_path / "away"
    settings = CONTIGUOUS.settings(**SHORT, **SOON)
    async with slate.open(root, metastore=MemoryFactory() if elsewhere else None, settings=settings) as db:
        await db.put(b"k", b"v")
        root.rename(away)
        root.mkdir()
        await db.flush()
        await asyncio.sleep(0.1)
        with pytest.raises(slate.UnavailableError):
            await db.put(b"lost", b"v")
        assert db.status().state == "degraded"
        root.rmdir()
        away.rename(root)
        await until(lambda: db.status().state == "open", "the folder")
        await db.put(b"k", b"w")
        assert await contents(db) == {b"k": b"w"}


@pytest.mark.parametrize("l0", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_place_that_was_emptied_under_its_writer_is_not_adopted(kind: Kind, l0: bool) -> None:
    """What was written after that is there, and nothing notes that it is not all."""
    town, store = Town(kind, MemoryFactory()), memory_store()
    db = await town.open(store, flush_parallelism=2, l0_flush_objects=1_000)
    for number in range(5):
        await db.put(b"%d" % number, b"v")
    await db.flush(l0=l0)
    lost = [key for key in await keys(store) if key.startswith("sst/" if l0 and kind.wal_enabled else "log/")]
    await store.delete(await keys(store))
    for number in range(5):
        await db.put(b"%d" % number, b"w")
    await db.flush(l0=l0)
    await abandon(db)
    before = await town.head()
    async with town.admin(store) as admin:
        with pytest.raises(slate.CorruptionError, match="is missing") as refused:
            await admin.adopt_place()
    assert refused.value.object_name in lost
    assert await town.head() == before
