"""A read that finds an object missing: the head is read once, and then it is fenced, goes on, or says what is lost."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.manifest.state import ManifestState, SortedRun
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reference import sst_ref
from tests.engine import KINDS, Kind, abandon, commit_elsewhere, contents, memory_store, open_db
from tests.read_model import Version, columns, newest_first

ROWS = {b"k%d" % number: b"value %d" % number for number in range(6)}
UNCACHED: dict[str, Any] = {"block_cache_bytes": 0, "auto_compaction": False}
Read = Callable[[slate.Db], Awaitable[object]]


async def read_snapshot(db: slate.Db) -> dict[bytes, bytes]:
    async with db.snapshot() as snapshot:
        return await contents(snapshot)


async def read_snapshot_key(db: slate.Db) -> bytes | None:
    async with db.snapshot() as snapshot:
        return await snapshot.get(b"k1")


READS: dict[str, tuple[Read, object]] = {
    "get": (lambda db: db.get(b"k1"), ROWS[b"k1"]),
    "get_many": (lambda db: db.get_many(list(ROWS)), list(ROWS.values())),
    "scan": (contents, ROWS),
    "snapshot": (read_snapshot, ROWS),
    "snapshot get": (read_snapshot_key, ROWS[b"k1"]),
}
reads = pytest.mark.parametrize("name", READS)
kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


@dataclass(frozen=True)
class Compacted:
    """A compactor's edit: one run in the place of all that is in L0 and, without a WAL, in the log."""

    run: SortedRun
    log_start: int
    last_seq: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.runs == (self.run,):
            return None
        return replace(
            state,
            l0=(),
            runs=(self.run,),
            log_start=max(state.log_start, self.log_start),
            log_floor=state.writer_epoch,
            last_seq=max(state.last_seq, self.last_seq),
        )


async def data_keys(store: MemoryStore) -> list[str]:
    """SSTs, and log objects that are more than fences."""
    return [info.key async for info in store.list() if info.key.startswith(("sst/", "log/")) and info.size > 80]


async def compact(store: MemoryStore, db: slate.Db, rows: list[Version]) -> None:
    """As another process would, and another one collects what it took: ``rows`` are what there is from now on."""
    status, state = db.status(), db._writer.state.manifest
    before = await data_keys(store)
    object_id = random.Random(len(rows)).randbytes(16)
    builder = SstBuilder(
        database_id=state.database_id, object_id=object_id, writer_epoch=1, manifest_version=state.version
    )
    builder.add(columns(newest_first(rows)))
    encoded = builder.finish()
    location = sst_key(state.version, object_id)
    await store.put(location, encoded.buffers)
    log_start = state.log_start if state.wal_enabled else status.log_end + 1
    run = SortedRun(state.version, (sst_ref(location, object_id, encoded, 1),))
    await commit_elsewhere(store, Compacted(run, log_start, max(row.seq for row in rows)))
    await store.delete(before)


async def fill(db: slate.Db, rows: dict[bytes, bytes], ttl: float | None = None) -> list[Version]:
    """Put ``rows`` where reads need the store for them: in two SSTs, whatever the timing."""
    written: list[Version] = []
    items = list(rows.items())
    for part in (items[::2], items[1::2]):
        batch = slate.WriteBatch()
        for key, value in part:
            batch.put(key, value, ttl=ttl)
        first = (await db.write(batch)).seq - len(part) + 1
        written += [Version(key, value, seq) for seq, (key, value) in enumerate(part, first)]
        await db.flush(l0=True)
    return written


def loads(db: slate.Db) -> int | float:
    return db.metrics()["manifest.loads"]


@kinds
@reads
async def test_a_fenced_writer_says_so(kind: Kind, name: str) -> None:
    store = memory_store()
    db = await open_db(store, kind, **UNCACHED)
    await fill(db, ROWS)
    newer = await open_db(store, kind)
    await abandon(newer)
    await store.delete(await data_keys(store))
    with pytest.raises(slate.FencedError):
        await READS[name][0](db)
    assert db.status().state == "fenced"
    await db.close()


@kinds
@reads
async def test_a_read_goes_on_where_the_manifest_has_moved_to(kind: Kind, name: str) -> None:
    store = memory_store()
    async with open_db(store, kind, **UNCACHED) as db:
        await compact(store, db, await fill(db, ROWS))
        before = loads(db)
        read, expected = READS[name]
        assert await read(db) == expected
        assert loads(db) == before + 1
        assert await read(db) == expected
        assert loads(db) == before + 1


@kinds
@reads
async def test_what_the_head_still_names_is_lost(kind: Kind, name: str) -> None:
    store = memory_store()
    async with open_db(store, kind, **UNCACHED) as db:
        await fill(db, ROWS)
        await store.delete(lost := await data_keys(store))
        before = loads(db)
        with pytest.raises(slate.CorruptionError, match="is missing") as caught:
            await READS[name][0](db)
        assert caught.value.object_name in lost
        assert loads(db) == before + 1
        assert db.status().state == "open"


@kinds
@pytest.mark.parametrize("reverse", [False, True])
async def test_a_scan_goes_on_behind_what_it_gave(kind: Kind, reverse: bool) -> None:
    """Blocks that were read ahead are given first, then those of the run that took the place of the lost SSTs."""
    draw = random.Random(3)
    rows = {b"%05d" % number: draw.randbytes(500) for number in range(2000)}
    store = memory_store()
    async with open_db(store, kind, **UNCACHED, compression="none") as db:
        written = await fill(db, rows)
        scan = db.scan(reverse=reverse)
        found: list[tuple[bytes, bytes]] = []
        async for row in scan:
            found.append(row)
            if len(found) == 100:
                await compact(store, db, written)
        assert found == sorted(rows.items(), reverse=reverse)
        assert db._writer.state.manifest.runs  # so it did miss something


@kinds
async def test_a_read_point_that_compaction_left_behind_is_not_made_up(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, **UNCACHED) as db:
        await fill(db, ROWS)
        snapshot, scan = db.snapshot(), db.scan()
        newer = dict.fromkeys(ROWS, b"newer")
        await compact(store, db, await fill(db, newer))
        for late in (contents(snapshot), snapshot.get(b"k1"), anext(aiter(scan))):
            with pytest.raises(slate.ConflictError, match="scan again, or take another snapshot"):
                await late
        assert await contents(db) == newer
        snapshot.close()


async def test_a_snapshot_whose_rows_expire_does_not_change_its_answer() -> None:
    """What a compactor drops by its clock may still be alive at the snapshot's time."""
    store = memory_store()
    async with open_db(store, **UNCACHED) as db:
        written = await fill(db, ROWS, ttl=60)
        async with db.snapshot() as snapshot:
            await compact(store, db, written[1:])
            with pytest.raises(slate.ConflictError):
                await contents(snapshot)
