"""What a writer's reads look at stays, however long they take; what nobody reads any more goes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

import slate_async as slate
from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.l0_flusher import sst_ref
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.state import Checkpoint, ManifestState, SortedRun, SstRef
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.names import sst_key
from slate_async.types import PUT
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    EPOCHS,
    START_MS,
    Kind,
    StoreInHand,
    abandon,
    contents,
    memory_store,
    open_db,
    settle,
    until,
)
from tests.support.checkpoints import RUNTIME, manifest_of
from tests.support.manifests import commit, head

WITH_WAL = pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
COMPACTED = {b"compacted": b"all of it"}
ROWS = {b"%03d" % number: b"x" * 100 for number in range(200)}


@dataclass(frozen=True)
class Replace:
    """What a compactor's edit does to the SSTs."""

    output: SstRef

    def apply(self, state: ManifestState) -> ManifestState | None:
        run = SortedRun(1, (self.output,))
        return None if run in state.runs else replace(state, l0=(), runs=(run,))


@dataclass(frozen=True)
class MoveStart:
    """What a compactor's edit does to a log without a WAL; its output is left out."""

    to: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        moved = replace(state, log_start=self.to, log_floor=state.writer_epoch)
        return None if state.log_start >= self.to else moved


async def compact(store: MemoryStore) -> None:
    """Everything becomes an SST of another row, `COMPACTED`, so that reads tell before from after."""
    state = await head(store)
    table = Memtable()
    [(key, value)] = COMPACTED.items()
    table.append(key, value, PUT, 1, NO_EXPIRY, START_MS)
    table.freeze()
    encoder = Encoder(state.database_id, 1, 256, "none", 10, RUNTIME.offload)
    object_id = RUNTIME.ids.ulid(START_MS)
    encoded = await encoder.sst(table, object_id=object_id, manifest_version=state.version)
    location = sst_key(state.version, object_id)
    await store.put(location, encoded.buffers)
    await commit(store, Replace(sst_ref(location, object_id, encoded, 1)))


async def pins(store: MemoryStore) -> list[Checkpoint]:
    return [checkpoint for checkpoint in (await head(store)).checkpoints if checkpoint.owner == "writer"]


async def collect(store: MemoryStore) -> list[str]:
    """Delete every SST that neither the head nor a checkpoint names, and return what was deleted."""
    async with manifest_of(store) as driver:
        assert driver.head is not None
        states = [driver.head, *[await driver.read(checkpoint.ref) for checkpoint in driver.head.checkpoints]]
        named = {sst.location for state in states if state is not None for sst in state.ssts()}
        doomed = [info.key async for info in store.list("sst/") if info.key not in named]
        await store.delete(doomed)
        return doomed


async def filled(store: MemoryStore, kind: Kind, **settings: int) -> slate.Db:
    """A database whose rows are all in one L0 SST that no cache holds."""
    db = await open_db(store, kind, block_bytes=256, block_cache_bytes=0, **settings)
    for key, value in ROWS.items():
        await db.put(key, value, await_durable=False)
    await db.flush(l0=True)
    return db


@dataclass
class Confirming:
    """A database whose SST was compacted away beside it, and its `confirm`, which waits for the commit of a pin."""

    inner: MemoryStore
    store: StoreInHand
    db: slate.Db
    confirm: asyncio.Future[None]

    @classmethod
    async def begun(cls) -> Confirming:
        inner = memory_store()
        store = StoreInHand(inner, watch="manifest/")
        db = await filled(store, CONTIGUOUS)  # type: ignore[arg-type]
        await compact(inner)
        store.hold = True
        confirm = asyncio.ensure_future(db.confirm())
        await until(lambda: bool(store.held), "the pin's commit")
        return cls(inner, store, db, confirm)


@WITH_WAL
async def test_a_flush_pins_what_it_adds_in_its_one_commit(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        [claimed] = await pins(store)
        assert (claimed.epoch, claimed.ref.version) == (1, 2)
        for number in range(3):
            before = db.metrics()["manifest.commits"]
            await db.put(b"a", b"%d" % number)
            await db.flush(l0=True)
            assert db.metrics()["manifest.commits"] == before + 1
            [pinned] = await pins(store)
            assert pinned.ref == (await head(store)).ref
            assert pinned.log_start == db.status().log_start


@WITH_WAL
async def test_a_scan_outlives_compaction_and_gc(kind: Kind) -> None:
    store = memory_store()
    db = await filled(store, kind)
    rows = aiter(db.scan())
    seen = dict([await anext(rows)])
    await compact(store)
    await db.confirm()
    assert await contents(db) == COMPACTED
    assert len(await pins(store)) == 2
    assert await collect(store) == []
    await db.put(b"later", b"1")
    await db.flush(l0=True)
    assert await collect(store) == []
    assert {**seen, **{key: value async for key, value in rows}} == ROWS
    await db.confirm()
    assert len(await pins(store)) == 1
    assert len(await collect(store)) == 1
    await db.close()


@WITH_WAL
async def test_a_scan_of_fewer_ssts_needs_no_pin_of_its_own(kind: Kind) -> None:
    """The next flush only adds: its pin holds what the scan reads, too."""
    store = memory_store()
    db = await filled(store, kind)
    async with db.snapshot() as snapshot:
        await db.put(b"later", b"1")
        await db.flush(l0=True)
        assert len(await pins(store)) == 1
        await compact(store)
        await db.confirm()
        await db.put(b"later still", b"1")
        await db.flush(l0=True)
        assert len(await pins(store)) == 2
        assert await collect(store) == []
        assert await contents(snapshot) == ROWS
    await db.close()


async def test_a_state_is_read_only_once_it_is_pinned() -> None:
    begun = await Confirming.begun()
    assert await contents(begun.db) == ROWS
    assert await collect(begun.inner) == []
    begun.store.release()
    await begun.confirm
    assert await contents(begun.db) == COMPACTED
    await begun.db.close()


async def test_a_poll_that_gives_up_leaves_the_pin_to_be_adopted_by_itself() -> None:
    begun = await Confirming.begun()
    begun.confirm.cancel()
    await asyncio.wait([begun.confirm])
    begun.store.release()
    await until(lambda: begun.db.status().sorted_runs == 1, "the adoption")
    assert len(await pins(begun.inner)) == 2
    await begun.db.confirm()
    assert len(await pins(begun.inner)) == 1
    await begun.db.close()


async def test_a_pin_whose_answer_was_lost_is_found_in() -> None:
    inner = memory_store()
    store = StoreInHand(inner, watch="manifest/")
    db = await filled(store, CONTIGUOUS)  # type: ignore[arg-type]
    await compact(inner)
    lost: dict[str, None] = {}

    def fail_once(key: str) -> Exception | None:
        if lost:
            return None
        lost[key] = None
        return UnavailableError("no answer", outcome="unknown")

    store.fail_after = fail_once
    await db.confirm()
    assert lost
    assert await contents(db) == COMPACTED
    current = await head(inner)
    assert any(checkpoint.owner == "writer" and checkpoint.ref == current.ref for checkpoint in current.checkpoints)
    await db.close()


async def test_what_does_not_change_the_ssts_costs_no_commit() -> None:
    store = memory_store()
    db = await filled(store, CONTIGUOUS)
    before = db.metrics()["manifest.commits"]
    await commit(store, CreateCheckpoint(RUNTIME.ids.uuid(), "user", START_MS, None, log_end=0))
    await db.confirm()
    assert db.status().manifest_version == (await head(store)).version
    assert db.metrics()["manifest.commits"] == before
    await db.close()


async def test_without_a_wal_the_pin_holds_the_log_a_view_reads() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS_SST) as db:
        await db.put(b"a", b"1")
        await db.put(b"b", b"2")
        start, end = db.status().log_start, db.status().log_end
        async with db.snapshot() as snapshot:
            await commit(store, MoveStart(end + 1))
            await db.confirm()
            assert db.status().log_start == end + 1
            assert min(pin.log_start for pin in await pins(store)) == start
            assert await contents(snapshot) == {b"a": b"1", b"b": b"2"}


async def test_a_take_over_removes_the_pins_of_its_predecessors() -> None:
    store = memory_store()
    await abandon(await filled(store, CONTIGUOUS))
    async with open_db(store, CONTIGUOUS):
        [pinned] = await pins(store)
        assert pinned.epoch == 2


async def test_closing_leaves_none_and_is_not_kept_by_a_manifest_that_is_away() -> None:
    store = memory_store()
    db = await filled(store, CONTIGUOUS)
    await db.close()
    assert await pins(store) == []
    held = StoreInHand(store, watch="manifest/")
    db = await open_db(held, CONTIGUOUS, retry_deadline_ms=50, request_timeout_ms=50)
    held.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    await db.close()
    assert db.status().state == "closed"
    assert len(await pins(store)) == 1


async def test_a_database_keeps_what_settings_once_said() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS, retention_ms=5_000, compaction_style="leveled"):
        pass
    async with open_db(store, CONTIGUOUS):
        pass
    state = await head(store)
    assert (state.retention_ms, state.compaction) == (5_000, "leveled")


async def test_a_flush_notes_when_its_rows_were_written() -> None:
    store = memory_store()
    async with open_db(store, CONTIGUOUS) as db:
        handle = await db.put(b"a", b"1")
        await db.flush(l0=True)
        [sample] = (await head(store)).seq_times
        assert (sample.seq, sample.time_ms) == (handle.seq, round(handle.create_time * 1000))
        await settle()


async def test_a_wait_for_a_pin_ends_with_why_the_database_closed() -> None:
    begun = await Confirming.begun()
    begun.db._fail(slate.FencedError("writer epoch 9 took over"))
    with pytest.raises(slate.FencedError, match="epoch 9"):
        await begun.confirm
    await begun.db.close()
