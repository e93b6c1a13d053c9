"""Without a WAL somebody else moves the log's start: while a writer lives, and while one opens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

import slate_async as slate
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectStore, PutMode
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.manifest.state import Compaction, ManifestState, SortedRun, SstRef
from slate_async.types import Buffer
from tests.engine import CONTIGUOUS_SST, EPOCHS_SST, Kind, commit_elsewhere, memory_store, open_db, until
from tests.unit.database.compactors import open_compactor

KINDS_SST = [CONTIGUOUS_SST, EPOCHS_SST]


@dataclass(frozen=True)
class MoveStart:
    """What a compactor's edit does to the log; its output is left out where nobody reads it."""

    to: int
    last_seq: int
    output: tuple[SortedRun, ...] = ()

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.log_start >= self.to:
            return None
        floor = state.writer_epoch
        return replace(state, log_start=self.to, log_floor=floor, last_seq=self.last_seq, runs=self.output)


@dataclass(frozen=True)
class TakeTheLog:
    """A compaction is registered that takes all of the log, and before it begins a flush has taken that."""

    end: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.log_start > self.end:
            return None
        begun = Compaction(
            id=UUID(int=1),
            epoch=state.compactor_epoch,
            base_version=state.version,
            expired_at_ms=0,
            keep_above=0,
            bottom=True,
            l0=(),
            runs=(),
            target_run=1,
            target_level=0,
            log_end=self.end,
        )
        return replace(state, log_start=self.end + 1, log_floor=state.writer_epoch, compactions=(begun,))


class Between:
    """A store whose log puts are answered only when ``gate`` is open, and that tells of each get before it runs."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.before_get: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        etag = await self.inner.put(key, data, mode=mode, metadata=metadata)
        if key.startswith("log/"):
            await self.gate.wait()
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        if self.before_get is not None:
            await self.before_get(key)
        return await self.inner.get(key, byte_range)


async def log_keys(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("log/")]


async def landed_put(store: Between, db: slate.Db, key: bytes, value: bytes) -> asyncio.Future[slate.WriteHandle]:
    """A put whose log object is in the store, and whose answer waits for ``gate``."""
    before = len(await log_keys(store.inner))
    store.gate.clear()
    put = asyncio.ensure_future(db.put(key, value))
    keys: list[str] = []
    while len(keys) <= before:
        await asyncio.sleep(0)
        keys = await log_keys(store.inner)
    return put


async def test_an_object_compacted_before_it_is_acknowledged_is_acknowledged_all_the_same() -> None:
    store = Between(memory_store())
    async with open_db(store, CONTIGUOUS_SST) as db:  # type: ignore[arg-type]
        put = await landed_put(store, db, b"a", b"1")
        await commit_elsewhere(store.inner, MoveStart(db.status().log_end + 2, last_seq=1))
        await db.confirm()
        store.gate.set()
        handle = await asyncio.wait_for(put, 10)
        assert handle.is_durable
        assert db.status().state == "open"
        await db.put(b"b", b"2")
        assert await db.get(b"b") == b"2"


async def test_a_durable_read_sees_what_was_compacted_before_it_is_acknowledged() -> None:
    """The compaction kept only the newest version of the key, so there is no older one to show."""
    store = Between(memory_store())
    async with open_db(store, CONTIGUOUS_SST) as db:  # type: ignore[arg-type]
        await db.put(b"a", b"1")
        put = await landed_put(store, db, b"a", b"2")
        newest, log_id = (await log_keys(store.inner))[-1], db.status().log_end + 1
        size = (await store.inner.head(newest)).size
        kept = SstRef(newest, log_object_id(log_id), size, 1, 0, b"a", b"a", min_seq=2, max_seq=2, writer_epoch=1)
        await commit_elsewhere(store.inner, MoveStart(log_id + 1, 2, (SortedRun(1, (kept,)),)))
        await db.confirm()
        assert not put.done()
        assert await db.get(b"a", durable=True) == b"2"
        store.gate.set()
        await asyncio.wait_for(put, 10)


@pytest.mark.parametrize("kind", KINDS_SST, ids=str)
async def test_a_compaction_whose_log_a_flush_has_taken_is_dropped(kind: Kind) -> None:
    """The flush of an ingest, for one. The log up to where the compaction ends looks right, and holds nothing."""
    store = memory_store()
    async with open_db(store, kind) as db, open_compactor(store) as compactor:
        await db.put(b"a", b"1")
        await commit_elsewhere(store, TakeTheLog(db.status().log_end))
        await until(lambda: compactor.metrics()["compaction.dropped"] == 1, "the compaction is dropped")
        assert compactor.status().state == "open"


@pytest.mark.parametrize("kind", KINDS_SST, ids=str)
async def test_a_log_compacted_and_collected_while_it_is_replayed_is_taken_over_anew(kind: Kind) -> None:
    store = Between(memory_store())
    async with open_db(store.inner, kind) as db:
        await db.put(b"a", b"1")
        await db.put(b"b", b"2")
        end, newest = db.status().log_end, (await log_keys(store.inner))[-1]
    reads = 0

    async def compact(key: str) -> None:
        """Between the look at the newest object's header and that at its index."""
        nonlocal reads
        reads += key == newest
        if key == newest and reads == 2:
            await commit_elsewhere(store.inner, MoveStart(end + 1, last_seq=2))
            await store.inner.delete([newest])

    store.before_get = compact
    async with open_db(store, kind) as db:  # type: ignore[arg-type]
        assert reads > 1
        assert (await db.put(b"c", b"3")).seq == 3
        assert db.status().log_start == end + 1


@pytest.mark.parametrize("kind", KINDS_SST, ids=str)
async def test_a_log_object_that_is_really_lost_is_corruption(kind: Kind) -> None:
    store = Between(memory_store())
    async with open_db(store.inner, kind) as db:
        await db.put(b"a", b"1")
        newest = (await log_keys(store.inner))[-1]
    reads = 0

    async def lose(key: str) -> None:
        nonlocal reads
        reads += key == newest
        if key == newest and reads == 2:
            await store.inner.delete([newest])

    store.before_get = lose
    with pytest.raises(slate.CorruptionError, match="log/"):
        await open_db(store, kind)  # type: ignore[arg-type]
