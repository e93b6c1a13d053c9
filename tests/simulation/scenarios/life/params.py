"""What one seed of a life runs: the knobs of an engine scenario, and how much of everything else there is."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from slate_async.settings import DAY_MS, CompactionStyle
from tests.simulation.scenarios.engine.params import Params

SKEW_MS = 400
"""How wrong clocks are."""
GC_SKEW_MS = 2 * SKEW_MS + 200
"""What collectors allow for that: the difference of two clocks, and their drift."""
LIFETIME_MS = 1_500
"""Of a following reader's checkpoint: readers that sleep lose them."""


@dataclass(frozen=True, slots=True)
class LifeParams(Params):
    """compactors, collectors, readers, keepers, cloners: processes of each kind. Keepers make, read, lengthen and
    delete checkpoints
    clones: databases the cloners make and destroy
    embedded: whether writers compact, too
    width: SSTs in L0, or sorted runs, that start a compaction
    sst_bytes: at which compactions begin the next SST: small ones cut a compaction into ranges
    retention_ms: how long old versions stay
    min_age_ms, stalled_ms: of collectors; impatient ones take compactions from compactors that are at work
    impatient: whether collectors remove clones soon that nobody goes on making
    feeds: consumers of the change feed: every third one with a subscription by name, one that retains nothing, one as
    it comes
    own_gc: whether writers collect garbage
    mirrorers: processes that mirror checkpoints, all to one place
    """

    collectors: int = 0
    readers: int = 0
    keepers: int = 0
    cloners: int = 0
    clones: int = 0
    embedded: bool = False
    style: CompactionStyle = "size_tiered"
    width: int = 2
    sst_bytes: int = 1_000
    retention_ms: int = 0
    min_age_ms: int = 0
    stalled_ms: int = DAY_MS
    impatient: bool = False
    feeds: int = 0
    mirrorers: int = 0
    own_gc: bool = False

    def chosen(self, rng: random.Random, poll_ms: int | None) -> dict[str, Any]:
        """See `Params.chosen`."""
        # no super(): a class with slots is made twice, and super() would know the first one
        more = {
            "auto_compaction": self.embedded,
            # Those that have a polling interval of their own open at the end, with clocks far ahead of all others: what
            # they collected by them would be deleted before its time.
            "auto_gc": self.own_gc and poll_ms is None,
            "gc_interval_ms": 300,
            "compaction_style": self.style,
            "min_merge_width": 2,
            "level_base_bytes": 2_000,
            "level_size_multiplier": 2,
            "l0_compact_ssts": self.width,
            "sst_bytes": self.sst_bytes,
            "block_bytes": 64,
            "retention_ms": self.retention_ms,
            "gc_min_age_ms": self.min_age_ms,
            "gc_stalled_compaction_ms": self.stalled_ms,
            "gc_clock_skew_ms": GC_SKEW_MS,
            "gc_destroy_grace_ms": 0 if self.impatient else DAY_MS,
        }
        chosen = {**Params.chosen(self, rng, poll_ms), **more}
        polls = chosen["manifest_poll_interval_ms"]
        return {**chosen, "checkpoint_lifetime_ms": max(LIFETIME_MS, 2 * polls + 1)}


def draw_life(rng: random.Random, fixed: Mapping[str, Any]) -> LifeParams:
    """Everything by chance but what is ``fixed``."""
    base = Params.draw(rng, {name: value for name, value in fixed.items() if name in _OF_ENGINE})
    drawn = LifeParams(
        **{
            **{name: getattr(base, name) for name in _OF_ENGINE},
            "create_by_writers": False,
            "followers": 0,
            "log_collectors": 0,
            "manifest_collectors": 0,
            "writers": rng.choice((1, 2, 2, 3)),
            "rounds": rng.choice((3, 6, 10)),
            "tasks": rng.choice((1, 1, 2)),
            "active_seconds": rng.choice((0.7, 1.5, 3.0)),
            "l0_rows": rng.choice((1, 4)),
            "l0_flushes": rng.choice((0.1, 0.3)),
            "compactors": rng.choice((0, 1, 1, 2)),
        },
        collectors=rng.choice((0, 1, 1, 2)),
        readers=rng.choice((0, 0, 1, 2)),
        keepers=rng.choice((0, 0, 1, 2)),
        cloners=rng.choice((0, 0, 0, 1, 2)),
        clones=rng.choice((1, 1, 1, 2)),
        embedded=rng.random() < 0.3,
        style=rng.choice(("size_tiered", "size_tiered", "leveled")),
        width=rng.choice((1, 2, 4)),
        sst_bytes=rng.choice((150, 400, 100_000)),
        retention_ms=rng.choice((0, 0, 500, 100_000)),
        min_age_ms=rng.choice((0, 0, 300)),
        impatient=rng.random() < 0.5,
        stalled_ms=rng.choice((1, 300, DAY_MS, DAY_MS)),
    )
    return replace(drawn, **fixed)


_OF_ENGINE = frozenset(field.name for field in fields(Params))
