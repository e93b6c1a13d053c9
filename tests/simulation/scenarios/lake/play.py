"""The play of a collection: people come, crash, sleep and come again; then a calm, and the collection comes to rest."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from metastores.names import MERGED_AREAS
from slate_async.collections.codec.life import Appends
from slate_async.collections.core import names
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.times import Time
from slate_async.collections.reader.critical import open_critical
from slate_async.collections.reader.handle import open_reader
from slate_async.collections.verify.verifier import verify
from slate_async.collections.writer.writer import open_writer
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS, FaultPlan
from tests.simulation.loop import Interleaving, SimTask
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.runtime import OffloadDelay, derived_rng
from tests.simulation.scenarios.lake.controllers import bring_to_rest, control
from tests.simulation.scenarios.lake.estate import FOLDER, NAME, Estate
from tests.simulation.scenarios.lake.eye import Eye
from tests.simulation.scenarios.lake.lenders import Job, lend, work
from tests.simulation.scenarios.lake.listeners import listen
from tests.simulation.scenarios.lake.params import SKEW_MS, LakeParams, draw
from tests.simulation.scenarios.lake.pinners import CRITICAL, pin
from tests.simulation.scenarios.lake.readers import read
from tests.simulation.scenarios.lake.verifiers import check
from tests.simulation.scenarios.lake.writers import write
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

Act = Callable[[Node], Coroutine[Any, Any, None]]
REST_SECONDS = 60
LATENCY, DELAY = (0.0005, 0.008), (0.02, 0.6)
MOST_FREEZES = 3
"""Of one life of a process."""


class LakePlay:
    """One seed's run."""

    def __init__(self, world: World, params: LakeParams) -> None:
        self.world = world
        self.params = params
        self.estate = Estate(world, params, derived_rng(world.seed, "estate"))
        self.eye = Eye(self.estate)
        self.tasks: list[SimTask] = []

    async def run(self) -> Stats:
        """All of it."""
        self.people()
        await asyncio.sleep(self.params.active_seconds)
        await self._calm()
        self.eye.check()
        await self._judge_answers()
        await self._judge_rest()
        self.eye.check()
        return self.estate.counts

    def people(self) -> None:
        """Who uses the collection."""
        params, estate = self.params, self.estate
        for number, _ in itertools.product(range(params.names), range(params.copies)):
            name = f"w{number}"
            self.start(f"writer-{name}", functools.partial(_writing, estate, name))
        for number in range(params.readers):
            self.start(f"reader{number}", lambda node: read(estate, self.eye, node))
        for number in range(params.listeners):
            self.start(f"listener{number}", functools.partial(_listening, estate, self.eye, f"listener{number}"))
        jobs: list[Job] = []
        for number in range(params.lenders):
            self.start(f"lender{number}", lambda node: lend(estate, self.eye, node, jobs))
        for number in range(params.workers):
            self.start(f"worker{number}", lambda node: work(estate, self.eye, node, jobs))
        for number in range(params.pinners):
            self.start(f"pinner{number}", lambda node: pin(estate, self.eye, node, CRITICAL))
        for number in range(params.controllers):
            self.start(f"controller{number}", lambda node: control(estate, node))
        for number in range(params.verifiers):
            self.start(f"verifier{number}", lambda node: check(estate, node))

    def start(self, name: str, act: Act) -> None:
        """A process that lives some times."""
        life = self._lives(name, self.world.rng.uniform(0, self.params.active_seconds * 0.3), act)
        self.tasks.append(self.world.loop.create_task(life, name=f"life of {name}"))

    async def _lives(self, name: str, at: float, act: Act) -> None:
        await asyncio.sleep(at)
        for _ in range(self.params.lives):
            if self.estate.over:
                return
            try:
                await self._lived(name, act)
                return
            except NodeCrashedError:
                self.estate.count("crashed")
                await asyncio.sleep(self.world.rng.uniform(0, 0.2))

    async def _lived(self, name: str, act: Act) -> None:
        node = self._node(name)
        await node.run(act(node), "act")

    def _node(self, name: str) -> Node:
        params, rng = self.params, self.world.rng
        node = self.world.node(name, skew_ms=rng.randrange(-SKEW_MS, SKEW_MS), drift_ppm=rng.randrange(-500, 500))
        if rng.random() < params.crashes:
            node.crash_after(_some_steps(rng))
        for _ in range(MOST_FREEZES):
            if rng.random() < params.freezes:
                node.freeze_after(_some_steps(rng), None if rng.random() < 0.1 else rng.uniform(0.05, 1))
                self.estate.count("frozen")
        return node

    # ---- the end

    async def _calm(self) -> None:
        """Nothing goes wrong any more; sleepers wake, what was late lands, and everybody ends."""
        self.world.plan = replace(NO_FAULTS, latency=LATENCY)
        self.estate.over = True
        for _ in range(REST_SECONDS):
            for node in list(self.world.nodes.values()):
                node.thaw()
            if all(task.done() for task in self.tasks):
                break
            await asyncio.sleep(1)
        else:
            raise Violation("stuck", "somebody never ended in a calm world: " + self.world.loop.waiting())
        for task in self.tasks:
            task.result()
        await self.world.network.quiet()

    async def _judge_answers(self) -> None:
        """P5, P7, P14: what the last controller and a reader find has all that was acknowledged."""
        self._judge_chain()
        node = self.world.node("last")
        await node.run(bring_to_rest(self.estate, node, lambda: True))
        await node.run(self._read_all(node))

    def _judge_chain(self) -> None:
        marks = {data for link in self.eye.chain for data, _, _ in link.rows}
        for mark in self.estate.refused & marks:
            raise Violation("refused", f"the append that brought {mark!r} was refused, and is in the chain")
        if self.params.appends is Appends.COMPARE:
            for ack in self.estate.acks:
                if ack.rows[0][0] not in marks:
                    raise Violation(
                        "lost", f"{ack.author}'s append from {ack.lower} to {ack.upper} was acknowledged, and is lost"
                    )

    async def _read_all(self, node: Node) -> None:
        estate = self.estate
        reader = await open_reader(estate.stores(node).reading())
        upper = self.eye.head.upper
        known = [as_of for as_of in self._grid() if reader.since.less_equal(as_of) and not upper.less_equal(as_of)]
        for as_of in [*known[-1:], *self.world.rng.sample(known, min(len(known), 4))]:
            snapshot = await reader.snapshot(as_of)
            found = sorted([row async for row in snapshot.rows()])
            snapshot.close()
            if found != estate.contents(as_of):
                raise Violation("final", f"at {as_of}: {found}, expected {estate.contents(as_of)}")
        await reader.expire()
        for ack in estate.acks:
            for as_of in self._grid():
                if ack.lower.less_equal(as_of) and not ack.upper.less_equal(as_of) and upper.less_equal(as_of):
                    raise Violation(
                        "lost",
                        f"{ack.author}'s append from {ack.lower} to {ack.upper} was acknowledged, and the"
                        f" upper is {upper}",
                    )

    def _grid(self) -> list[Time]:
        edge = self.params.edge + 1
        return list(itertools.product(range(edge), repeat=self.params.kind.coordinates))

    async def _judge_rest(self) -> None:
        """P9: a writer closes the collection, so that nothing is beyond its end; then there is what is reachable."""
        node = self.world.node("closer")
        await node.run(self._close(node))
        node = self.world.node("last")
        await node.run(bring_to_rest(self.estate, node, lambda: self._garbage() is None))
        left = self._garbage()
        if left is not None:
            raise Violation("garbage", f"left for ever: {left}")
        await node.run(self._verify(node))

    async def _verify(self, node: Node) -> None:
        """At rest nothing is wrong."""
        report = await verify(self.estate.stores(node).reading())
        if report.findings:
            raise Violation("alarm", f"a verification at rest found {report.findings}")

    async def _close(self, node: Node) -> None:
        if self.eye.is_held(CRITICAL):
            self.eye.criticals.add(CRITICAL)  # who made it may have died before it was told
        for name in self.eye.criticals:
            await (await open_critical(self.estate.stores(node).reading(), name)).expire()
        closer = await open_writer(self.estate.stores(node).writing("closer"), self.params.appends)
        if not closer.upper.is_done:
            rows = self.estate.rows(closer.upper, DONE) if self.params.appends is Appends.DEFINITE else []
            await closer.append(rows, upper=DONE)
        await closer.close()

    def _garbage(self) -> str | None:
        """What is there beside the head and its one batch."""
        head = self.eye.head
        named = {batch.name for batch in head.batches if batch.rows}
        keys = [key.removeprefix(f"{FOLDER}/") for key in self.world.cloud.store.objects]
        if missing := named.difference(keys):
            raise Violation("missing", f"version {head.version} names {missing}")
        named |= {names.hold_name(pin) for pin in self.eye.criticals if not self.eye.is_held(pin)}  # kept, for its name
        named.add(f"{NAME}/collection")
        left = [key for key in keys if key not in named and not key.startswith(MERGED_AREAS.folder)]
        if left or len(head.batches) > 1:
            return f"{left[:3]} and {len(head.batches)} batches"
        return None


def _some_steps(rng: random.Random) -> int:
    return int(10 ** rng.uniform(0.7, 3.2))


async def _listening(estate: Estate, eye: Eye, name: str, node: Node) -> None:
    await listen(estate, eye, node, name)


async def _writing(estate: Estate, name: str, node: Node) -> None:
    await write(estate, node, name)


def make_world(seed: int, keep_trace: bool, params: LakeParams, *, latency: tuple[float, float] = LATENCY) -> World:
    """A world with the faults of ``params``; the store answers within ``latency`` seconds."""
    rng = derived_rng(seed, "world of a collection")
    return World(
        seed,
        plan=FaultPlan(latency=latency, delay=DELAY, lateness=(0.02, params.lateness)).scaled(params.faults),
        interleaving=rng.choice((Interleaving.DOMAINS, Interleaving.DOMAINS, Interleaving.FIFO)),
        offload=OffloadDelay(rng.choice((0.0, 0.01)), 0.0),
        keep_trace=keep_trace,
    )


def lake_scenario(name: str, summary: str, **fixed: Any) -> Scenario:
    """Everything by chance but what is ``fixed`` (fields of `LakeParams`)."""

    def params(seed: int) -> LakeParams:
        return draw(derived_rng(seed, "params"), fixed)

    def make(seed: int, keep_trace: bool) -> World:
        return make_world(seed, keep_trace, params(seed))

    return Scenario(name, summary, make, lambda world: LakePlay(world, params(world.seed)).run())
