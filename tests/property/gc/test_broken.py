"""The checker is worth its name: broken on purpose, the collector (or a rule it rests on) is caught.

Each breakage leaves out one thing, everywhere it binds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slate_async.engine.gc import log, reachable, sweeper
from slate_async.engine.gc.reachable import Reach
from slate_async.engine.gc.sweeper import Sweeper
from slate_async.errors import CorruptionError
from slate_async.metastore_errors import translated
from slate_async.storage.manifest.edits import gc as collection
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.compactions import CommitCompaction
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.state import ManifestState
from tests.property.gc.play import play

ENOUGH = 10**9
SEEDS = 60
"""So many worlds at most until a breakage is caught."""
FIRST = {
    "ignore_running_compactions": 2,
    "add_below_the_floor": 36,
    "evict_and_keep_the_epoch": 28,
    "copy_a_missing_checkpoint": 33,
}
"""Where to begin with the breakages that few worlds show: with one that did when this was written."""
Patch = pytest.MonkeyPatch


def ignore_checkpoints(patch: Patch) -> None:
    of = Reach.of
    patch.setattr(Reach, "of", lambda self, state: of(self, replace(state, checkpoints=())))


def ignore_running_compactions(patch: Patch) -> None:
    """Neither do they hold the floor, nor do their finished outputs count, nor does their commit look at the floor."""
    collect, plan, commit = AdvanceGc.apply, sweeper.with_floor, CommitCompaction.apply

    def without(self: AdvanceGc, state: Any) -> Any:
        made = collect(self, replace(state, compactions=()))
        return None if made is None else replace(made, compactions=state.compactions)

    def committed(self: CommitCompaction, state: Any) -> Any:
        made = commit(self, replace(state, sst_floor=0))
        return None if made is None else replace(made, sst_floor=state.sst_floor)

    patch.setattr(AdvanceGc, "apply", without)
    patch.setattr(sweeper, "with_floor", lambda e, trial, a, u: plan(e, replace(trial, compactions=()), a, u))
    patch.setattr(reachable, "finished_ssts", lambda state: frozenset())
    patch.setattr(CommitCompaction, "apply", committed)


def ignore_the_floor(patch: Patch) -> None:
    """Rule 26: whatever nothing names goes, work in progress included."""
    judge_by = Sweeper._judge_by

    async def judged(self: Sweeper, *given: Any) -> Any:
        found = await judge_by(self, *given)
        return replace(found, state=replace(found.state, sst_floor=ENOUGH))

    patch.setattr(Sweeper, "_judge_by", judged)


def add_below_the_floor(patch: Patch) -> None:
    """Rule 25: a flush that slept is let in."""
    add = AddL0.apply
    patch.setattr(AddL0, "apply", lambda self, state: add(replace(self, base_version=ENOUGH), state))


def evict_and_keep_the_epoch(patch: Patch) -> None:
    """Rule 25: a compactor that merely slept takes the absence of its compaction for its commit."""

    def without(state: ManifestState) -> ManifestState:
        return replace(state, compactor_token="", compactions=())

    patch.setattr(collection, "evicted", without)


def never_evict(patch: Patch) -> None:
    """Safe, but what a dead compactor left holds the floor down for ever."""
    patch.setattr(Sweeper, "_stalled", lambda *given: "")


def judge_by_the_state_before(patch: Patch) -> None:
    """Rule 26: what is reachable is found out before the commit, not from the state it made."""
    judge_by = Sweeper._judge_by

    async def judged(self: Sweeper, head: Any, dry_run: bool) -> Any:
        before = await self._reach.of(head)
        return replace(await judge_by(self, head, dry_run), reachable=before)

    patch.setattr(Sweeper, "_judge_by", judged)


def forget_the_bases(patch: Patch) -> None:
    """Rule 6: the full versions that retained ones are changes to."""
    of = Reach.of

    async def without(self: Reach, state: Any) -> Any:
        found = await of(self, state)
        return replace(found, versions=frozenset([state.ref, *(checkpoint.ref for checkpoint in state.checkpoints)]))

    patch.setattr(Reach, "of", without)


def collect_versions_as_of_now(patch: Patch) -> None:
    """Rule 6: versions above the state judged by go, too."""

    async def collect(self: Sweeper, judged: Any, dry_run: bool) -> int:
        return await translated(self._driver.metastore.collect(sorted(judged.reachable.versions)))

    patch.setattr(Sweeper, "_sweep_versions", collect)


def copy_a_missing_checkpoint(patch: Patch) -> None:
    """Rule 27: the source of a checkpoint is looked up in a state read before, not in the one edited."""
    apply, seen = CreateCheckpoint.apply, {}

    def remembered(self: CreateCheckpoint, state: Any) -> Any:
        seen.update({checkpoint.id: checkpoint for checkpoint in state.checkpoints})
        source = None if self.source is None else state.checkpoint(self.source) or seen.get(self.source)
        if source is None:
            return apply(self, state)
        with_source = replace(state, checkpoints=(*(o for o in state.checkpoints if o.id != source.id), source))
        made = apply(replace(self, now_ms=0), with_source)
        kept = {checkpoint.id for checkpoint in state.checkpoints} | {self.id}
        return None if made is None else replace(made, checkpoints=tuple(o for o in made.checkpoints if o.id in kept))

    patch.setattr(CreateCheckpoint, "apply", remembered)


def ignore_checkpoints_in_the_log(patch: Patch) -> None:
    patch.setattr(log, "held_log", lambda checkpoint: log.HeldLog(ENOUGH, 0, ()))


def collect_fences(patch: Patch) -> None:
    """Rule 11."""
    patch.setattr(log, "HEADER_BYTES", -1)


def never_raise_the_floor(patch: Patch) -> None:
    """Safe, but then orphans survive for ever."""
    patch.setattr(sweeper, "with_floor", lambda edit, trial, aged, unnamed: edit)


def never_tick(patch: Patch) -> None:
    """Orphans made for the very head of a database that came to rest survive."""
    plan = sweeper.with_floor
    patch.setattr(sweeper, "with_floor", lambda *given: replace(plan(*given), above=0))


BREAKAGES: tuple[Callable[[Patch], None], ...] = (
    ignore_checkpoints,
    ignore_running_compactions,
    ignore_the_floor,
    add_below_the_floor,
    evict_and_keep_the_epoch,
    never_evict,
    judge_by_the_state_before,
    forget_the_bases,
    collect_versions_as_of_now,
    copy_a_missing_checkpoint,
    ignore_checkpoints_in_the_log,
    collect_fences,
    never_raise_the_floor,
    never_tick,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_it_is_caught(breakage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    breakage(monkeypatch)
    first = FIRST.get(breakage.__name__, 0)
    for seed in range(first, first + SEEDS):
        try:
            play(seed)
        except (AssertionError, CorruptionError):
            print(f"caught with seed {seed}")
            return
    pytest.fail(f"{breakage.__name__} was not caught within {SEEDS} worlds")
