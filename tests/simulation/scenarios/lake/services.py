"""Services and standby controllers: processes that keep all collections of a lake, or that of their own writers.

They contend for one collection with every fault. Once nothing goes wrong any more, one of them takes in all that was
acknowledged. In a calm world nobody takes the role from one that works.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.collections.store.lives import LifeRegister
from slate_async.errors import ClosedError, FencedError, UnavailableError
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.runtime.supervisor import Supervisor
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.estate import NAME
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.play import LATENCY, LakePlay, make_world
from tests.simulation.scenarios.lake.writers import Comparing, Definite
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

SERVICES, STANDBYS = 2, 2
TAKEOVER_MS = 300
SOON = (0.0001, 0.001)
"""Of a calm store: a round of nearly a hundred requests takes less time than work may wait."""
LIMIT_SECONDS = 120
"""Patience doubles up to 64 times."""
LAKE = "memory:/"
"""In which the collection has the name that it has to a metastore."""


class ServicesPlay(LakePlay):
    """One seed's run. ``calm``: nothing goes wrong, and services stay."""

    def __init__(self, world: World, params: LakeParams, *, calm: bool = False) -> None:
        super().__init__(world, params)
        self.estate.settings = self.estate.settings.model_copy(update={"controller_takeover_ms": TAKEOVER_MS})
        self._calm_world = calm

    async def run(self) -> Stats:
        """All of it."""
        await self.registered()
        self.people()
        await asyncio.sleep(self.params.active_seconds)
        await self._judge_progress()
        self._judge_claims()
        await self._calm()
        self.eye.check()
        await self._judge_answers()
        await self._judge_rest()
        self.eye.check()
        return self.estate.counts

    async def registered(self) -> None:
        """The collection is created: its life is in the register."""
        plan, self.world.plan = self.world.plan, NO_FAULTS
        node = self.world.node("creator")
        await node.run(self._register(node))
        self.world.plan = plan

    async def _register(self, node: Node) -> None:
        store, life = PrefixedStore(self.world.cloud.objects(node), NAME), self.estate.life
        supervisor = Supervisor("creator", lambda cause: None)
        register = LifeRegister(store, node.runtime, supervisor, name=NAME, deadline_ms=1_000)
        made = await register.create(replace(life, number=0))
        assert (made.uuid, made.number) == (life.uuid, life.number)
        await register.close()

    def people(self) -> None:
        """Services, and writers that stand by, beside those that use the collection."""
        super().people()
        for number in range(SERVICES):
            self.start(f"service{number}", self.serve)
        for number in range(STANDBYS):
            self.start(f"standby{number}", functools.partial(self.stand_by, f"s{number % self.params.names}"))

    def lake(self, node: Node, *, controller: bool) -> AbstractAsyncContextManager[Lake]:
        """All collections, as one more process opens them."""
        store = self.world.cloud.objects(node, page_keys=self.params.page_keys)
        return open_collections(
            store,
            metastore=self.estate.factory(node),
            name=LAKE,
            settings=self.estate.settings,
            runtime=node.runtime,
            controller=controller,
        )

    # ---- what they do

    async def serve(self, node: Node) -> None:
        """Keep all collections, for some time or until the calm."""
        rng = node.rng
        while not self.estate.over:
            async with self.lake(node, controller=False) as lake, lake.controllers() as service:
                for _ in range(1_000_000 if self._calm_world else rng.choice((5, 50, 500))):
                    if self.estate.over:
                        break
                    await node.runtime.clock.sleep(0.05)
                    self.estate.count("served", len(service.controllers))

    async def stand_by(self, name: str, node: Node) -> None:
        """Write, and become the controller when that waits for one."""
        estate = self.estate
        while not estate.over:
            try:
                async with self.lake(node, controller=True) as lake, lake.collection(NAME).writer(name) as writer:
                    if estate.params.appends is Appends.COMPARE:
                        await Comparing(estate, node, writer).run()
                    else:
                        await Definite(estate, node, writer).run()
                    await node.runtime.clock.sleep(node.rng.uniform(0, 4 * TAKEOVER_MS / 1000))
            except (UnavailableError, UpperMismatchError, FencedError):
                estate.count("unavailable")
            except ClosedError:
                estate.count("closed")
            await node.runtime.clock.sleep(0.05)

    # ---- what is right

    async def _judge_progress(self) -> None:
        """Once nothing goes wrong any more, somebody has the role and takes in what was acknowledged."""
        self.world.plan = replace(NO_FAULTS, latency=SOON if self._calm_world else LATENCY)
        for _ in range(LIMIT_SECONDS):
            for node in list(self.world.nodes.values()):
                node.thaw()
            await asyncio.sleep(1)
            if all(ack.upper <= self.eye.head.upper for ack in self.estate.acks):
                return
        waiting = next(ack for ack in self.estate.acks if not ack.upper <= self.eye.head.upper)
        raise Violation("unattended", f"{waiting.author}'s append to {waiting.upper} waits for a controller for ever")

    def _judge_claims(self) -> None:
        claims = list(self.eye.claims.values())
        self.estate.count("fenced", max(len(claims) - 1, 0))
        self.estate.count("standby claims", sum(1 for author in claims if author.startswith("standby")))
        if self._calm_world and len(claims) > SERVICES + STANDBYS:
            raise Violation("needless", f"in a calm world the role was taken {len(claims)} times: {claims}")


def _params(seed: int, *, calm: bool = False) -> LakeParams:
    fixed = {"controllers": 0, "closed": 0.0, "pinners": 0, "verifiers": 0, "names": 1, "copies": 1, "lives": 1_000}
    none = {"faults": 0.0, "crashes": 0.0, "freezes": 0.0, "page_keys": 1000} if calm else {}
    return draw(derived_rng(seed, "params"), {**fixed, **none})


def _scenario(name: str, summary: str, *, calm: bool) -> Scenario:
    return Scenario(
        name,
        summary,
        lambda seed, keep_trace: make_world(
            seed, keep_trace, _params(seed, calm=calm), latency=SOON if calm else LATENCY
        ),
        lambda world: ServicesPlay(world, _params(world.seed, calm=calm), calm=calm).run(),
    )


SERVED = _scenario(
    "collections-services",
    "services and writers that stand by contend for the role of the controller: all faults",
    calm=False,
)
SERVED_CALMLY = _scenario(
    "collections-services-calm",
    "services and writers that stand by, and nothing goes wrong: nobody takes the role from one that works",
    calm=True,
)
