"""The scenarios of maps with indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

from slate_async.database.maps import build
from tests.simulation.scenarios.engine.play import Play, play_scenario
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.maps.session import judge, live_with_maps
from tests.simulation.scenarios.protocol import Scenario, Stats

BUSY: Mapping[str, Any] = {"ack": "committed", "tasks": 4, "rounds": 16, "early_flushes": True, "ingesters": 0}
CALM: Mapping[str, Any] = {
    **BUSY,
    "faults": 0.0,
    "crashes": 0.0,
    "freezes": 0.0,
    "writers": 1,
    "lives": 1,
    "tasks": 6,
    "rounds": 25,
}
STEP_ROWS = 3
"""Of a build: several steps for a few rows."""


class MapPlay(Play):
    """`Play` whose writers change a map with indexes."""

    act = staticmethod(live_with_maps)

    async def run(self) -> Stats:
        """All of it."""
        with mock.patch.object(build, "STEP_ROWS", STEP_ROWS):
            return await super().run()

    async def _finish(self, session: Session) -> None:
        await judge(session)
        await super()._finish(session)


MAPS: Sequence[Scenario] = (
    play_scenario("maps", "a map with indexes that are built and dropped beside writers; all faults", BUSY, MapPlay),
    play_scenario("maps-calm", "many tasks of one writer on a map with indexes, no faults", CALM, MapPlay),
)
