"""Inputs for an executor, an executor for them, and its output read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.engine.compaction.executor import RangeResult, RangeTask
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import override_of
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.storage.sst.reference import sst_ref
from tests.engine import runtime
from tests.read_model import Version, columns, newest_first, versions

DATABASE = UUID(int=7)
EPOCHS = (3, 5, 4)


@dataclass
class MergeHarness:
    """A store with inputs in it, and an executor."""

    store: ObjectStore

    async def sst(self, rows: Sequence[Version], *, epoch: int = 1) -> SstRef:
        """An input of some sorted rows, in blocks of a few rows."""
        clock = runtime()
        object_id = clock.ids.ulid(0)
        builder = SstBuilder(
            database_id=DATABASE, object_id=object_id, writer_epoch=epoch, manifest_version=1, block_bytes=100
        )
        builder.add(columns(newest_first(rows)))
        encoded = builder.finish()
        await self.store.put(sst_key(1, object_id), encoded.buffers)
        return sst_ref(sst_key(1, object_id), object_id, encoded, epoch)

    async def task(self, *sources: Sequence[Version], **changes: object) -> RangeTask:
        """A task over sources of one SST each, newest first."""
        ssts = [await self.sst(rows, epoch=EPOCHS[number % 3]) for number, rows in enumerate(sources) if rows]
        task = RangeTask(
            database_id=DATABASE,
            base_version=9,
            sources=tuple((sst,) for sst in ssts),
            start=None,
            end=None,
            keep_above=2**62,
            expired_at_ms=0,
            bottom=True,
            sst_bytes=1 << 20,
            block_bytes=200,
            compression="none",
            filter_bits_per_key=10,
        )
        return replace(task, **changes)  # type: ignore[arg-type]

    def open_sst(self, sst: SstRef) -> SstReader:
        return SstReader(
            self.store,
            sst.location,
            size=sst.size,
            database_id=DATABASE,
            object_id=sst.object_id,
            cache=BlockCache(0),
            offload=runtime().offload,
            override=override_of(sst),
        )

    async def run(self, task: RangeTask) -> RangeResult:
        return await LocalExecutor(self.store, self.open_sst, runtime()).run(task)

    async def rows(self, result: RangeResult) -> list[Version]:
        """All rows of an output, in order."""
        return [
            row for sst in result.ssts async for batch in self.open_sst(sst).scan(None, None) for row in versions(batch)
        ]
