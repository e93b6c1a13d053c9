"""Edits of the beginning and the end of a database: made as a clone, detached from its parents, destroyed, recreated
(see `slate_async.storage.manifest.edits.protocol` for what an edit is).

Each names the database it is about by id: one that was recreated on the same path is another one, and an edit meant
for the old one never changes it.

Rule 29: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from msgspec import structs

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError, FencedError, InvalidError
from slate_async.storage.manifest.edits.places import at_the_place_of
from slate_async.storage.manifest.edits.protocol import check_database
from slate_async.storage.manifest.edits.writer import ClaimWriter
from slate_async.storage.manifest.state import Checkpoint, ManifestState, Parent, SortedRun, SstRef

# ---- clones


def unfinished_clone(
    source: ManifestState, parent: Parent, *, database_id: UUID, now_ms: int, properties: Mapping[str, str] | None
) -> ManifestState:
    """The first version of a clone: whose it is to be, and no contents. ``properties`` unset are the parent's."""
    return ManifestState(
        database_id=database_id,
        log_protocol=source.log_protocol,
        wal_enabled=source.wal_enabled,
        created_ms=now_ms,
        properties=source.properties if properties is None else MappingProxyType(dict(properties)),
        merge_operator=source.merge_operator,
        initialized=False,
        parents=(parent,),
    )


@dataclass(frozen=True, slots=True)
class CopyContents:
    """Give the unfinished clone what ``source``, the version pinned by ``checkpoint`` in its parent, holds.

    From then on it says which log positions belong to it, before the first of them is copied: so a process that
    destroys it midway, and makes a database there again, knows which positions a copier that sleeps may still put.
    Its mark is the writer epoch, which no unfinished clone has before."""

    database_id: UUID
    source: ManifestState
    checkpoint: Checkpoint

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to the clone it is about, once."""
        check_unfinished(state, self.database_id)
        if state.initialized or state.writer_epoch > 0:
            return None
        source, checkpoint = self.source, self.checkpoint
        [parent] = state.parents
        return replace(
            at_the_place_of(source, state),
            database_id=state.database_id,
            created_ms=state.created_ms,
            properties=state.properties,
            ref=state.ref,
            initialized=False,
            writer_epoch=source.writer_epoch + 1,
            writer_token="",
            compactor_token="",
            heartbeat_interval_ms=None,
            log_last_seen=checkpoint.log_start - 1 if checkpoint.log_end is None else checkpoint.log_end,
            sst_floor=0,
            l0=tuple(_as_parents(sst, source.database_id) for sst in source.l0),
            runs=tuple(_run_as_parents(run, source.database_id) for run in source.runs),
            checkpoints=(),
            compactions=(),
            ingests=(),
            parents=(parent, *_ancestors(source)),
            mirrored=None,
        )


def _as_parents(sst: SstRef, database_id: UUID) -> SstRef:
    return sst if sst.database_id is not None else structs.replace(sst, database_id=database_id)


def _run_as_parents(run: SortedRun, database_id: UUID) -> SortedRun:
    return replace(run, ssts=tuple(_as_parents(sst, database_id) for sst in run.ssts))


def _ancestors(source: ManifestState) -> Iterator[Parent]:
    """The parents of a clone that is cloned, as far as its SSTs are theirs; their checkpoints are its own."""
    named = {sst.database_id for sst in source.ssts()}
    for parent in source.parents:
        if parent.database_id in named:
            yield replace(parent, checkpoint_id=None, source_id=None)


@dataclass(frozen=True, slots=True)
class FinishClone:
    """Everything is copied: the clone may be opened."""

    database_id: UUID

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to the clone it is about. Its mark is ``initialized``."""
        check_unfinished(state, self.database_id)
        return None if state.initialized else replace(state, initialized=True)


def check_unfinished(state: ManifestState, database_id: UUID) -> None:
    """Raise `InvalidError` unless ``state`` is of that database and not destroyed."""
    if state.database_id != database_id or state.destroyed_at_ms is not None:
        raise InvalidError("the clone was destroyed while it was being made")


# ---- detaching


def names_foreign(state: ManifestState) -> bool:
    """Whether ``state`` itself, or a compaction registered in it, names an SST of another database."""
    finished = (sst for compaction in state.compactions for output in compaction.finished for sst in output.ssts)
    return any(sst.database_id is not None for ssts in (state.ssts(), finished) for sst in ssts)


@dataclass(frozen=True, slots=True)
class DetachParents:
    """No SST of a parent is named any more: say so, and remember only the checkpoints to be given back.

    since: a version that names none, as a head: what is added later is the clone's own, so no later version names any
    free: earlier versions that were read and name none; every other checkpoint must be of ``since`` or later"""

    database_id: UUID
    since: int
    free: frozenset[VersionRef] = frozenset()

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies if it is so in the state being edited, else raises `ConflictError`. Its mark is in the parents."""
        check_database(state, self.database_id)
        if all(parent.detached for parent in state.parents):
            return None
        unread = any(
            checkpoint.ref.version < self.since and checkpoint.ref not in self.free for checkpoint in state.checkpoints
        )
        if not state.initialized or names_foreign(state) or unread:
            raise ConflictError(
                "the clone still names, or may name, SSTs of its parents; try again after a compaction",
                outcome="not_applied",
            )
        return replace(state, parents=_detached(state))


def _detached(state: ManifestState) -> tuple[Parent, ...]:
    return tuple(replace(parent, detached=True) for parent in state.parents if parent.checkpoint_id is not None)


@dataclass(frozen=True, slots=True)
class ForgetParent:
    """The checkpoint that a detached parent held for this clone was deleted."""

    database_id: UUID
    checkpoint_id: UUID

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that no such parent is there."""
        check_database(state, self.database_id)
        kept = tuple(
            parent for parent in state.parents if not (parent.detached and parent.checkpoint_id == self.checkpoint_id)
        )
        return None if len(kept) == len(state.parents) else replace(state, parents=kept)


# ---- the end


def holders(state: ManifestState, now_ms: int) -> list[Checkpoint]:
    """The checkpoints that keep a database from being removed: all but expired ones and its writers' own."""
    return [
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.owner != "writer" and not checkpoint.expired(now_ms)
    ]


def refuse_held(state: ManifestState, now_ms: int) -> None:
    """Raise `InvalidError` naming the checkpoints that are still alive at ``now_ms``, if there are any."""
    if held := holders(state, now_ms):
        named = ", ".join(f"{checkpoint.id} ({checkpoint.name or checkpoint.owner})" for checkpoint in held[:5])
        more = f" and {len(held) - 5} more" if len(held) > 5 else ""
        raise InvalidError(
            f"checkpoints hold the database: {named}{more}; delete them, close the readers, abort the ingests,"
            " destroy the clones or let their collectors detach them"
            f"{', or destroy it softly (soft=True)' if state.destroyed_at_ms is None else ''}"
        )


@dataclass(frozen=True, slots=True)
class ClaimToDestroy:
    """The writer's epoch, to fence the log for good. Its mark is the token. ``store_id``: of the place looked at."""

    database_id: UUID
    token: str
    store_id: UUID | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a usable database; raises `FencedError` if another destroyer was first."""
        check_database(state, self.database_id)
        if state.destroyed_at_ms is not None:
            raise FencedError("another process destroyed the database meanwhile")
        return ClaimWriter(self.token, parallelism=1, of=(self.database_id, self.store_id)).apply(state)


@dataclass(frozen=True, slots=True)
class MarkDestroyed:
    """The database cannot be opened any more, and no checkpoint is made of it.

    token: the writer epoch's, claimed to fence the log; ``None`` for an unfinished clone, which never had a writer
    log_end: the last position of the fence
    refuse_held: whether checkpoints that are alive stand against it
    """

    database_id: UUID
    token: str | None
    now_ms: int
    log_end: int
    refuse_held: bool

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies while the fenced epoch is the newest: a writer that claims later must be fenced, too. Its mark is
        ``destroyed_at_ms``."""
        check_database(state, self.database_id)
        if self.token is None and state.initialized:
            raise FencedError("the clone was finished while it was being destroyed")
        if state.destroyed_at_ms is not None:
            return None
        if self.token is not None and state.writer_token != self.token:
            raise FencedError(f"writer epoch {state.writer_epoch} took over while the database was being destroyed")
        if self.refuse_held:
            refuse_held(state, self.now_ms)
        return replace(
            state,
            destroyed_at_ms=self.now_ms,
            log_last_seen=max(state.log_last_seen, self.log_end),
            checkpoints=tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.owner != "writer"),
        )


@dataclass(frozen=True, slots=True)
class RemoveContents:
    """Give the contents of a destroyed database up: from this version on nothing names them. What stays, its
    tombstone, says where a database recreated on the path continues."""

    database_id: UUID
    now_ms: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a destroyed database without living checkpoints. Its mark is ``removed``."""
        check_database(state, self.database_id)
        if state.removed:
            return None
        if state.destroyed_at_ms is None:
            raise InvalidError("the database was not destroyed; destroy it first")
        refuse_held(state, self.now_ms)
        return replace(
            state,
            removed=True,
            log_start=max(state.log_start, state.log_last_seen + 1),
            log_floor=state.writer_epoch,
            sst_floor=state.version + 1,
            l0=(),
            runs=(),
            range_deletes=None,
            checkpoints=(),
            compactions=(),
            ingests=(),
            ingest_records=(),
            ingest_apps=(),
            parents=_detached(state),
            seq_times=(),
            history_floor=state.last_seq,
        )


@dataclass(frozen=True, slots=True)
class Recreate:
    """A new database, ``first``, in a removed one's place. It continues versions, epochs, log positions and sequence
    numbers, so nothing a writer, compactor or collector of the old one still does is taken for its own (rule 29). Its
    history is whole from the start, for no row of the old one is part of it."""

    first: ManifestState

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to a removed database that owes its parents nothing. ``None`` also if another process was first."""
        if not state.removed:
            return None
        if state.parents:
            raise InvalidError("the destroyed database still holds a checkpoint in its parent; destroy it once more")
        if self.first.log_protocol != state.log_protocol:
            raise InvalidError(
                f"the database that was destroyed here kept its log as {state.log_protocol!r}, and its fences stay:"
                f" so must this one, not as {self.first.log_protocol!r}; or choose an empty path"
            )
        return replace(
            self.first,
            ref=state.ref,
            store_id=state.store_id,  # whose marker is to be taken over
            writer_epoch=state.writer_epoch,
            compactor_epoch=state.compactor_epoch + 1,
            fence_width=state.fence_width,
            log_start=state.log_start,
            log_last_seen=state.log_last_seen,
            log_floor=state.log_floor,
            last_seq=state.last_seq,
            last_tick_ms=state.last_tick_ms,
            sst_floor=state.version + 1,
            last_run_id=state.last_run_id,
            ingest_seq=state.ingest_seq,
        )
