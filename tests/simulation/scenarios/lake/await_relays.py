"""Each fault at each await of relays: from a database, beside its reader, to a database (see `awaits`, `relays`)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence

from slate_async.collections.core.times import TimeKind
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.awaits import world_of
from tests.simulation.scenarios.lake.lives import EXPECTED, Step
from tests.simulation.scenarios.lake.pairs import LEASE_MS, Fated, Pair, Role, pairs_of
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.relays import RelaysPlay
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.world import World

Act = Callable[["RelayPairPlay", Node], Awaitable[None]]


class RelayPairPlay(RelaysPlay):
    """One pair, beside those whose role it is not."""

    batches = (1,)
    longest_s = 0.2

    def __init__(self, world: World, pair: Pair[Act]) -> None:
        super().__init__(world, params_of(world.seed))
        self._role = pair.role
        self.fated = Fated(world, pair, EXPECTED)

    def people(self) -> None:
        """The role, and the others."""
        casts: tuple[tuple[str, Step], ...] = (
            ("owner", self.own),
            ("copier", self.copy),
            ("controller", self._control),
        )
        for name, step in casts:
            if name != self._role.name:
                self.start(name, functools.partial(self._forever, step))
        life = self.fated.play(lambda node: self._role.act(self, node))
        self.tasks.append(self.world.loop.create_task(life, name="the role"))

    async def owner(self, node: Node) -> None:
        """Write and relay."""
        async with self._lake(node) as lake:
            await self.own(lake, node)

    async def standby(self, node: Node) -> None:
        """Relay beside a reader."""
        async with self._lake(node) as lake:
            await self.stand_by(lake, node)

    async def copier(self, node: Node) -> None:
        """Relay to a database."""
        async with self._lake(node) as lake:
            await self.copy(lake, node)


ROLES: Sequence[Role[Act]] = (
    Role("owner", RelayPairPlay.owner, {}),
    Role("standby", RelayPairPlay.standby, {}),
    Role("copier", RelayPairPlay.copier, {}),
)


def params_of(seed: int) -> LakeParams:
    """Of which little goes wrong but what is meant to."""
    fixed = {"kind": TimeKind.U64, "metastore": "server", "lease_ms": LEASE_MS, "poll_ms": 20, "closed": 0.0}
    calm = {"crashes": 0.0, "freezes": 0.0, "lives": 1, "page_keys": 1000, "active_seconds": 1.0}
    return draw(derived_rng(seed, "params"), {**fixed, **calm})


def awaits_of(role: Role[Act]) -> tuple[int, int]:
    """How many callbacks and requests the role has when nothing goes wrong."""
    world = world_of(0)
    play = RelayPairPlay(world, Pair(role, "crash", 0))
    world.run(play.run())
    return play.fated.awaits


@functools.cache
def all_relay_pairs() -> Sequence[Pair[Act]]:
    """Of all roles."""
    return list(pairs_of(ROLES, awaits_of))


def _make(seed: int, keep_trace: bool) -> World:
    all_relay_pairs()  # which runs worlds of its own
    return world_of(seed, keep_trace)


AWAIT_RELAYS = Scenario(
    "collections-await-relays",
    "each fault at each await of relays from and to a database: a seed is one of the pairs",
    _make,
    lambda world: RelayPairPlay(world, all_relay_pairs()[world.seed % len(all_relay_pairs())]).run(),
)
