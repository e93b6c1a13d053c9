"""Switches of what mirrors rest on, and what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slate_async.manifest.mirroring import ShowMirrored
from slate_async.manifest.state import ManifestState
from slate_async.mirror.copy import SstCopier
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.protocol import Scenario

_copy_all = SstCopier.copy_all
_apply = ShowMirrored.apply


async def copy_slowly(self: SstCopier, ssts: Any) -> Any:
    """Copying takes longer than in so small a world."""
    placed = await _copy_all(self, ssts)
    await self._target.runtime.clock.sleep(1.5)
    return placed


def show_whatever_was_collected(self: ShowMirrored, state: ManifestState) -> ManifestState | None:
    """Rules 25 and 26: what was copied, or found there, is taken to be there still."""
    return _apply(replace(self, base_version=state.sst_floor, kept=frozenset()), state)


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
    "resident": False,
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
        within=30,
        stage=_mirrors(),
        behind=(SLOW,),
    ),
)
