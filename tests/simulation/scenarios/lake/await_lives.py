"""Each fault at each await of creating and deleting a collection, under those who use it (see `awaits`, `lives`)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence

from slate_async.collections.core.times import TimeKind
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.awaits import world_of
from tests.simulation.scenarios.lake.estate import NAME
from tests.simulation.scenarios.lake.lives import EXPECTED, LivesPlay, Step
from tests.simulation.scenarios.lake.pairs import LEASE_MS, Fated, Pair, Role, pairs_of
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

Act = Callable[["LivesPairPlay", Node], Awaitable[None]]
ACTIVE_SECONDS = 0.6


class LivesPairPlay(LivesPlay):
    """One pair, beside a writer, a reader and a controller."""

    def __init__(self, world: World, pair: Pair[Act]) -> None:
        super().__init__(world, params_of(world.seed))
        self._act = pair.role.act
        self.fated = Fated(world, pair, EXPECTED)

    async def run(self) -> Stats:
        """All of it."""
        cast: tuple[tuple[str, Step], ...] = (
            ("writer", self._write),
            ("reader", self._read),
            ("controller", self._control),
        )
        for name, step in cast:
            self.start(name, functools.partial(self._forever, step))
        role = self.world.loop.create_task(self.fated.play(lambda node: self._act(self, node)), name="the role")
        self.tasks.append(role)
        await asyncio.sleep(ACTIVE_SECONDS)
        await self._calm()
        await self._judge()
        return self.estate.counts

    async def remake(self, node: Node) -> None:
        """Create the collection, delete it under those who use it, create it again."""
        async with self._lake(node) as lake:
            await self._create(lake, node)
            await node.runtime.clock.sleep(0.1)
            await lake.delete(NAME, force=True)
            await self._create(lake, node)

    async def delete(self, node: Node) -> None:
        """Create the collection, let others use it, and delete it unless it is read."""
        async with self._lake(node) as lake:
            await self._create(lake, node)
            await node.runtime.clock.sleep(0.1)
            await lake.delete(NAME)


ROLES: Sequence[Role[Act]] = (
    Role("remaker", LivesPairPlay.remake, {}),
    Role("deleter", LivesPairPlay.delete, {}),
)


def params_of(seed: int) -> LakeParams:
    """A collection of which little goes wrong but what is meant to."""
    fixed = {"kind": TimeKind.U64, "lease_ms": LEASE_MS, "poll_ms": 20, "closed": 0.0, "pinners": 0, "listeners": 0}
    calm = {"crashes": 0.0, "freezes": 0.0, "lives": 1, "page_keys": 1000, "active_seconds": ACTIVE_SECONDS}
    return draw(derived_rng(seed, "params"), {**fixed, **calm})


def awaits_of(role: Role[Act]) -> tuple[int, int]:
    """How many callbacks and requests the role has when nothing goes wrong."""
    world = world_of(0)
    play = LivesPairPlay(world, Pair(role, "crash", 0))
    world.run(play.run())
    return play.fated.awaits


@functools.cache
def all_life_pairs() -> Sequence[Pair[Act]]:
    """Of all roles."""
    return list(pairs_of(ROLES, awaits_of))


def _make(seed: int, keep_trace: bool) -> World:
    all_life_pairs()  # which runs worlds of its own
    return world_of(seed, keep_trace)


AWAIT_LIVES = Scenario(
    "collections-await-lives",
    "each fault at each await of creating and deleting a collection: a seed is one of the pairs",
    _make,
    lambda world: LivesPairPlay(world, all_life_pairs()[world.seed % len(all_life_pairs())]).run(),
)
