"""A log does not grow with the number of openings, and an L0 flush catches up with a manifest that has moved on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

import slate_async as slate
from slate_async.engine.read.sources import Table
from slate_async.engine.write import writer
from slate_async.engine.write.ingest_applier import log_references
from slate_async.engine.write.l0_flusher import LONG_LOG
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectStore, PutMode
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.types import Buffer
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    EPOCHS,
    KINDS,
    Kind,
    StoreInHand,
    abandon,
    contents,
    memory_store,
    on,
    open_db,
    runtime,
    until,
)
from tests.support.manifests import commit

WITH_WAL = pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """What counts as a long log here."""
    monkeypatch.setattr(writer, "LONG_LOG", 12)
    return 12


@WITH_WAL
async def test_openings_that_write_little_leave_a_short_log(kind: Kind, short: int) -> None:
    store = memory_store()
    rows: dict[bytes, bytes] = {}
    longest = 0
    for number in range(40):
        async with open_db(store, kind) as db:
            assert await contents(db) == rows
            before = db.status()
            await until(lambda db=db: db.status().log_end - db.status().log_start < short, "a short log")  # type: ignore[misc]
            longest = max(longest, before.log_end - before.log_start)
            rows[b"%d" % number] = b"x"
            await db.put(b"%d" % number, b"x")
            if number % 5 == 0:
                await db.delete(b"%d" % (number // 2))
                rows.pop(b"%d" % (number // 2), None)
    assert longest < 2 * short
    async with open_db(store, kind) as db:
        assert await contents(db) == rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_no_number_of_idle_openings_makes_the_next_one_read_more(kind: Kind) -> None:
    objects = memory_store()
    async with open_db(objects, kind) as db:
        await db.put(b"a", b"1")
        await db.compact(full=True)
        assert await db.get(b"a") == b"1"
    reads = []
    for _ in range(150):
        store = StoreInHand(objects, watch="log/")
        db = await open_db(store, kind)
        reads.append(len([key for key in store.gets if key.startswith("log/")]))
        assert db.status().log_objects <= db._writer.state.manifest.fence_width
        await abandon(db)
    assert max(reads[1:]) <= 4  # the fences that one opening leaves
    fences = [key async for key in log_keys(objects)]
    assert len(fences) >= (4 * 150 if kind.log_protocol == "contiguous" else 0)  # all of them stay
    async with open_db(objects, kind) as db:
        await db.put(b"b", b"2")
        await db.flush(l0=True)
        assert await contents(db) == {b"a": b"1", b"b": b"2"}
    async with await on(runtime()).open_reader(objects, name="memory://test") as reader:
        assert await contents(reader) == {b"a": b"1", b"b": b"2"}


@WITH_WAL
async def test_neither_does_closing_them_behind_a_row(kind: Kind, short: int) -> None:
    objects = memory_store()
    reads = []
    async with open_db(objects, kind) as db:
        await db.put(b"a", b"1")
    for _ in range(20):
        store = StoreInHand(objects, watch="log/")
        async with open_db(store, kind):
            reads.append(len([key for key in store.gets if key.startswith("log/")]))
    assert max(reads) <= short + 4
    async with open_db(objects, kind) as db:
        assert await contents(db) == {b"a": b"1"}


async def test_nor_does_any_number_of_them_behind_an_sst_of_the_log() -> None:
    objects = memory_store()
    async with open_db(objects, CONTIGUOUS_SST) as db:
        await db.put(b"a", b"1")
        await db.put(b"b", b"1")
    reads = []
    for number in range(40):
        store = StoreInHand(objects, watch="log/")
        db = await open_db(store, CONTIGUOUS_SST)
        reads.append(len([key for key in store.gets if key.startswith("log/")]))
        if number == 20:
            await db.put(b"b", b"2")
        assert await contents(db) == {b"a": b"1", b"b": b"2" if number >= 20 else b"1"}
        await abandon(db)
    assert max(reads) <= LONG_LOG + 16  # the rows, and their indexes
    async with open_db(objects, CONTIGUOUS_SST, retention_ms=0) as db:
        assert db.status().l0_ssts == 3
        await db.compact(full=True)
        assert await contents(db) == {b"a": b"1", b"b": b"2"}
    async with on(runtime()).open_gc(
        objects,
        name="memory://test",
        periodic=False,
        settings=slate.Settings(gc_min_age_ms=0, gc_clock_skew_ms=0),
    ) as gc:
        await gc.collect()
    async with await on(runtime()).open_reader(objects, name="memory://test") as reader:
        assert await contents(reader) == {b"a": b"1", b"b": b"2"}


async def test_a_compactor_that_takes_the_log_first_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.engine.write.open.LONG_LOG", 12)
    objects = memory_store()
    async with open_db(objects, CONTIGUOUS_SST) as db:
        await db.put(b"a", b"1")
    await abandon(await open_db(objects, CONTIGUOUS_SST))

    async def late(ssts: Sequence[tuple[int, Table]]) -> list[tuple[int, SstRef]]:
        found = await log_references(ssts)
        async with await on(runtime()).open_compactor(
            objects, name="memory://test", auto_compaction=False, settings=CONTIGUOUS_SST.settings()
        ) as compactor:
            await compactor.compact(full=True)
        return found

    monkeypatch.setattr("slate_async.engine.write.open.log_references", late)
    async with open_db(objects, CONTIGUOUS_SST) as db:
        assert await contents(db) == {b"a": b"1"}
        await db.put(b"b", b"2")
        assert await contents(db) == {b"a": b"1", b"b": b"2"}
        await db.confirm()
        assert (db.status().sorted_runs, db.status().l0_ssts) == (1, 1)
    monkeypatch.setattr("slate_async.engine.write.open.log_references", log_references)
    async with open_db(objects, CONTIGUOUS_SST) as db:
        assert (db.status().sorted_runs, db.status().l0_ssts) == (1, 1)
        assert await contents(db) == {b"a": b"1", b"b": b"2"}


async def log_keys(store: ObjectStore) -> AsyncIterator[str]:
    async for info in store.list("log/"):
        yield info.key


async def test_fences_behind_rows_stay_in_the_log_until_the_rows_leave_it() -> None:
    store = memory_store()
    db = await open_db(store)
    await db.put(b"a", b"1")
    await abandon(db)
    for number in range(1, 4):
        db = await open_db(store)
        assert db.status().log_objects == 4 + 1 + 4 * number
        assert await contents(db) == {b"a": b"1"}
        await abandon(db)


@WITH_WAL
async def test_many_small_writes_leave_a_bounded_log(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, l0_flush_objects=8, flush_parallelism=1) as db:
        longest = 0
        for number in range(60):
            await db.put(b"%03d" % number, b"x")
            longest = max(longest, db._writer.state.memtables.log_objects)
        assert longest <= 8
        assert db.status().l0_ssts >= 60 // 8
        await abandon(db)
    async with open_db(store, kind) as db:
        assert len(await contents(db)) == 60


async def test_a_full_log_holds_writes_back_until_l0_has_room() -> None:
    async with open_db(memory_store(), l0_flush_objects=4, l0_max_ssts=2, flush_parallelism=1) as db:
        for number in range(2):
            await db.put(b"%d" % number, b"x")
            await db.flush(l0=True)

        async def write() -> None:
            for number in range(20):
                await db.put(b"x%d" % number, b"x")

        writing = asyncio.create_task(write())
        await until(lambda: db.status().waiting_writes > 0, "a full log")
        assert (db._writer.state.memtables.log_objects, db.status().l0_ssts) == (4, 2)
        while not writing.done():
            await db.compact()
        await writing
        assert len(await contents(db)) == 22


@WITH_WAL
async def test_rows_do_not_stay_in_the_log_alone_for_long(kind: Kind) -> None:
    async with open_db(memory_store(), kind, l0_flush_interval_ms=20) as db:
        await db.put(b"a", b"1")
        await until(lambda: db.status().l0_ssts == 1, "an SST")
        await db.put(b"b", b"2")
        await until(lambda: db.status().l0_ssts == 2, "another one")
        assert db._writer.state.memtables.log_objects == 0


async def test_without_an_interval_they_stay() -> None:
    async with open_db(memory_store(), l0_flush_interval_ms=0) as db:
        await db.put(b"a", b"1")
        assert db._writer.l0._young_for() is None


@WITH_WAL
@pytest.mark.parametrize(("rows", "left"), [(13, 0), (8, 8)])  # a fence is read like a row, up to four are there
async def test_closing_leaves_no_more_than_is_read_in_one_go(kind: Kind, rows: int, left: int, short: int) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        for number in range(rows):
            await db.put(b"%03d" % number, b"x")
    async with open_db(store, kind) as db:
        assert db._writer.state.memtables.log_objects == left
        assert (db.status().l0_ssts, len(await contents(db))) == (int(not left), rows)


async def test_closing_leaves_no_large_log() -> None:
    store = memory_store()
    async with open_db(store, l0_sst_bytes=8192) as db:
        await db.put(b"a", b"x" * 5000)
    async with open_db(store) as db:
        assert (db.status().l0_ssts, await db.get(b"a")) == (1, b"x" * 5000)


async def test_closing_does_not_wait_for_room_in_l0(short: int) -> None:
    store = memory_store()
    async with open_db(store, l0_max_ssts=2) as db:
        for key in (b"a", b"b"):
            await db.put(key, b"1")
            await db.flush(l0=True)
        for number in range(20):
            await db.put(b"%d" % number, b"x")
    async with open_db(store) as db:
        assert (db._writer.state.memtables.log_objects, len(await contents(db))) == (20, 22)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_status_says_what_the_next_opening_reads(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        fences = db.status().log_objects
        assert fences == (4 if kind.log_protocol == "contiguous" else 0)
        assert db.status().replay_ms is None
        for number in range(5):
            await db.put(b"%d" % number, b"x")
        told = db.status()
        assert told.log_objects == fences + 5 == told.log_end - told.log_start + 1
        assert told.replay_ms is not None
        await abandon(db)
    async with open_db(store, kind) as db:
        assert db.status().log_objects == 2 * fences + 5
        assert db.status().replay_ms is not None
        await db.compact(full=True)
        assert db.status().log_objects <= fences  # without a WAL those behind the last row


async def test_an_opening_ends_in_time_whatever_does_not_answer() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"a", b"1")
    stuck = Unanswered(store)
    with pytest.raises(slate.UnavailableError, match="takeover_deadline_ms"):
        await open_db(stuck, takeover_deadline_ms=50)
    assert stuck.asked
    async with open_db(store) as db:
        assert await contents(db) == {b"a": b"1"}


class Unanswered(StoreInHand):
    """A store that never answers a read of the log."""

    asked = False

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        if key.startswith("log/"):
            self.asked = True
            await asyncio.Event().wait()
        return await super().get(key, byte_range)


@dataclass(frozen=True)
class RaiseFloor:
    """What a collector does first; ``again``: however high the floor is."""

    again: bool = False

    def apply(self, state: ManifestState) -> ManifestState | None:
        return (
            None if state.sst_floor == state.version and not self.again else replace(state, sst_floor=state.version + 1)
        )


async def test_a_flush_begun_below_the_floor_is_redone_above_it() -> None:
    async with open_db(memory_store()) as db:  # polls far too seldom to notice
        await db.put(b"a", b"1")
        state = await db._opened.driver.commit(RaiseFloor())
        assert db.status().manifest_version < state.sst_floor
        await db.flush(l0=True)
        assert (await db.get(b"a"), db.status().l0_ssts) == (b"1", 1)


class CollectedAtOnce(StoreInHand):
    """A store beside which a collector refuses every L0 SST that was uploaded."""

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        etag = await super().put(key, data, mode=mode, metadata=metadata)
        if key.startswith("sst/"):
            await commit(self.inner, RaiseFloor(again=True))
        return etag


async def test_a_writer_whose_flushes_are_all_refused_says_what_to_change() -> None:
    store = memory_store()
    db = await open_db(CollectedAtOnce(store, watch="never/"))
    await db.put(b"a", b"1")
    with pytest.raises(slate.ClosedError):
        await db.flush(l0=True)
    with pytest.raises(slate.ClosedError, match="raise gc_min_age_ms"):
        await db.wait_closed()
    async with open_db(store) as db:
        assert await contents(db) == {b"a": b"1"}
