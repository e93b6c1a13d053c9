"""What a checkpoint shows, read with the loader alone: no writer, no reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from metastores.factories import PutIfAbsentFactory
from metastores.protocol import Register
from slate_async.engine.checkpoint.load import load_checkpoint
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.sources import Run, Table
from slate_async.engine.read.view import ReadView
from slate_async.engine.write.replay import Replayer, replay
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.log.extent import find_extent
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.state import Checkpoint, ManifestState, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.reader import SstReader
from slate_async.types import MAX_SEQ
from tests.engine import START_MS, runtime

RUNTIME = runtime()


@asynccontextmanager
async def manifest_of(store: ObjectStore) -> AsyncIterator[ManifestDriver]:
    """A driver of another process."""
    supervisor = Supervisor("another process", lambda cause: None)
    metastore = PutIfAbsentFactory().manifest(MetaObjects(store), "memory://test")
    driver = ManifestDriver(metastore, RUNTIME, supervisor, name="test", full_every=4, deadline_ms=5_000)
    assert await driver.load() is not None
    yield driver
    await driver.close()
    await supervisor.close()


def register_of(store: ObjectStore, state: ManifestState) -> Register | None:
    """The writer's register, if the database has one."""
    if state.log_protocol == "contiguous":
        return None
    return PutIfAbsentFactory().register(MetaObjects(store), "memory://test")


async def checkpoint_on_path(store: ObjectStore) -> Checkpoint:
    """A checkpoint of everything acknowledged so far, made beside the writer."""
    async with manifest_of(store) as driver:
        assert driver.head is not None
        extent = await find_extent(store, driver.load, register_of(store, driver.head))
        made = RUNTIME.ids.uuid()
        edit = CreateCheckpoint(made, "user", START_MS, None, log_end=extent.end, log_ranges=extent.ranges)
        return found(await driver.commit(edit), made)


def found(state: ManifestState, checkpoint_id: UUID) -> Checkpoint:
    checkpoint = state.checkpoint(checkpoint_id)
    assert checkpoint is not None
    return checkpoint


async def rows_of(store: ObjectStore, checkpoint: Checkpoint) -> dict[bytes, bytes]:
    """All live rows of ``checkpoint``."""
    async with manifest_of(store) as driver:
        loaded = await load_checkpoint(store, driver, checkpoint)
    state, cache = loaded.state, BlockCache(1 << 20)

    def reader(key: str, size: int, object_id: bytes) -> SstReader:
        return SstReader(
            store,
            key,
            size=size,
            database_id=state.database_id,
            object_id=object_id,
            cache=cache,
            offload=RUNTIME.offload,
            must_exist=True,
        )

    def of_log(one: LogObject) -> SstReader:
        return reader(one.key, one.size, one.header.object_id)

    def table(sst: SstRef) -> Table:
        return Table(sst.first_key, sst.last_key, reader(sst.location, sst.size, sst.object_id))

    replayer = Replayer(
        epoch=state.writer_epoch,
        table_bytes=1 << 20,
        segment_bytes=1 << 20,
        offload=RUNTIME.offload,
        open_sst=of_log,
        decoding=MemoryBudget(1 << 30),
        most_bytes=1 << 30,
    )
    replayed = await replay(loaded, replayer)
    view = ReadView(
        replayed.memtables.newest_first(),
        [*(log_table for _, log_table in replayed.log_ssts), *(table(sst) for sst in state.l0)],
        [Run(tuple(table(sst) for sst in run.ssts)) for run in state.runs],
        yield_budget=YieldBudget(RUNTIME.clock),
    )
    scan = Scan(
        ReadPoint(view, MAX_SEQ, START_MS), KeyRange(None, None), YieldBudget(RUNTIME.clock), check=lambda: None
    )
    return {key: value async for key, value in scan}
