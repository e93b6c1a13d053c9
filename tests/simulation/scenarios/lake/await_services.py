"""Each fault at each await of a service and of a writer that stands by (see `awaits`, `services`)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence

from slate_async.collections.core.times import TimeKind
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.awaits import append_some, world_of
from tests.simulation.scenarios.lake.controllers import control
from tests.simulation.scenarios.lake.estate import NAME
from tests.simulation.scenarios.lake.lives import EXPECTED
from tests.simulation.scenarios.lake.pairs import LEASE_MS, Fated, Pair, Role, pairs_of
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.services import TAKEOVER_MS, ServicesPlay
from tests.simulation.scenarios.lake.writers import write
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

Act = Callable[["ServicePairPlay", Node], Awaitable[None]]
ACTIVE_SECONDS = 0.6


class ServicePairPlay(ServicesPlay):
    """One pair, beside a writer, and a controller that takes the role from a service."""

    def __init__(self, world: World, pair: Pair[Act]) -> None:
        super().__init__(world, params_of(world.seed))
        self._role = pair.role
        self.fated = Fated(world, pair, EXPECTED)

    async def run(self) -> Stats:
        """All of it."""
        await self.registered()
        self.people()
        await asyncio.sleep(self.params.active_seconds)
        await self._calm()
        self.eye.check()
        await self._judge_answers()
        await self._judge_rest()
        self.eye.check()
        return self.estate.counts

    def people(self) -> None:
        """The role, and who goes on beside it."""
        self.start("writer-w0", lambda node: write(self.estate, node, "w0"))
        if self._role.name == "service":  # a writer that stands by has nobody
            self.start("controller", self._control_late)
        life = self.fated.play(lambda node: self._role.act(self, node))
        self.tasks.append(self.world.loop.create_task(life, name="the role"))

    async def _control_late(self, node: Node) -> None:
        await node.runtime.clock.sleep(0.15)
        await control(self.estate, node)

    async def service(self, node: Node) -> None:
        """Keep all collections until another one has the role, and a little longer."""
        async with self.lake(node, controller=False) as lake, lake.controllers():
            await node.runtime.clock.sleep(0.25)

    async def standby(self, node: Node) -> None:
        """Append, and take that in when nobody does."""
        async with self.lake(node, controller=True) as lake, lake.collection(NAME).writer("w1") as writer:
            await append_some(self.estate, node, writer)
            await node.runtime.clock.sleep(2.5 * TAKEOVER_MS / 1000)


ROLES: Sequence[Role[Act]] = (
    Role("service", ServicePairPlay.service, {}),
    Role("standby", ServicePairPlay.standby, {}),
)


def params_of(seed: int) -> LakeParams:
    """Of which little goes wrong but what is meant to."""
    fixed = {"kind": TimeKind.U64, "lease_ms": LEASE_MS, "poll_ms": 40, "edge": 10, "closed": 0.0, "lives": 1}
    calm = {"crashes": 0.0, "freezes": 0.0, "page_keys": 1000, "pace": 0.1, "active_seconds": ACTIVE_SECONDS}
    return draw(derived_rng(seed, "params"), {**fixed, **calm})


def awaits_of(role: Role[Act]) -> tuple[int, int]:
    """How many callbacks and requests the role has when nothing goes wrong."""
    world = world_of(0)
    play = ServicePairPlay(world, Pair(role, "crash", 0))
    world.run(play.run())
    return play.fated.awaits


@functools.cache
def all_service_pairs() -> Sequence[Pair[Act]]:
    """Of all roles."""
    return list(pairs_of(ROLES, awaits_of))


def _make(seed: int, keep_trace: bool) -> World:
    all_service_pairs()  # which runs worlds of its own
    return world_of(seed, keep_trace)


AWAIT_SERVICES = Scenario(
    "collections-await-services",
    "each fault at each await of a service, and of a writer that stands by: a seed is one of the pairs",
    _make,
    lambda world: ServicePairPlay(world, all_service_pairs()[world.seed % len(all_service_pairs())]).run(),
)
