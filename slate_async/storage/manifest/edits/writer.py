"""Edits of the writer: it claims the database, moves its log into L0, and keeps what its reads see.

Rules 1, 2 and R21: docs/design/protocol-rules.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.errors import ConflictError, FencedError, InternalError
from slate_async.storage.manifest.edits.protocol import DestroyedError, check_looked_at, check_usable, check_writer
from slate_async.storage.manifest.edits.range_deletes import with_range_deletes
from slate_async.storage.manifest.history import sampled
from slate_async.storage.manifest.sst_names import SstNames
from slate_async.storage.manifest.state import THIS_VERSION, Checkpoint, CompactionStyle, ManifestState, SstRef
from slate_async.types import RangeDelete


def overtaken(state: ManifestState) -> FencedError:
    """The error of a writer that finds, when it opens its database again, that ``state`` names another one."""
    if state.destroyed_at_ms is not None:
        return DestroyedError("the database was destroyed", outcome="not_applied")
    said = f"writer epoch {state.writer_epoch} took over while this one could not reach its store"
    return FencedError(said, outcome="not_applied")


@dataclass(frozen=True, slots=True)
class WriterPin:
    """A checkpoint of the writer's own, on the very version that the edit makes.

    now_ms: the caller's clock
    keep: this epoch's others that stay, because reads need what they hold; the rest goes
    instead_of, covering: one of ``keep`` that goes all the same if the version made names all of ``covering``: its
    SSTs. It must need nothing of the log
    """

    id: UUID
    now_ms: int
    keep: frozenset[UUID] = frozenset()
    instead_of: UUID | None = None
    covering: SstNames | None = None


def has_writer(state: ManifestState) -> bool:
    """Whether a writer has the database open, or had it open when it died."""
    return any(checkpoint.owner == "writer" for checkpoint in state.checkpoints)


@dataclass(frozen=True, slots=True)
class ClaimWriter:
    """Become the writer: the next epoch, owned by ``token``. ``parallelism`` widens every later fence.

    pin: the writer's own checkpoint, in place of all that earlier writers left; ``None`` makes none
    retention_ms, compaction: what the database is to follow from now on; ``None`` leaves it
    if_free: fence no writer: only if no writer has the database open. One that has keeps a checkpoint from its claim
    until it closes; of one that died it stays
    own: this process's earlier claims, when it opens its database again: only while one of them is the newest
    keep: checkpoints of those claims that stay, because reads need what they hold
    instead_of: fence no writer but the one of this token; the empty one stands for none
    heartbeat_interval_ms: how often this writer will say that it lives; ``None``: never
    of: the database and the store id that were looked at; only they are claimed
    log_end: the last position its log was found to have
    """

    token: str
    parallelism: int
    pin: WriterPin | None = None
    retention_ms: int | None = None
    compaction: CompactionStyle | None = None
    if_free: bool = False
    own: frozenset[str] = frozenset()
    keep: frozenset[UUID] = frozenset()
    instead_of: str | None = None
    heartbeat_interval_ms: int | None = None
    of: tuple[UUID, UUID | None] | None = None
    log_end: int = 0

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to any usable state. Raises `FencedError` if it must not fence a writer that claimed first."""
        if state.writer_token == self.token:
            return None
        if self.own and not self.is_own(state):
            raise overtaken(state)
        check_looked_at(state, self.of)
        check_usable(state)
        if self.instead_of not in (None, state.writer_token) or (self.if_free and has_writer(state)):
            raise FencedError(f"writer epoch {state.writer_epoch} claimed first", outcome="not_applied")
        claimed = replace(
            state,
            writer_epoch=state.writer_epoch + 1,
            writer_token=self.token,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            fence_width=max(state.fence_width, self.parallelism),
            retention_ms=state.retention_ms if self.retention_ms is None else self.retention_ms,
            compaction=self.compaction or state.compaction,
            log_last_seen=max(state.log_last_seen, self.log_end),
            checkpoints=tuple(
                checkpoint
                for checkpoint in state.checkpoints
                if checkpoint.owner != "writer" or checkpoint.id in self.keep
            ),
        )
        return claimed if self.pin is None else pinned(claimed, self.pin)

    def is_own(self, state: ManifestState) -> bool:
        """Whether the writer that ``state`` names is this process: no other one took over since."""
        return state.writer_token in self.own


@dataclass(frozen=True, slots=True)
class AddL0:
    """Move log positions ``from_position`` to ``to_position`` (inclusive) out of the log into L0.

    Its mark is ``log_start``: whether *its SST is listed* would be the wrong test, since a compaction may have
    eaten it by then, and adding it again would bring deleted rows back.

    last_write_ms: when the row ``last_seq`` was written; ``None`` when that is known already
    log_end: how far the log goes by now: the last position that is acknowledged
    pin: made in the same commit if there is an SST; ``None`` leaves the writer's checkpoints alone
    range_deletes: those among the rows, the oldest first
    folded_seq: up to there operands of the rows were folded, so earlier versions of them are missing
    """

    epoch: int
    from_position: int
    to_position: int
    sst: SstRef | None
    last_seq: int
    last_tick_ms: int
    log_floor: int
    base_version: int
    last_write_ms: int | None = None
    pin: WriterPin | None = None
    log_end: int = 0
    range_deletes: tuple[RangeDelete, ...] = ()
    folded_seq: int = 0

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's and the log still starts at ``from_position``."""
        check_writer(state, self.epoch)
        if state.log_start > self.to_position:
            return None
        if state.log_start != self.from_position:
            raise InternalError(
                f"a flush of log positions {self.from_position} to {self.to_position} meets a log that starts at"
                f" {state.log_start}"
            )
        if self.sst is not None and self.base_version < state.sst_floor:
            raise ConflictError(
                f"{self.sst.location} was begun before manifest version {state.sst_floor}, so GC may have deleted"
                " it already",
                outcome="not_applied",
            )
        seq_times = state.seq_times
        if self.last_write_ms is not None:
            seq_times = sampled(state, self.last_seq, self.last_write_ms)
        moved = replace(
            state,
            log_start=self.to_position + 1,
            log_last_seen=max(state.log_last_seen, self.to_position, self.log_end),
            log_floor=max(state.log_floor, self.log_floor),
            last_seq=max(state.last_seq, self.last_seq),
            last_tick_ms=max(state.last_tick_ms, self.last_tick_ms),
            seq_times=seq_times,
            l0=state.l0 if self.sst is None else (self.sst, *state.l0),
            history_floor=max(state.history_floor, self.folded_seq),
        )
        moved = with_range_deletes(moved, self.range_deletes)
        return moved if self.pin is None or self.sst is None else pinned(moved, self.pin)


@dataclass(frozen=True, slots=True)
class PassFences:
    """Let the log start behind ``to_position``: up to there it holds fences of the writer that claimed with ``token``
    and of older ones, and nothing that counts besides. The fences stay where they are."""

    token: str
    to_position: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff that writer's claim is the newest. Its mark is ``log_start``; where the log starts now does not
        matter, since nothing is lost by passing over fewer fences."""
        if state.writer_token != self.token:
            raise FencedError(f"writer epoch {state.writer_epoch} took over", outcome="not_applied")
        if state.log_start > self.to_position:
            return None
        return replace(
            state,
            log_start=self.to_position + 1,
            log_last_seen=max(state.log_last_seen, self.to_position),
            log_floor=max(state.log_floor, state.writer_epoch),
        )


@dataclass(frozen=True, slots=True)
class PinWriter:
    """Keep the SSTs of the version that this makes for the writer's reads."""

    epoch: int
    pin: WriterPin

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's. Its mark is the checkpoint's id."""
        check_writer(state, self.epoch)
        return None if state.checkpoint(self.pin.id) is not None else pinned(state, self.pin)


@dataclass(frozen=True, slots=True)
class UnpinWriter:
    """Give the checkpoints ``ids`` of the writer of ``epoch`` back: no read needs what they hold. They hold SSTs, so
    this applies under any later writer, and to destroyed databases, too.

    log_end: the last position of the log that it has acknowledged: what is missing up to there is lost"""

    epoch: int
    ids: frozenset[UUID]
    log_end: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that none of them is there."""
        kept = tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.id not in self.ids)
        if len(kept) == len(state.checkpoints):
            return None
        end = self.log_end if state.writer_epoch == self.epoch else 0
        return replace(state, checkpoints=kept, log_last_seen=max(state.log_last_seen, end))


def pinned(state: ManifestState, pin: WriterPin) -> ManifestState:
    """``state`` with ``pin`` in place of those of its writer that go."""
    epoch, keep = state.writer_epoch, pin.keep
    if pin.instead_of in keep and pin.covering is not None and pin.covering.within(SstNames(state)):
        keep = keep - {pin.instead_of}
    others = (
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.owner != "writer" or checkpoint.epoch != epoch or checkpoint.id in keep
    )
    made = Checkpoint(pin.id, THIS_VERSION, pin.now_ms, "writer", state.log_start, epoch=epoch)
    return replace(state, checkpoints=(*others, made))
