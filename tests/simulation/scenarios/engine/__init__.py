"""Scenarios of the real engine: several processes, one database, every fault, every checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.scenarios.engine.duel import CALM, duel
from tests.simulation.scenarios.engine.play import make_world, play_scenario
from tests.simulation.scenarios.protocol import Scenario


def engine_scenario(name: str, summary: str, **fixed: Any) -> Scenario:
    """Everything by chance but what is ``fixed`` (fields of `Params`)."""
    return play_scenario(name, summary, fixed)


KINDS: Mapping[str, Mapping[str, Any]] = {
    "contiguous-wal": {"protocol": "contiguous", "wal": True},
    "contiguous-sst": {"protocol": "contiguous", "wal": False},
    "epochs-wal": {"protocol": "epoch_prefixed", "wal": True},
    "epochs-sst": {"protocol": "epoch_prefixed", "wal": False},
}

ENGINE: Sequence[Scenario] = tuple(
    engine_scenario(f"engine-{name}", f"the engine with the log {name}, all faults", early_flushes=True, **fixed)
    for name, fixed in KINDS.items()
)

INGEST: Sequence[Scenario] = tuple(
    engine_scenario(
        f"engine-ingest-{name}",
        f"the same with the log {name}, and bulk ingests",
        ingesters=2,
        early_flushes=True,
        **fixed,
    )
    for name, fixed in KINDS.items()
)

DUEL = Scenario("engine-duel", "two writers open at one instant", lambda seed, keep: make_world(seed, keep, CALM), duel)
