"""Switches of rules that compactors, collectors, checkpoints, readers and clones follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.engine import proved_metadata
from slate_async.engine.clone import make
from slate_async.engine.clone.abandoned import ClonesOfOne
from slate_async.engine.compaction.merge import Merge
from slate_async.engine.compaction.plan_builder import Reservation
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.reader_state import ReaderState
from slate_async.engine.gc import log as judging
from slate_async.engine.gc import reachable
from slate_async.engine.gc import sweeper as sweeping
from slate_async.engine.gc.reachable import Reach
from slate_async.engine.gc.sweeper import Sweeper
from slate_async.storage.manifest import driver
from slate_async.storage.manifest.edits import compactions
from slate_async.storage.manifest.edits import gc as collection
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.compactions import CommitCompaction
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.lifecycle import Recreate
from slate_async.storage.manifest.edits.writer import AddL0
from tests.simulation.rules import instead, life_instead
from tests.simulation.rules.feed_table import FEED_SWITCHES
from tests.simulation.rules.mirror_table import MIRROR_SWITCHES
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.protocol import Scenario

_SCRIPTS = {scenario.name.removeprefix("script-"): scenario for scenario in LIFE_SCRIPTS}
UNASSERTED = Patch(driver, "check_successor", instead.unchecked)


def _life(**fixed: Any) -> Scenario:
    return life_scenario("life", "what a switch runs", **{**_ALONE, **fixed})


_ALONE = {
    "protocol": "contiguous",
    "wal": True,
    "ack": "committed",
    "writers": 2,
    "rounds": 10,
    "tasks": 1,
    "active_seconds": 3.0,
    "faults": 0.5,
    "crashes": 0.2,
    "freezes": 0.2,
    "compactors": 0,
    "collectors": 0,
    "readers": 0,
    "keepers": 0,
    "cloners": 0,
    "embedded": False,
    "retention_ms": 0,
    "min_age_ms": 0,
    "l0_rows": 1,
    "l0_flushes": 0.3,
    "width": 1,
}
"""Only writers, and small L0 SSTs that are compacted one by one; a switch adds the roles it needs."""
_COLLECTED = {"collectors": 2}
_COMPACTED = {"compactors": 1}

LIFE_SWITCHES: Sequence[Switch] = (
    Switch(
        "gc-checkpoints",
        "§8",
        "a collector forgets what checkpoints keep",
        (Patch(Reach, "of", life_instead.head_alone),),
        within=20,
        stage=_life(**_COLLECTED, **_COMPACTED, keepers=2),
    ),
    Switch(
        "gc-compactions",
        "25",
        "a collector forgets registered compactions and what they have finished",
        (
            Patch(reachable, "finished_ssts", life_instead.nothing_finished),
            Patch(sweeping, "with_floor", life_instead.with_any_floor),
            Patch(AdvanceGc, "apply", life_instead.collect_over_compactions),
        ),
        within=100,
        stage=_life(**_COLLECTED, compactors=2, sst_bytes=150),
    ),
    Switch(
        "25-evict",
        "25",
        "a collector gives compactions up without taking the role from their compactor",
        (Patch(collection, "evicted", life_instead.evict_without_the_role),),
        within=80,
        stage=_life(**_COLLECTED, compactors=1, sst_bytes=150, stalled_ms=1),
    ),
    Switch(
        "bottom",
        "§9",
        "tombstones end above the bottom",
        (Patch(Merge, "__init__", life_instead.always_bottom),),
        within=150,
        stage=_life(**_COMPACTED, rounds=16),
    ),
    Switch(
        "2-epoch",
        "2",
        "a compactor whose role was taken over goes on",
        (Patch(compactions, "_check_epoch", instead.unchecked),),
        within=100,
        stage=_life(compactors=2, freezes=0.7, sst_bytes=150),
    ),
    Switch(
        "2-inputs",
        "2",
        "a compaction is committed although another compactor has the role, and whatever became of its inputs",
        (Patch(CommitCompaction, "apply", life_instead.commit_again),),
        within=100,
        stage=_life(compactors=2, freezes=0.7, faults=1.5),
        behind=(UNASSERTED,),
    ),
    Switch(
        "2-whole",
        "2",
        "rows are moved into a sorted run that a compaction takes whole",
        (
            Patch(Reservation, "overlaps", life_instead.overlap_in_keys),
            Patch(compactions, "_check_target", life_instead.joins_any_run),
        ),
        within=20,
        stage=_SCRIPTS["taken-whole"],
    ),
    Switch(
        "6-before",
        "6, 26",
        "what a collector keeps is found before its commit",
        (Patch(Sweeper, "_judge_by", life_instead.judge_before_commit),),
        within=60,
        stage=_life(**_COLLECTED, **_COMPACTED, keepers=2, readers=1),
    ),
    Switch(
        "13-reader",
        "13",
        "a reader believes ids without a head read afterwards",
        (Patch(Follower, "_round", life_instead.round_without_head),),
        within=60,
        stage=_SCRIPTS["stale-ids-reader"],
    ),
    Switch(
        "20-reader",
        "20",
        "a reader that adopts a manifest keeps what it has read of the log below its log_start",
        (Patch(ReaderState, "_purge", life_instead.keep_everything),),
        within=60,
        stage=_SCRIPTS["skipped-log"],
    ),
    Switch(
        "22-log",
        "22",
        "collectors do not keep the log of checkpoints",
        (Patch(judging, "held_log", life_instead.holds_nothing),),
        within=80,
        stage=_life(**_COLLECTED, **_COMPACTED, keepers=2),
    ),
    Switch(
        "22-last-seen",
        "22",
        "a checkpoint's log ends at the largest name listed",
        (Patch(proved_metadata, "find_extent", life_instead.largest_listed),),
        within=40,
        stage=_SCRIPTS["gap-under-a-checkpoint"],
    ),
    Switch(
        "gc-abandoned",
        "§8",
        "collectors leave clones that nobody goes on making",
        (Patch(ClonesOfOne, "end_abandoned", life_instead.nobody_abandoned),),
        within=200,
        stage=_life(**_COLLECTED, cloners=3, clones=2, impatient=True),
    ),
    Switch(
        "25-floor",
        "25",
        "an L0 SST is added though it was begun below sst_floor",
        (Patch(AddL0, "apply", life_instead.add_l0_below_floor),),
        within=150,
        stage=_life(**_COLLECTED, **_COMPACTED, delayed=0.2),
    ),
    Switch(
        "26-floor",
        "26",
        "a collector deletes what nothing names, below sst_floor or not",
        (Patch(Sweeper, "_sweep_ssts", life_instead.all_unnamed),),
        within=40,
        stage=_life(**_COLLECTED, **_COMPACTED),
    ),
    Switch(
        "27-source",
        "27",
        "a checkpoint of a checkpoint does not ask whether that is still there",
        (Patch(CreateCheckpoint, "apply", life_instead.copy_what_was),),
        within=20,
        stage=_SCRIPTS["copied-checkpoint"],
    ),
    Switch(
        "28-pin",
        "28",
        "a clone is copied before it is pinned",
        (
            Patch(make, "_pin", life_instead.pin_later),
            Patch(make, "_still_pinned", life_instead.pin_now),
        ),
        within=250,
        stage=_life(**_COLLECTED, **_COMPACTED, cloners=2, clones=1, delayed=0.2),
    ),
    Switch(
        "29-remade",
        "29",
        "a database that is recreated begins with epoch 1 and log position 1",
        (Patch(Recreate, "apply", life_instead.from_the_start),),
        within=20,
        stage=_SCRIPTS["remade"],
        behind=(UNASSERTED,),
    ),
    *FEED_SWITCHES,
    *MIRROR_SWITCHES,
)
