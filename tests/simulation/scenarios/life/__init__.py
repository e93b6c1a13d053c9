"""Scenarios of a database's whole life: the product's compactors, collectors, readers, checkpoints and clones, all as
processes that crash, sleep and wake beside its writers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.scenarios.engine import KINDS
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.protocol import Scenario

INGEST_LIFE: Sequence[Scenario] = tuple(
    life_scenario(f"life-ingest-{name}", f"the same with the log {name}, and bulk ingests", ingesters=2, **fixed)
    for name, fixed in KINDS.items()
)

LIFE: Sequence[Scenario] = tuple(
    life_scenario(f"life-{name}", f"compactors, collectors, readers, clones: the log {name}, all faults", **fixed)
    for name, fixed in KINDS.items()
)

_CONSUMED = {"feeds": 3, "cloners": 0, "keepers": 0, "readers": 0, "compactors": 1, "collectors": 1, "ingesters": 1}

FEEDS: Sequence[Scenario] = tuple(
    life_scenario(f"feed-{name}", f"consumers of the change feed: the log {name}, all faults", **fixed, **_CONSUMED)
    for name, fixed in KINDS.items()
)

_MIRRORED = {
    "mirrorers": 3,
    "keepers": 2,
    "cloners": 0,
    "readers": 0,
    "collectors": 0,
    "rounds": 6,
    "active_seconds": 6.0,
}

MIRRORS: Sequence[Scenario] = tuple(
    life_scenario(f"mirror-{name}", f"mirrors of checkpoints: the log {name}, all faults", **fixed, **_MIRRORED)
    for name, fixed in KINDS.items()
)

ALONE: Sequence[Scenario] = tuple(
    life_scenario(
        f"alone-{name}",
        f"writers that compact and collect by themselves: the log {name}, all faults",
        **fixed,
        collectors=0,
        active_seconds=4.0,
        rounds=10,
        own_gc=True,
        embedded=True,
    )
    for name, fixed in KINDS.items()
)
