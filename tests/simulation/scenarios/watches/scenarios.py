"""The scenarios of watches."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.scenarios.engine.params import Params
from tests.simulation.scenarios.engine.play import Play, play_scenario
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.watches.watched import Watched, check_watched, rows_by_seq
from tests.simulation.scenarios.watches.watchers import live_watched, watch_reader
from tests.simulation.world import World

BUSY: Mapping[str, Any] = {"rounds": 16, "early_flushes": True, "followers": 0, "log_collectors": 0}
CALM: Mapping[str, Any] = {
    **BUSY,
    "ack": "committed",
    "faults": 0.0,
    "crashes": 0.0,
    "freezes": 0.0,
    "writers": 1,
    "lives": 1,
    "tasks": 3,
}
READERS = 2


class WatchPlay(Play):
    """`Play` whose writers are watched, and some readers, too."""

    def __init__(self, world: World, params: Params) -> None:
        super().__init__(world, params)
        self.seen: list[Watched] = []
        self.act = functools.partial(live_watched, self.seen)  # type: ignore[method-assign]

    def _start_helpers(self) -> None:
        super()._start_helpers()
        watch = functools.partial(watch_reader, self.seen)
        for number in range(READERS):
            self._start(f"watching{number}", self.world.rng.uniform(0, 1), watch, lives=2)

    async def _judge(self) -> None:
        await super()._judge()
        written = rows_by_seq(self.database.history)
        for watched in self.seen:
            check_watched(written, watched)
            self.database.count("watched", len(watched.rows))


WATCHES: Sequence[Scenario] = (
    play_scenario("watches", "writers and readers that are watched; all faults", BUSY, WatchPlay),
    play_scenario("watches-ingest", "the same beside bulk ingests", {**BUSY, "ingesters": 2}, WatchPlay),
    play_scenario("watches-calm", "one writer that is watched, no faults", {**CALM, "ingesters": 1}, WatchPlay),
)
