"""A database with everything in it that something needs, and besides it a clone and a mirror."""

from __future__ import annotations

import pyarrow as pa

import slate_async as slate
from slate_async.codec.columns import concat
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.manifest.edits.compactions import ClaimCompactor, FinishRange, RegisterCompaction
from slate_async.storage.manifest.state import Compaction, ManifestState, RangeOutput, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.storage.sst.reference import sst_ref
from tests.engine import InlineOffload, Kind, on, runtime
from tests.support.settled_town import admin, compact, settled
from tests.support.towns import CLONE, PARENT, Town, numbered

MIRROR = "memory://mirror"
HALF = b"0020"


async def whole_town(kind: Kind) -> Town:
    """At `PARENT`: runs, L0, a log of several writers; checkpoints, one of them of a version with a pending ingest that
    is compacted by now; an ingest and a part of the log that only a feed's subscription needs; a pending
    ingest; a finished part of a compaction. At `CLONE` a clone, at `MIRROR` a mirror of it."""
    town = await settled(Town(kind))
    for name in (CLONE, MIRROR):
        town.store(name)
    async with town.open(PARENT) as db:
        async with db.changes(subscription="held"):
            pass
        await db.put(b"0060", b"fed")
        await ingest(town, "fed", {"0061": "fed"})
        await db.confirm()
        await db.flush(l0=True)
    await ingest(town, "of a checkpoint", {"0062": "pending then"})
    async with admin(town) as opened:
        await opened.checkpoints.create(name="pending")
    await town.write(PARENT, numbered(60, 70, b"later"), l0=True)
    await compact(town, PARENT)
    await collect(town, PARENT)
    await town.write(PARENT, numbered(5, 15, b"in L0"), l0=True)
    await town.write(PARENT, {b"0070": b"logged"})
    async with admin(town) as opened:
        await opened.checkpoints.create(name="copied")
        await opened.clone(CLONE, checkpoint="copied")
        await opened.mirror("copied", MIRROR)
    await town.write(PARENT, {b"0071": b"logged"}, flush_parallelism=2)
    await ingest(town, "pending", {"0072": "pending"})
    await finish_part(town)
    return town


async def ingest(town: Town, job_id: str, rows: dict[str, str]) -> None:
    """Commit a job; a writer that is there applies it."""
    table = pa.table({"key": list(rows), "value": list(rows.values())})
    settings = town.kind.settings()
    job_of = on(runtime(town.clock)).open_ingest(town.store(PARENT), job_id=job_id, name=PARENT, settings=settings)
    async with job_of as job:
        await job.write([table])
        await job.commit(wait=False)


async def collect(town: Town, name: str) -> None:
    """Everything that nothing needs goes, whatever its age."""
    settings = town.kind.settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    environment = slate.Environment(
        runtime=runtime(town.clock), stores={path: town.store(path) for path in town.objects}
    )
    store = town.store(name)
    async with environment, environment.open_gc(store, name=name, settings=settings, periodic=False) as collector:
        for _ in range(3):
            await collector.collect()


async def finish_part(town: Town) -> None:
    """What a compactor leaves that died when the first of its two ranges was finished."""
    async with town.process() as open_at, open_at(PARENT) as database:
        state = await database.driver.commit(ClaimCompactor("1" * 32))
        [run] = state.runs
        job = Compaction(
            id=database.runtime.ids.uuid(),
            epoch=state.compactor_epoch,
            base_version=state.version,
            expired_at_ms=town.clock.now_ms(),
            keep_above=state.last_seq,
            bottom=True,
            l0=(),
            runs=(run.id,),
            target_run=state.last_run_id + 1,
            target_level=0,
            bounds=(HALF,),
        )
        state = await database.driver.commit(RegisterCompaction(job))
        part = await half_of(town, state, run.ssts[0])
        await database.driver.commit(FinishRange(state.compactor_epoch, job.id, RangeOutput(0, (part,))))


async def half_of(town: Town, state: ManifestState, sst: SstRef) -> SstRef:
    """The first half of ``sst`` as another SST."""
    store, object_id = town.store(PARENT), runtime().ids.ulid(town.clock.now_ms())
    reader = SstReader(
        store,
        sst.location,
        size=sst.size,
        database_id=state.database_id,
        object_id=sst.object_id,
        cache=BlockCache(0),
        offload=InlineOffload(),
    )
    builder = SstBuilder(
        database_id=state.database_id,
        object_id=object_id,
        writer_epoch=sst.writer_epoch,
        manifest_version=state.version,
    )
    builder.add(concat([rows async for rows in reader.scan(None, HALF)]))
    encoded, key = builder.finish(), sst_key(state.version, object_id)
    await store.put(key, encoded.buffers)
    return sst_ref(key, object_id, encoded, sst.writer_epoch)
