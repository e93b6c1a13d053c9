"""What stands in for a rule of compactors, collectors, checkpoints, readers and clones that is switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from slate_async.engine.compaction.merge import Merge
from slate_async.engine.compaction.plan_builder import Reservation
from slate_async.engine.follow.follower import Follower
from slate_async.engine.gc import log as judging
from slate_async.engine.gc import plan
from slate_async.engine.gc.batch import Batch
from slate_async.engine.gc.reachable import Reach, Reachable
from slate_async.engine.gc.report import GarbageObject
from slate_async.engine.gc.sweeper import UNNAMED, Sweeper
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import ConflictError
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.log.names import PREFIX, parse_contiguous
from slate_async.storage.manifest.edits import compactions
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.compactions import CommitCompaction, Inputs
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.lifecycle import Recreate
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.state import Checkpoint, Compaction, ManifestState, Parent

NO_FLOOR = 1 << 60

# ---- collecting

_reach_of = Reach.of


async def head_alone(self: Reach, state: ManifestState) -> Reachable:
    """Checkpoints keep nothing."""
    return await _reach_of(self, replace(state, checkpoints=()))


async def nobody_abandoned(
    self: Any, state: ManifestState, before_ms: int, *, dry_run: bool = False
) -> tuple[str, ...]:
    """Clones look after themselves."""
    return ()


def holds_nothing(checkpoint: Checkpoint) -> Any:
    """Rule 22: checkpoints keep no log."""
    return judging.HeldLog(1, 0, ())


def nothing_finished(state: ManifestState) -> frozenset[str]:
    """What compactions have finished is not reachable."""
    return frozenset()


_with_floor = plan.with_floor


def with_any_floor(edit: AdvanceGc, trial: ManifestState, aged: Any, unnamed: Any) -> AdvanceGc:
    """Registered compactions do not hold the floor."""
    return _with_floor(edit, replace(trial, compactions=()), aged, unnamed)


_collect = AdvanceGc.apply


def collect_over_compactions(self: AdvanceGc, state: ManifestState) -> ManifestState | None:
    """The same in the edit."""
    done = _collect(self, replace(state, compactions=()))
    return None if done is None else replace(done, compactions=state.compactions)


def evict_without_the_role(state: ManifestState) -> ManifestState:
    """Rule 25: registered compactions go, and their compactor stays what it is."""
    return replace(state, compactions=())


_judge_by = Sweeper._judge_by


async def judge_before_commit(self: Sweeper, head: ManifestState, dry_run: bool) -> Any:
    """Rules 6 and 26: what is kept is found before the commit, from the head it began with."""
    before = await self._reach.of(head)
    return replace(await _judge_by(self, head, dry_run), reachable=before)


async def all_unnamed(self: Sweeper, judged: Any, batch: Batch) -> None:
    """Rule 26: whatever nothing names goes, at any age."""
    await batch.begin("ssts")
    for unnamed in judged.unnamed:
        if unnamed.key not in judged.reachable.keys:
            await batch.take(GarbageObject(unnamed.key, unnamed.size, UNNAMED))
    await batch.flush()


_add_l0 = AddL0.apply


def add_l0_below_floor(self: AddL0, state: ManifestState) -> ManifestState | None:
    """Rule 25: an L0 SST is added though it may be deleted already."""
    return _add_l0(replace(self, base_version=NO_FLOOR), state)


# ---- compacting

_merge = Merge.__init__


def always_bottom(self: Merge, tally: Any, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
    """Tombstones end wherever they are compacted."""
    _merge(self, tally, keep_above=keep_above, expired_at_ms=expired_at_ms, bottom=True)


_commit_compaction = CommitCompaction.apply
_begun: dict[UUID, Compaction] = {}


def commit_again(self: CommitCompaction, state: ManifestState) -> ManifestState | None:
    """Rule 2: outputs are put in although another compactor has the role, and whether or not the inputs are there."""
    done = next((compaction for compaction in state.compactions if compaction.id == self.id), None)
    if done is not None:
        _begun[self.id] = done
        try:
            return _commit_compaction(replace(self, epoch=state.compactor_epoch), state)
        except ConflictError:
            pass
    done = _begun.get(self.id)
    if done is None or any(run.id == done.target_run for run in state.runs):
        return None
    again = replace(state, compactions=(replace(done, l0=(), runs=(), ssts=None, log_end=None),), runs=state.runs)
    return _commit_compaction(replace(self, epoch=state.compactor_epoch, log=None), again)


def overlap_in_keys(self: Reservation, other: Reservation) -> bool:
    """Rule 2: compactions of whole runs are in each other's way, too, only where their inputs have keys."""
    return _overlaps(self._replace(whole=False), other._replace(whole=False))


_overlaps = Reservation.overlaps


def joins_any_run(state: ManifestState, inputs: Inputs, target_run: int, target_level: int) -> None:
    """Rule 2: a run is joined also while a compaction takes it whole."""
    _check_target(replace(state, compactions=()), inputs, target_run, target_level)


_check_target = compactions._check_target


# ---- checkpoints

_create = CreateCheckpoint.apply
_sources: dict[UUID, Checkpoint] = {}


def copy_what_was(self: CreateCheckpoint, state: ManifestState) -> ManifestState | None:
    """Rule 27: the source is looked for in the first state only."""
    if self.source is not None and state.checkpoint(self.id) is None:
        found = state.checkpoint(self.source) or _sources.get(self.id)
        if found is not None:
            check_usable(state)
            _sources[self.id] = found
            return replace(state, checkpoints=self._others(state, self._copy_of(found)))
    return _create(self, state)


async def largest_listed(store: Any, load_head: Any, register: Any, check_place: Any) -> LogExtent:
    """Rule 22: a checkpoint's log ends at the largest name there is."""
    extent = await find_extent(store, load_head, register, check_place)
    listed = [parse_contiguous(info.key) async for info in store.list(PREFIX)]
    return replace(extent, end=max([extent.end, *listed]))


# ---- readers


async def round_without_head(self: Follower, patient: bool = False) -> bool:
    """Rule 13: what was read at the tail is replayed, wherever the head read afterwards starts the log."""
    chunk = await self._tail.read(self.reader_state.position)
    head = await self._head()
    await self._replay(chunk)
    await self._adopt(head)
    return chunk.more


def keep_everything(self: Any, log_start: int) -> bool:
    """Rule 20: what was read of the log stays in memory."""
    return False


# ---- clones, destroying


async def pin_later(parent: StoredDatabase, target: StoredDatabase, begun: ManifestState, origin: Parent) -> Checkpoint:
    """Rule 28: the parent's head is copied before it is pinned."""
    head = await parent.head()
    assert origin.checkpoint_id is not None
    if (pinned := head.checkpoint(origin.checkpoint_id)) is not None:
        return pinned
    extent = await find_extent(parent.store, parent.driver.load, None)
    return Checkpoint(origin.checkpoint_id, head.ref, 0, "clone", head.log_start, log_end=extent.end)


async def pin_now(parent: StoredDatabase, origin: Parent) -> None:
    """The other half of it."""
    assert origin.checkpoint_id is not None
    extent = await find_extent(parent.store, parent.driver.load, None)
    await parent.driver.commit(CreateCheckpoint(origin.checkpoint_id, "clone", 0, None, log_end=extent.end))


_make_again = Recreate.apply


def from_the_start(self: Recreate, state: ManifestState) -> ManifestState | None:
    """Rule 29: epochs and log positions begin anew."""
    made = _make_again(self, state)
    return None if made is None else replace(self.first, ref=made.ref)
