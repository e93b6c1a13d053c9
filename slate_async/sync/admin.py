"""`Admin`: work on a database that needs no writer."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import BytesLike
from slate_async.database import admin as asynchronous
from slate_async.database.ingests import Ingests as EngineIngests
from slate_async.database.inspection import Inspection as EngineInspection
from slate_async.engine.changes.feed import BATCH_ROWS
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.clone.info import CloneInfo
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.ingest.manage import IngestApp, IngestInfo
from slate_async.engine.ingest.orphans import IngestObject
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.time_travel import TimeLike
from slate_async.maintenance.inspection.log import LogInspection
from slate_async.maintenance.inspection.manifest import ManifestInspection, RunInspection
from slate_async.maintenance.inspection.sst import SstInspection
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.checkpoints import Checkpoints
from slate_async.sync.handle import Handle


class Ingests:
    """``admin.ingests``. Methods and errors are those of `slate_async.Ingests`."""

    def __init__(self, loop: LoopThread, ingests: EngineIngests) -> None:
        self._loop = loop
        self._ingests = ingests

    def list(self) -> builtins.list[IngestInfo]:
        """Bulk ingests on their way, the oldest first; then the last ones that have ended."""
        return self._loop.run(self._ingests.list)

    def abort(self, job_id: str, *, unless_committed: bool = False) -> IngestInfo:
        """End an ingest that was not applied yet."""
        return self._loop.run(self._ingests.abort, job_id, unless_committed=unless_committed)

    def objects(self, job_id: str | None = None) -> builtins.list[IngestObject]:
        """SSTs that tasks of one ingest, or of all, have uploaded and that are still there."""
        return self._loop.run(self._ingests.objects, job_id)

    def apps(self) -> builtins.list[IngestApp]:
        """Streams of which a batch is in, by name."""
        return self._loop.run(self._ingests.apps)

    def forget_app(self, app_id: str) -> None:
        """Forget a stream that has ended: its last batch, and the jobs of its batches."""
        self._loop.run(self._ingests.forget_app, app_id)


class Inspection:
    """``admin.inspect``. Methods and errors are those of `slate_async.Inspection`."""

    def __init__(self, loop: LoopThread, inspection: EngineInspection) -> None:
        self._loop = loop
        self._inspection = inspection

    def manifest(self) -> ManifestInspection:
        """The newest version of the manifest as it is stored."""
        return self._loop.run(self._inspection.manifest)

    def log(self) -> LogInspection:
        """Every object of the log and what it is to the database, and the writer's register."""
        return self._loop.run(self._inspection.log)

    def sst(self, wanted: str) -> SstInspection:
        """One SST, by its key or its object id."""
        return self._loop.run(self._inspection.sst, wanted)

    def runs(self) -> list[RunInspection]:
        """L0, SST by SST, then the sorted runs, newest first."""
        return self._loop.run(self._inspection.runs)


class Admin(Handle[asynchronous.Admin]):
    """Made by `slate_async.sync.open_admin`, never directly. Methods and errors are those of `slate_async.Admin`.

    Callbacks are called in the loop's thread: they must not call what is opened here."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""
    ingests: Ingests
    """Bulk ingests into the database, whichever process began them."""
    inspect: Inspection
    """Shows what is stored, as it is stored."""

    def __init__(self, loop: LoopThread, admin: asynchronous.Admin) -> None:
        super().__init__(loop, admin)
        self.checkpoints = Checkpoints(loop, admin.checkpoints)
        self.ingests = Ingests(loop, admin.ingests)
        self.inspect = Inspection(loop, admin.inspect)

    def seq_to_time(self, seq: int) -> float:
        """When sequence number ``seq`` was written, in seconds since the epoch."""
        return self._loop.run(self._handle.seq_to_time, seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """The highest sequence number known to be written at ``time`` or before."""
        return self._loop.run(self._handle.time_to_seq, time)

    def verify(self, *, on_progress: Callable[[VerifyProgress], None] | None = None) -> VerifyReport:
        """Read everything and compare. What is wrong is in the report, and raises nothing."""
        return self._loop.run(self._handle.verify, on_progress=on_progress)

    def mirror(
        self,
        checkpoint: UUID | str,
        path: str | os.PathLike[str],
        *,
        metastore: str | MetaStoreFactory | None = None,
        prune: bool = False,
        on_progress: Callable[[MirrorProgress], None] | None = None,
    ) -> MirrorReport:
        """Copy what a checkpoint keeps to ``path``, an empty place or an earlier mirror of this database."""
        return self._loop.run(
            self._handle.mirror, checkpoint, path, metastore=metastore, prune=prune, on_progress=on_progress
        )

    def clone(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint: UUID | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CloneInfo:
        """Make the database at ``path`` a clone of this one."""
        return self._loop.run(self._handle.clone, path, checkpoint=checkpoint, properties=properties)

    def destroy(self, *, soft: bool = False, lost: bool = False) -> None:
        """Destroy the database: its writer is fenced, and all of it is deleted but a small tombstone."""
        self._loop.run(self._handle.destroy, soft=soft, lost=lost)

    def detach(self) -> bool:
        """Give the parents' checkpoints back if this is a clone and nothing of it names their SSTs any more."""
        return self._loop.run(self._handle.detach)

    def adopt_place(self) -> None:
        """Say that the database is here, of one whose metadata is kept elsewhere; see the `adopt_place` of `Admin`."""
        self._loop.run(self._handle.adopt_place)

    def merge_range(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Run one key range of a compaction, for the compactor of this database, which is elsewhere."""
        return self._loop.run(self._handle.merge_range, task, progress)

    def read_changes(
        self,
        subscription: str,
        after: FeedPosition,
        until_seq: int,
        *,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        max_rows: int = BATCH_ROWS,
        ahead: ReadAhead | None = None,
    ) -> Iterator[RecordBatch]:
        """The changes above ``after`` up to ``until_seq``, of a feed elsewhere that retains them by its
        ``subscription``."""
        batches = self._loop.call(
            self._handle.read_changes,
            subscription,
            after,
            until_seq,
            start=start,
            end=end,
            max_rows=max_rows,
            ahead=ahead,
        )

        async def step() -> RecordBatch | None:
            return await anext(batches, None)

        try:
            while (batch := self._loop.run(step)) is not None:
                yield batch
        finally:
            self._loop.run(batches.aclose)
