"""Switches of what mirrors rest on, and what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slate_async.engine.stored_database import StoredDatabase, ensure_register
from slate_async.maintenance.mirror import make
from slate_async.maintenance.mirror.copy import SstCopier
from slate_async.maintenance.mirror.logged import Logged, write_tables
from slate_async.storage.manifest.edits.mirror import ShowMirrored
from slate_async.storage.manifest.state import ManifestState, SstRef
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.life.tails import TAILS
from tests.simulation.scenarios.protocol import Scenario

_copy_all = SstCopier.copy_all
_apply = ShowMirrored.apply
_SCRIPTS = {scenario.name.removeprefix("script-"): scenario for scenario in TAILS}


async def copy_slowly(self: SstCopier, ssts: Any) -> Any:
    """Copying takes longer than in so small a world."""
    placed = await _copy_all(self, ssts)
    await self._target.runtime.clock.sleep(1.5)
    return placed


def show_whatever_was_collected(self: ShowMirrored, state: ManifestState) -> ManifestState | None:
    """Rules 25 and 26: what was copied, or found there, is taken to be there still."""
    return _apply(replace(self, base_version=state.sst_floor, kept=frozenset()), state)


async def no_register(*_: object) -> None:
    """The register is made when it is known what it is to say."""


async def write_and_register(logged: Logged, target: StoredDatabase, base: int) -> list[SstRef]:
    """What it says is of the checkpoint that is mirrored, which may never be shown."""
    rows = await write_tables(logged, target, base)
    await ensure_register(target, logged.state)
    return rows


SLOW = Patch(SstCopier, "copy_all", copy_slowly)


def _mirrors(**fixed: Any) -> Scenario:
    return life_scenario("mirrors", "what a switch runs", **{**_BUSY, **fixed})


_BUSY = {
    "protocol": "contiguous",
    "wal": True,
    "ack": "committed",
    "writers": 2,
    "rounds": 6,
    "tasks": 1,
    "active_seconds": 6.0,
    "faults": 0.5,
    "crashes": 0.4,
    "freezes": 0.4,
    "compactors": 1,
    "collectors": 0,
    "readers": 0,
    "keepers": 2,
    "cloners": 0,
    "mirrorers": 3,
    "embedded": False,
    "retention_ms": 0,
    "min_age_ms": 0,
    "l0_rows": 1,
    "l0_flushes": 0.3,
    "width": 2,
}

MIRROR_SWITCHES: Sequence[Switch] = (
    Switch(
        "mirror-collected",
        "25, 26",
        "a mirror shows what was copied, whether a collector took it since or not",
        (Patch(ShowMirrored, "apply", show_whatever_was_collected),),
        within=80,
        stage=_mirrors(),
        behind=(SLOW,),
    ),
    Switch(
        "mirror-register",
        "16",
        "the register of a mirror is made of the checkpoint that is mirrored, right before that is shown",
        (Patch(make, "ensure_register", no_register), Patch(make, "write_tables", write_and_register)),
        within=20,
        stage=_SCRIPTS["mirror-begun-again"],
    ),
)
