"""`Admin`: work on a database that needs no writer, such as checkpoints of what is there. Wiring only; see `Handle`.

It claims no role, so writers, readers and compactors that run elsewhere are not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import TypeAlias
from uuid import UUID

from metastores.protocol import MetaStoreFactory, Register
from slate_async.arguments import Duration, own_path
from slate_async.database.checkpoints import KeepsCheckpoints
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.lineage import HasLineage
from slate_async.engine.changes.feed import BATCH_ROWS
from slate_async.engine.changes.open import read_changes
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.checkpoint import manage
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.engine.checkpoint.manage import Scope
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.open import merge_range
from slate_async.engine.follow.open import open_reading
from slate_async.engine.follow.reader_state import ReaderState
from slate_async.engine.ingest.manage import IngestInfo, abort, all_jobs, check_job
from slate_async.engine.ingest.orphans import IngestObject, ingest_objects
from slate_async.engine.read.bounds import EVERY_KEY, BytesLike, key_range
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.time_travel import TimeLike, seq_to_time, time_to_seq
from slate_async.engine.stored_database import StoredDatabase, stored_opener
from slate_async.errors import InvalidError
from slate_async.maintenance.inspection.log import LogInspection, inspect_log
from slate_async.maintenance.inspection.manifest import (
    ManifestInspection,
    RunInspection,
    inspect_manifest,
    inspect_runs,
)
from slate_async.maintenance.inspection.sst import SstInspection, inspect_sst
from slate_async.maintenance.mirror.make import make_mirror
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport
from slate_async.maintenance.verify.verifier import Verifier
from slate_async.runtime.concurrent import run_all, run_to_completion
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.manifest.edits.ingests import ForgetApp
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.ownership import proved_head
from slate_async.storage.manifest.state import ManifestState

OpenElsewhere: TypeAlias = Callable[[str, str | MetaStoreFactory | None], AbstractAsyncContextManager[StoredDatabase]]
"""Opens the database at any URL, with its metadata in any metastore."""


class Admin(Handle, KeepsCheckpoints, HasLineage):
    """Made by `slate_async.open_admin` or `Environment.open_admin`, never directly. Opening it sends nothing.

    Errors of every method: `InvalidError` for wrong arguments, or when there is no database; `ClosedError` after
    closing; `UnavailableError`, `CorruptionError`."""

    _noun = "administration"

    def __init__(
        self,
        resources: HandleResources,
        elsewhere: OpenElsewhere,
    ) -> None:
        Handle.__init__(self, resources)
        context, supervisor = resources.context, resources.supervisor
        KeepsCheckpoints.__init__(self, context.name, context.driver(supervisor), context.runtime)
        HasLineage.__init__(self, context.name, stored_opener(context, supervisor))
        self._elsewhere = elsewhere
        self._register: Register | None = None

    async def create_checkpoint(
        self,
        *,
        scope: Scope = "all",
        force_flush: bool = True,
        lifetime: Duration | None = None,
        source: UUID | str | None = None,
        name: str | None = None,
    ) -> CheckpointInfo:
        """Keep the database as it is now readable: everything that is acknowledged by the call, and no less.

        What a writer has acknowledged as ``flushed`` only (see the setting ``ack``) counts once it is committed.

        scope, force_flush: taken as `Db.create_checkpoint` takes them. They change nothing: what a writer holds in its
        memory is out of reach from here, and what can be seen is durable
        lifetime: seconds or a timedelta from now; ``None`` for ever
        source: id or name of a checkpoint to keep as it is instead
        name: for people; several may have the same

        Raises `InvalidError` for a source that is gone or has expired, and for a destroyed database."""
        self._check()
        manage.check_request(scope, lifetime, source, name)
        if source is not None:
            return await self._copy_checkpoint(source, lifetime, name)
        return await self._new_checkpoint(await self._while_open(self._log_extent()), lifetime, name)

    async def seq_to_time(self, seq: int) -> float:
        """See `DbReader.seq_to_time`; what is in the log is read for it."""
        async with self._reader_state() as (point, reader_state):
            return seq_to_time(point, reader_state.manifest, reader_state.samples, seq)

    async def time_to_seq(self, time: TimeLike) -> int:
        """See `DbReader.time_to_seq`; what is in the log is read for it."""
        async with self._reader_state() as (point, reader_state):
            return time_to_seq(point, reader_state.manifest, reader_state.samples, time)

    @asynccontextmanager
    async def _reader_state(self) -> AsyncIterator[tuple[ReadPoint, ReaderState]]:
        """The database as a reader that pins nothing sees it now."""
        self._check()
        opened = await open_reading(self._context, self._supervisor, checkpoint=None, pin=False)
        try:
            reader_state = opened.source.reader_state
            yield (
                ReadPoint(reader_state.view, reader_state.last_seq, self._context.runtime.clock.now_ms()),
                reader_state,
            )
        finally:
            closers = [opened.driver.close, *([] if opened.register is None else [opened.register.close])]
            await run_to_completion(run_all(closers))

    async def list_ingests(self) -> list[IngestInfo]:
        """Bulk ingests on their way, the oldest first; then the last ones that have ended, the latest first."""
        self._check()
        return all_jobs(await self._while_open(self._driver.existing(self._name)))

    async def abort_ingest(self, job_id: str, *, unless_committed: bool = False) -> IngestInfo:
        """End an ingest that was not applied yet; see `IngestJob.abort`."""
        self._check()
        check_job(job_id)
        return await self._while_open(
            abort(self._driver, self._context.runtime.clock, job_id, unless_committed=unless_committed)
        )

    async def list_ingest_objects(self, job_id: str | None = None) -> list[IngestObject]:
        """SSTs that tasks of one ingest, or of all, have uploaded and that are still there: also those of attempts that
        failed, which a collector deletes when the job has ended. Asks the store about each."""
        self._check()
        state = await self._while_open(self._driver.existing(self._name))
        return [one async for one in ingest_objects(self._context.store, state, job_id)]

    async def forget_ingest_app(self, app_id: str) -> None:
        """Forget the last batch of a stream that has ended; a batch of it would be taken again."""
        self._check()
        await self._while_open(self._driver.commit(ForgetApp(app_id)))

    async def inspect_manifest(self) -> ManifestInspection:
        """The newest version of the manifest as it is stored."""
        self._check()
        async with self._open_stored(self._name) as database:
            return await inspect_manifest(database)

    async def inspect_log(self) -> LogInspection:
        """Every object of the log and what it is to the database, and the writer's register."""
        self._check()
        async with self._open_stored(self._name) as database:
            return await inspect_log(database)

    async def inspect_sst(self, wanted: str) -> SstInspection:
        """One SST, by its key or its object id (32 hexadecimal digits)."""
        self._check()
        async with self._open_stored(self._name) as database:
            return await inspect_sst(database, wanted, self._context.ssts)

    async def inspect_runs(self) -> list[RunInspection]:
        """L0, SST by SST, then the sorted runs, newest first."""
        return inspect_runs((await self.inspect_manifest()).state)

    async def verify(self, *, on_progress: Callable[[VerifyProgress], None] | None = None) -> VerifyReport:
        """Read everything and compare: every version that lives, the log, every SST, a clone's in its parents too.

        Nothing is written, and the database may be written, compacted and collected meanwhile. What is wrong is in the
        report, and raises nothing. ``on_progress`` is called after each object."""
        self._check()
        async with self._open_stored(self._name) as database:
            return await Verifier(database, self._context.ssts, self._open_stored, on_progress).verify()

    async def mirror(
        self,
        checkpoint: UUID | str,
        path: str | os.PathLike[str],
        *,
        metastore: str | MetaStoreFactory | None = None,
        prune: bool = False,
        on_progress: Callable[[MirrorProgress], None] | None = None,
    ) -> MirrorReport:
        """Copy what a checkpoint keeps to ``path``, an empty place or an earlier mirror of this database, in any store.

        A database lies there then, with the same id and contents, which can be read, or opened to write. It is mirrored
        onto again, with a later checkpoint, for as long as nobody opened it to write or to compact; then only what is
        new is copied. Until the new checkpoint is whole there, the mirror shows the one before. Broken off and called
        again, it goes on.

        checkpoint: id or name of a user's checkpoint
        metastore: where the mirror keeps its metadata; ``None``: beside its data, whatever this database does
        prune: then delete what the mirror no longer needs; readers of the mirror keep what they read
        on_progress: called after each SST

        Each SST's checksum is compared before it is written; of the mirror, `verify` compares everything. Raises
        `InvalidError` for a checkpoint that is gone, and for a place that holds something else, was written to, or
        shows a later moment; `CorruptionError` for damage in this database; `UnavailableError`."""
        self._check()
        place = own_path(path, "mirror")
        if not isinstance(checkpoint, UUID | str):
            raise InvalidError(f"checkpoint is an id or a name, not {type(checkpoint).__name__}")
        async with self._open_stored(self._name) as source, self._elsewhere(place, metastore) as target:
            return await make_mirror(
                source, target, checkpoint, self._context.ssts, prune=prune, on_progress=on_progress
            )

    async def merge_range(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Run one key range of a compaction, for the compactor of this database, which is elsewhere and commits the
        result: what an executor on other machines calls there. Output that nobody commits is garbage.

        Raises what `slate_async.engine.compaction.executor.Executor.run` raises."""
        self._check()
        return await merge_range(self._context, task, progress)

    async def read_changes(
        self,
        subscription: str,
        after: FeedPosition,
        until_seq: int,
        *,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        max_rows: int = BATCH_ROWS,
        ahead: ReadAhead | None = None,
    ) -> AsyncGenerator[RecordBatch, None]:
        """The changes above ``after`` up to ``until_seq``, of a feed elsewhere that retains them by its
        ``subscription`` (a name) and is at or past that number: record batches as of `ChangeFeed.batches`. Nothing is
        written; the feed keeps its subscription, and acknowledges nothing of this meanwhile.

        start, end: only of keys from the first (inclusive) to the second (exclusive). SSTs are in the order of keys,
        so many may share what is there of a range of sequence numbers
        ahead: what was found in SSTs besides, for the next call, which reads on behind ``until_seq`` of all keys

        Raises `InvalidError` besides when the subscription is gone, or they were acknowledged."""
        self._check()
        span = key_range(start, end, None)
        if ahead is not None and span != EVERY_KEY:
            raise InvalidError("what is read ahead is of all keys; give either ahead or start and end")
        head = await self._head()
        register = self._known_register(head)
        batches = read_changes(
            self._context,
            self._driver,
            register,
            head,
            subscription=subscription,
            after=after,
            until_seq=until_seq,
            max_rows=max_rows,
            span=span,
            ahead=ahead,
        )
        async with aclosing(batches):
            async for batch in batches:
                yield batch

    async def _log_extent(self) -> LogExtent:
        register = self._known_register(await self._head())
        check = partial(self._context.ground.check_again, load_head=self._driver.load)
        return await find_extent(self._context.store, self._driver.load, register, check)

    async def _head(self) -> ManifestState:
        head = await proved_head(self._context.ground, self._driver)
        check_usable(head)
        return head

    def _known_register(self, head: ManifestState) -> Register | None:
        if self._register is None:
            self._register = self._context.register(head)
        return self._register

    # ---- its life (see `Handle`)

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._driver.close, *([] if self._register is None else [self._register.close])]

    def __repr__(self) -> str:
        return f"<Admin {self._name} {self._state}>"
