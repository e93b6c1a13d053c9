"""`Admin`: work on a database that needs no writer, such as checkpoints of what is there. Wiring only; see `Handle`.

It claims no role, so writers, readers and compactors that run elsewhere are not disturbed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.arguments import BytesLike, check_clone_arguments, own_path
from slate_async.database.checkpoints import Checkpoints
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.ingests import Ingests
from slate_async.database.inspection import Inspection
from slate_async.engine.changes.feed import BATCH_ROWS
from slate_async.engine.changes.open import read_changes
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.checkpoint.manage import Scope
from slate_async.engine.clone.adopt import adopt
from slate_async.engine.clone.destroy import destroy
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.clone.info import CloneInfo
from slate_async.engine.clone.lost import give_up_lost
from slate_async.engine.clone.make import make_clone
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.engine.compaction.open import merge_range
from slate_async.engine.follow.open import read_now
from slate_async.engine.proved_metadata import ProvedMetadata
from slate_async.engine.read.bounds import EVERY_KEY, key_range
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.time_travel import TimeLike, seq_to_time, time_to_seq
from slate_async.engine.stored_database import StoredDatabase, stored_opener
from slate_async.errors import InvalidError
from slate_async.maintenance.mirror.make import make_mirror
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport
from slate_async.maintenance.verify.verifier import Verifier
from slate_async.storage.log.extent import LogExtent

OpenElsewhere: TypeAlias = Callable[[str, str | MetaStoreFactory | None], AbstractAsyncContextManager[StoredDatabase]]
"""Opens the database at any URL, with its metadata in any metastore."""


class Admin(Handle):
    """Made by `slate_async.open_admin` or `Environment.open_admin`, never directly. Opening it sends nothing.

    Errors of every method: `InvalidError` for wrong arguments, or when there is no database; `ClosedError` after
    closing; `UnavailableError`, `CorruptionError`."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""
    ingests: Ingests
    """Bulk ingests into the database, whichever process began them."""
    inspect: Inspection
    """Shows what is stored, as it is stored."""

    _noun = "administration"

    def __init__(
        self,
        resources: HandleResources,
        elsewhere: OpenElsewhere,
    ) -> None:
        super().__init__(resources)
        context, supervisor = resources.context, resources.supervisor
        self._elsewhere = elsewhere
        self._open_stored = stored_opener(context, supervisor)
        self._metadata = ProvedMetadata(context, supervisor)
        driver = self._metadata.driver
        self.checkpoints = Checkpoints(driver, context.runtime, self._guard, self._log_extent)
        self.ingests = Ingests(context, driver, self._guard)
        self.inspect = Inspection(context, self._open_stored, self._guard)

    async def seq_to_time(self, seq: int) -> float:
        """See `DbReader.seq_to_time`; what is in the log is read for it."""
        self._check()
        async with read_now(self._context, self._supervisor) as (point, reader_state):
            return seq_to_time(point, reader_state.manifest, reader_state.samples, seq)

    async def time_to_seq(self, time: TimeLike) -> int:
        """See `DbReader.time_to_seq`; what is in the log is read for it."""
        self._check()
        async with read_now(self._context, self._supervisor) as (point, reader_state):
            return time_to_seq(point, reader_state.manifest, reader_state.samples, time)

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

        A database lies there then, with the same id and contents, which can be read, or opened to write. Later
        checkpoints are mirrored onto it, as long as no writer or compactor opened it. Only what is new is copied
        then. Until the new checkpoint is whole there, the mirror shows the one before. A repeated call resumes an
        interrupted one.

        checkpoint: id or name of a user's checkpoint
        metastore: where the mirror keeps its metadata; ``None``: beside its data, whatever this database does
        prune: then delete what the mirror no longer needs; readers of the mirror keep what they read
        on_progress: called after each SST

        Each SST's checksum is compared before it is written; of the mirror, `verify` compares everything. Raises
        `InvalidError` for a missing checkpoint, and for a target that holds something else, was written to, or is
        newer than the checkpoint. Raises `CorruptionError` for damage in this database, and `UnavailableError`."""
        self._check()
        place = own_path(path, "mirror")
        if not isinstance(checkpoint, UUID | str):
            raise InvalidError(f"checkpoint is an id or a name, not {type(checkpoint).__name__}")
        async with self._open_stored(self._name) as source, self._elsewhere(place, metastore) as target:
            return await make_mirror(
                source, target, checkpoint, self._context.ssts, prune=prune, on_progress=on_progress
            )

    async def clone(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint: UUID | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CloneInfo:
        """Make the database at ``path`` a clone of this one: it shares the SSTs, copies the log, and goes its own way.

        path: an empty place in the same kind of store, perhaps another bucket, reached as this database is. Its
        metadata is kept in the same metastore
        checkpoint: id or name of the checkpoint to clone; ``None`` clones the database as it is now
        properties: kept with the clone; ``None`` takes this database's

        The call resumes a clone that was begun and not finished; it changes nothing at a finished one. Raises
        `InvalidError` for a target that holds another database, or a clone begun with other arguments, and for a
        missing checkpoint. Raises `CorruptionError` for damage in the log, and `UnavailableError`."""
        self._check()
        place = own_path(path, "clone")
        check_clone_arguments(checkpoint, properties)
        async with self._open_stored(self._name) as parent, self._open_stored(place) as target:
            state = await make_clone(parent, target, self._open_stored, checkpoint=checkpoint, properties=properties)
        return CloneInfo.of(target.name, parent.name, state)

    async def destroy(self, *, soft: bool = False, lost: bool = False) -> None:
        """Destroy the database: its writer is fenced, it cannot be opened any more, and all of it is deleted but a
        small tombstone. Databases nested below its path, and files that are not a database's, stay.

        soft: delete nothing yet. A garbage collector does, after `Settings.gc_destroy_grace_ms`, once no checkpoint
        holds it
        lost: its objects and their place are lost, and only its metadata is left, which is kept elsewhere: erase that.
        Stop its writer first; else it ends at its next commit. Refused where any object of a database is left

        Raises `InvalidError` if there is no database, or (unless ``soft``) a live checkpoint of a user, a reader or a
        clone. Raises `UnavailableError`, after which a repeated call resumes."""
        self._check()
        if soft and lost:
            raise InvalidError("destroy takes soft or lost, not both")
        async with self._open_stored(self._name) as database:
            await (give_up_lost(database) if lost else destroy(database, self._open_stored, soft=soft))

    async def adopt_place(self) -> None:
        """Make this place the database's own. Its metadata is kept elsewhere, and its objects were moved, or it was
        created before places had markers.

        The place gets a new marker. Any other place stops being the database's, and a writer there is fenced. A place
        that is the database's already stays as it is. Two concurrent calls for one place both succeed. Of two for two
        places one raises `ConflictError`.

        Raises `InvalidError` if there is no database, its metadata is in the same store, nothing of it is here, or
        the place is another database's. Raises `CorruptionError` if an object that it needs is not here, though
        others are. Raises `UnavailableError`, after which a repeated call resumes."""
        self._check()
        async with self._open_stored(self._name) as database:
            await adopt(database)

    async def detach(self) -> bool:
        """Give the parents' checkpoints back if this is a clone and nothing of it names their SSTs any more, as garbage
        collectors do. Whether it has no parents now."""
        self._check()
        async with self._open_stored(self._name) as database:
            return await detach_if_free(database, self._open_stored)

    async def merge_range(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Run one key range of a compaction for the compactor of this database, which is elsewhere and commits the
        result. An executor on other machines calls it there. Output that is not committed is garbage.

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

        Raises `InvalidError` besides if the subscription does not exist, or the changes were acknowledged."""
        self._check()
        span = key_range(start, end, None)
        if ahead is not None and span != EVERY_KEY:
            raise InvalidError("what is read ahead is of all keys; give either ahead or start and end")
        batches = read_changes(
            self._context,
            self._metadata,
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

    async def _log_extent(self, scope: Scope, force_flush: bool) -> LogExtent:
        """Whatever the scope, all that can be seen from here."""
        return await self._guard.while_open(self._metadata.log_extent())

    # ---- its life (see `Handle`)

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return self._metadata.closers()

    def __repr__(self) -> str:
        return f"<Admin {self._name} {self._state}>"
