"""Edits of the compactor (see `slate_async.storage.manifest.edits.protocol` for what an edit is).

A compaction is registered, its key ranges are finished one by one, and it is committed or dropped. All of that happens
under one compactor epoch, and nobody else takes anything out of L0, the runs, or (without a WAL) the log's beginning.
So, under that epoch, the *absence* of a registered compaction is the mark of its commit and of its drop; the presence
of a part is the mark of that part. Any other edit that takes registered compactions out raises the epoch in the same
edit.

Rules 2, 25 and 35: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from uuid import UUID

from slate_async.errors import ConflictError, FencedError, InternalError
from slate_async.storage.manifest.compaction_inputs import Inputs, replace_inputs
from slate_async.storage.manifest.edits.protocol import check_looked_at, check_usable
from slate_async.storage.manifest.edits.range_deletes import without_swept
from slate_async.storage.manifest.history import sampled
from slate_async.storage.manifest.state import Compaction, ManifestState, RangeOutput


@dataclass(frozen=True, slots=True)
class ClaimCompactor:
    """Become the compactor: the next epoch, owned by ``token``. Compactions that an older epoch left go on under this
    one if their inputs are still there, else they are forgotten. ``of``: the database and the store id that were looked
    at; only they are claimed."""

    token: str
    of: tuple[UUID, UUID | None] | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies to any usable state. Raises `FencedError` if it is not of what was looked at."""
        if state.compactor_token == self.token:
            return None
        check_looked_at(state, self.of)
        check_usable(state)
        epoch = state.compactor_epoch + 1
        resumed = tuple(
            replace(compaction, epoch=epoch) for compaction in state.compactions if can_go_on(state, compaction)
        )
        return replace(state, compactor_epoch=epoch, compactor_token=self.token, compactions=resumed)


@dataclass(frozen=True, slots=True)
class ReleaseCompactor:
    """Give the role up: a compactor that waits for its turn need not wait longer. The epoch stays what it is."""

    token: str

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that the role is somebody else's or nobody's."""
        return replace(state, compactor_token="") if state.compactor_token == self.token else None


@dataclass(frozen=True, slots=True)
class RegisterCompaction:
    """Begin ``compaction``, whose ``epoch`` is the owner's. From here on ``sst_floor`` stays at or below its base."""

    compaction: Compaction

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the compactor's, all inputs are there and no other compaction's. Its mark is
        its id."""
        new = self.compaction
        _check_epoch(state, new.epoch)
        if _registered(state, new.id) is not None:
            return None
        check_usable(state)
        if new.base_version < state.sst_floor:
            raise ConflictError(
                f"compaction {new.id} was planned on manifest version {new.base_version}, below the floor"
                f" {state.sst_floor}; plan it again",
                outcome="not_applied",
            )
        if not can_go_on(state, new):
            raise ConflictError(f"an input of compaction {new.id} is missing; plan again", outcome="not_applied")
        if new.log_end is not None and any(other.log_end is not None for other in state.compactions):
            raise InternalError(f"compaction {new.id} takes the log, which another one that runs has taken")
        _check_free(state, Inputs.of(new))
        _check_target(state, Inputs.of(new), new.target_run, new.target_level)
        return replace(state, compactions=(*state.compactions, new), last_run_id=max(state.last_run_id, new.target_run))


@dataclass(frozen=True, slots=True)
class FinishRange:
    """Note the output of one key range, so that nobody does it again."""

    epoch: int
    id: UUID
    output: RangeOutput

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the compactor's. A range has one output; the first one noted stays."""
        _check_epoch(state, self.epoch)
        found = _registered(state, self.id)
        if found is None or any(part.index == self.output.index for part in found.finished):
            return None
        longer = replace(found, finished=(*found.finished, self.output))
        return replace(
            state, compactions=tuple(longer if compaction is found else compaction for compaction in state.compactions)
        )


@dataclass(frozen=True, slots=True)
class LogTaken:
    """What a compaction of a log without a WAL took of it: positions ``start`` to the compaction's ``log_end``.

    floor: the highest epoch among its valid objects
    last_seq, last_tick_ms: highest sequence number and write time of its rows
    min_expire_ms: when the first of them expires, ``None`` when none does
    """

    start: int
    floor: int
    last_seq: int
    last_tick_ms: int
    min_expire_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CommitCompaction:
    """Replace the inputs of a registered compaction by its outputs: those noted before and ``outputs``.

    Rule 2: applies iff the epoch is still the compactor's and all inputs are there. A compaction without outputs is one
    whose rows were all dropped. ``log`` goes with a compaction that has a ``log_end``."""

    epoch: int
    id: UUID
    outputs: tuple[RangeOutput, ...] = ()
    log: LogTaken | None = None

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Raises `ConflictError` when it can never apply: an input is missing, or its outputs may be collected.

        Rule 35: what it used of range deletes is not known before them any more, and those go that hide nothing."""
        _check_epoch(state, self.epoch)
        done = _registered(state, self.id)
        if done is None:
            return None
        if done.base_version < state.sst_floor:
            raise ConflictError(
                f"the outputs of compaction {self.id} were begun before manifest version {state.sst_floor}; they may"
                " be deleted already",
                outcome="not_applied",
            )
        inputs = Inputs.of(done)
        sources = inputs.find(state)
        if sources is None or not _log_is_there(state, done) or (self.log is None) != (done.log_end is None):
            raise ConflictError(f"an input of compaction {self.id} is missing", outcome="not_applied")
        seqs = [sst.max_seq for source in sources for sst in source]
        expiries = [sst.min_expire_ms for source in sources for sst in source]
        state = self._without_log(state, done)
        if self.log is not None:
            seqs.append(self.log.last_seq)
            expiries.append(self.log.min_expire_ms)
        keys = [(source[0].first_key, source[-1].last_key) for source in sources]
        seqs += [
            delete.seq
            for delete in state.range_deletes or ()
            if delete.seq <= done.keep_above and any(delete.overlaps(*ends) for ends in keys)
        ]
        dropped_expired = any(expiry is not None and expiry <= done.expired_at_ms for expiry in expiries)
        committed = replace_inputs(
            state,
            inputs,
            [sst for part in self._parts(done) for sst in part.ssts],
            target_run=done.target_run,
            target_level=done.target_level,
        )
        return without_swept(
            replace(
                committed,
                compactions=tuple(compaction for compaction in state.compactions if compaction is not done),
                history_floor=max(state.history_floor, min(done.keep_above, max(seqs, default=0))),
                expiry_floor_ms=max(state.expiry_floor_ms, done.expired_at_ms if dropped_expired else 0),
            )
        )

    def _parts(self, done: Compaction) -> list[RangeOutput]:
        """The outputs of all ranges in order; what was noted first stays."""
        by_index = {part.index: part for part in (*self.outputs, *done.finished)}
        if sorted(by_index) != list(range(len(done.bounds) + 1)):
            raise InternalError(f"compaction {self.id} has {len(by_index)} of {len(done.bounds) + 1} ranges")
        return [by_index[index] for index in sorted(by_index)]

    def _without_log(self, state: ManifestState, done: Compaction) -> ManifestState:
        if self.log is None or done.log_end is None:
            return state
        if self.log.start != state.log_start:
            raise ConflictError(
                f"compaction {self.id} took the log from {self.log.start} on; it starts at {state.log_start}",
                outcome="not_applied",
            )
        return replace(
            state,
            log_start=done.log_end + 1,
            log_last_seen=max(state.log_last_seen, done.log_end),
            log_floor=max(state.log_floor, self.log.floor),
            last_seq=max(state.last_seq, self.log.last_seq),
            last_tick_ms=max(state.last_tick_ms, self.log.last_tick_ms),
            seq_times=sampled(state, self.log.last_seq, self.log.last_tick_ms),
        )


@dataclass(frozen=True, slots=True)
class MoveSsts:
    """Let SSTs that overlap nothing become part of another run as they are. Under one compactor epoch only the
    compactor takes them away, so its mark is that they are not where they were."""

    epoch: int
    inputs: Inputs
    target_run: int
    target_level: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the compactor's."""
        _check_epoch(state, self.epoch)
        sources = self.inputs.find(state)
        if sources is None:
            return None
        _check_free(state, self.inputs)
        _check_target(state, self.inputs, self.target_run, self.target_level)
        ssts = [sst for source in sources for sst in source]
        return replace_inputs(state, self.inputs, ssts, target_run=self.target_run, target_level=self.target_level)


@dataclass(frozen=True, slots=True)
class DropCompaction:
    """Give a registered compaction up; what it has written is garbage."""

    epoch: int
    id: UUID

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the compactor's."""
        _check_epoch(state, self.epoch)
        kept = tuple(compaction for compaction in state.compactions if compaction.id != self.id)
        return None if len(kept) == len(state.compactions) else replace(state, compactions=kept)


def work_mark(state: ManifestState) -> str:
    """Changes with whatever the compactor puts down of its registered compactions, and with each claim and release of
    the role; empty if none is registered."""
    if not state.compactions:
        return ""
    work = [(compaction.id.hex, [part.index for part in compaction.finished]) for compaction in state.compactions]
    digest = blake2b(repr((state.compactor_token, work)).encode(), digest_size=8).hexdigest()
    return f"{state.compactor_epoch:020}.{digest}"


def evicted(state: ManifestState) -> ManifestState:
    """``state`` without registered compactions, and without a compactor: one that merely slept is fenced by the epoch,
    or it would take the absence of its compactions for their commit."""
    return replace(state, compactor_epoch=state.compactor_epoch + 1, compactor_token="", compactions=())


def can_go_on(state: ManifestState, compaction: Compaction) -> bool:
    """Whether a compaction's inputs are all there, and its outputs not below the floor."""
    return (
        compaction.base_version >= state.sst_floor
        and Inputs.of(compaction).find(state) is not None
        and _log_is_there(state, compaction)
    )


def _log_is_there(state: ManifestState, compaction: Compaction) -> bool:
    """The log is newer than all of L0, which is newer than the runs: a compaction that takes of it takes L0, too, and
    of the runs the newest or none."""
    if compaction.log_end is None:
        return True
    newest_runs = not compaction.runs or (bool(state.runs) and state.runs[0].id in compaction.runs)
    return compaction.log_end >= state.log_start and len(compaction.l0) == len(state.l0) and newest_runs


def _check_target(state: ManifestState, inputs: Inputs, target_run: int, target_level: int) -> None:
    """A run of its own has a number of its own, or two compactions would join one run. And nothing joins a run that
    another compaction takes whole: its commit would take that out with the run."""
    joined = _joined_runs(state, target_run, target_level)
    if not joined and target_run <= state.last_run_id:
        raise ConflictError(f"run {target_run} was made meanwhile; plan again", outcome="not_applied")
    for other in state.compactions:
        whole = other.runs if other.ssts is None else ()
        taken = inputs.runs if inputs.ssts is None else ()
        if _common(joined, whole) or _common(taken, _joined_runs(state, other.target_run, other.target_level)):
            raise ConflictError(f"compaction {other.id}, which runs, is in the way; plan again", outcome="not_applied")


def _joined_runs(state: ManifestState, target_run: int, target_level: int) -> list[int]:
    """The run that an output joins, if there is one."""
    return [run.id for run in state.runs if run.id == target_run or (target_level and run.level == target_level)]


def _registered(state: ManifestState, compaction_id: UUID) -> Compaction | None:
    return next((compaction for compaction in state.compactions if compaction.id == compaction_id), None)


def _check_epoch(state: ManifestState, epoch: int) -> None:
    if state.compactor_epoch != epoch:
        raise FencedError(f"compactor epoch {state.compactor_epoch} took over from epoch {epoch}")


def _check_free(state: ManifestState, wanted: Inputs) -> None:
    """An input belongs to one compaction at a time; the planner sees to that."""
    for other in state.compactions:
        taken = Inputs.of(other)
        runs = _common(wanted.runs, taken.runs)
        if runs and wanted.ssts is not None and taken.ssts is not None:
            runs = _common(wanted.ssts, taken.ssts)
        if runs or _common(wanted.l0, taken.l0):
            raise InternalError(f"a compaction takes what compaction {other.id}, which runs, has taken")


def _common(ones: Iterable[object], others: Iterable[object]) -> bool:
    return not set(ones).isdisjoint(others)
