"""The scenarios ``collections-…``: a seed plays a number of short histories, each of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slate_async.collections.core.times import TimeKind
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.collections.play import play
from tests.simulation.scenarios.collections.stage import Appends, Mood
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

HISTORIES = 5
"""Of each kind of times."""


def histories(appends: Appends, mood: Mood | None = None) -> Scenario:
    """Histories of such a collection, all in one mood or each in any."""

    async def run(world: World) -> Stats:
        stats = Counter[str]()
        for number in range(HISTORIES):
            for kind in TimeKind:
                rng = derived_rng(world.seed, f"collections {kind.value} {number}")
                stage = play(rng, appends, kind, mood)
                stats.update(stage.stats)
                world.trace.add(kind.value, "history", str(stage.head.upper), f"{stage.now} {rng.random()}")
        return dict(stats)

    return Scenario(
        f"collections-{appends}",
        f"a collection of {appends} appends, by the product's decisions over a store of its own: all faults",
        lambda seed, keep_trace: World(seed, keep_trace=keep_trace),
        run,
    )


COLLECTIONS: Sequence[Scenario] = (histories("definite"), histories("compare"))
