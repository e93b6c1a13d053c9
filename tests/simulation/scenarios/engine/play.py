"""The play: several processes use and abuse one database, then the world calms down and what is left is judged.

The end is in two acts. First every fault stops and a fresh writer takes over, while others still sleep; then the
sleepers wake, late requests land, and another fresh writer takes over. What *it* finds is the final order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tests.simulation.checkers import Violation, check_history, check_no_leaks
from tests.simulation.faults import NO_FAULTS, FaultPlan
from tests.simulation.history import History, Kind
from tests.simulation.loop import Interleaving, SimTask
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.engine.actors import collect_log, collect_manifests
from tests.simulation.scenarios.engine.attempts import Attempt
from tests.simulation.scenarios.engine.compactor import compact
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.follower import follow
from tests.simulation.scenarios.engine.ingester import ingest, see_all_applied
from tests.simulation.scenarios.engine.params import Params
from tests.simulation.scenarios.engine.workload import EXPECTED, Session, live
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

Act = Callable[[SimulatedDatabase, Node], Coroutine[Any, Any, None]]
RECOVERIES = 12
HELPERS = 0.3
"""How much less often than writers the others crash and freeze."""
RESTS = 4
SKEW_MS = 60_000
FINAL_SKEW_MS = 3_600_000
"""The last writers' clocks are ahead of all others, so that what was to expire has."""
REST_SECONDS = 30
"""Longer than any deadline of the engine but that of an opening: by then a fenced writer has found out."""


def make_world(seed: int, keep_trace: bool, fixed: Mapping[str, Any]) -> World:
    """A world for one seed."""
    return world_of(seed, keep_trace, drawn_params(seed, fixed))


def drawn_params(seed: int, fixed: Mapping[str, Any]) -> Params:
    """The parameters of one seed."""
    return Params.draw(derived_rng(seed, "params"), fixed)


def world_of(seed: int, keep_trace: bool, params: Params) -> World:
    """A world with the troubles that ``params`` say."""
    return World(
        seed,
        plan=FaultPlan(delayed=params.delayed, lateness=(0.02, 20.0), delay=(0.05, 2.0)).scaled(params.faults),
        interleaving=(Interleaving.DOMAINS, Interleaving.SHUFFLED)[seed % 2],
        keep_trace=keep_trace,
    )


class Play:
    """One seed's run. ``skew_ms``: how wrong clocks are; ``act``: what writers do; ``ingest``: what ingesters do."""

    skew_ms = SKEW_MS
    act: Act = staticmethod(live)
    ingest: Act = staticmethod(ingest)

    def __init__(self, world: World, params: Params) -> None:
        self.world = world
        self.database = SimulatedDatabase(world, params, History(world.loop.time))
        self.tasks: list[SimTask] = []
        self._rests = 0

    async def run(self) -> Stats:
        """All of it."""
        database, world, params = self.database, self.world, self.database.params
        plan, world.plan = world.plan, NO_FAULTS
        if not params.create_by_writers:
            await database.create()
        world.plan = plan
        at_once = world.rng.uniform(0, 0.2)
        for number in range(params.writers):
            start = at_once if params.same_instant else world.rng.uniform(0, params.active_seconds * 0.8)
            self._start(f"writer{number}", start, self.act, lives=params.lives)
        self._start_helpers()
        await asyncio.sleep(params.active_seconds)
        await self._end()
        return self._stats()

    # ---- processes

    def _start_helpers(self) -> None:
        params = self.database.params
        for count, name, act in (
            (params.followers, "follower", follow),
            (params.compactors, "compactor", compact),
            (params.log_collectors, "log-collector", collect_log),
            (params.manifest_collectors, "manifest-collector", collect_manifests),
            (params.ingesters, "ingester", self.ingest),
        ):
            for number in range(count):
                self._start(f"{name}{number}", self.world.rng.uniform(0, params.active_seconds * 0.4), act, lives=1)

    def _start(self, name: str, at: float, act: Act, *, lives: int) -> None:
        self.tasks.append(self.world.loop.create_task(self._lives(name, at, act, lives), name=f"life of {name}"))

    async def _lives(self, name: str, at: float, act: Act, lives: int) -> None:
        await asyncio.sleep(at)
        for _ in range(lives):
            if self.database.over:
                return
            node = self._node(name, 1.0 if act is self.act else HELPERS)
            try:
                await node.run(act(self.database, node), "act")
                return
            except NodeCrashedError:
                self.database.count("crashes")
                _crashed(self.database.attempts.made, node.name, self.world.loop.time())
                await asyncio.sleep(self.world.rng.uniform(0, 0.3))
            except EXPECTED:
                return  # it closed itself

    def _node(self, name: str, trouble: float) -> Node:
        params, rng = self.database.params, self.world.rng
        node = self.world.node(
            name, skew_ms=rng.randrange(-self.skew_ms, self.skew_ms), drift_ppm=rng.randrange(-500, 500)
        )
        if rng.random() < params.crashes * trouble:
            node.crash_after(_some_steps(rng))
        if rng.random() < params.freezes * trouble:
            forever = rng.random() < 0.4
            node.freeze_after(_some_steps(rng), None if forever else rng.uniform(0.05, 4))
            self.database.count("freezes")
        return node

    # ---- the end

    async def _end(self) -> None:
        self.world.plan = NO_FAULTS
        self.database.over = True
        first = await self._recover("recovery")
        self._thaw()
        await self.world.network.quiet()
        last = await self._recover("last")
        while not await self._rest():  # a writer that had been on its way lives
            last.check_end()
            last = await self._recover("last")
        first.check_end()
        while not await last.node.run(self._confirmed(last)):
            last = await self._recover("last")
        await last.node.run(self._finish(last))
        check_no_leaks(last.node)
        await self._judge()

    async def _judge(self) -> None:
        check_history(self.database.history)

    def _thaw(self) -> None:
        for node in list(self.world.nodes.values()):
            node.thaw()

    async def _rest(self) -> bool:
        """Wait until every process that woke up has ended; ``False`` if one lives on for so long, perhaps rightly."""
        for _ in range(REST_SECONDS):
            if all(task.done() for task in self.tasks):
                break
            self._thaw()
            await asyncio.sleep(1)
        else:
            self._rests += 1
            if self._rests > RESTS:
                raise Violation("stuck", "somebody never ended in a calm world: " + self.world.loop.waiting())
            return False
        for task in self.tasks:
            task.result()
        return True

    async def _recover(self, name: str) -> Session:
        """A fresh writer that is not fenced at once by one that was on its way."""
        for _ in range(RECOVERIES):
            node = self.world.node(name, skew_ms=FINAL_SKEW_MS)
            session = Session(self.database, node, poll_ms=60_000)
            if await node.run(session.open()) and await node.run(self._settle(session)):
                return session
        raise Violation("stuck", f"{RECOVERIES} writers in a row could not take over a calm database")

    async def _settle(self, session: Session) -> bool:
        """Look and write; whether nobody took over meanwhile."""
        try:
            for _ in range(2):
                await session.write()
        except EXPECTED:
            return False
        return await self._confirmed(session)

    async def _confirmed(self, session: Session) -> bool:
        """Whether it still is the writer."""
        try:
            await session.db.confirm()
        except EXPECTED:
            return False
        return True

    async def _finish(self, session: Session) -> None:
        if self.database.params.ingesters:
            await see_all_applied(session)
        await session.db.flush()  # it may not have waited for its last writes
        if not await session.look(Kind.FINAL):
            raise Violation("stuck", "the last writer could not read")
        await session.close()

    def _stats(self) -> Stats:
        history = self.database.history
        acked = sum(write.is_acked for write in history.writes.values())
        known = {"writes": len(history.writes), "acknowledged": acked, "views": len(history.views)}
        return {**known, **self.database.counts}


def _some_steps(rng: random.Random) -> int:
    """While it opens, or later: opening takes about a hundred steps."""
    return rng.randrange(1, 120) if rng.random() < 0.5 else int(10 ** rng.uniform(0.5, 3))


def _crashed(attempts: list[Attempt], name: str, now: float) -> None:
    for attempt in attempts:
        if attempt.name == name:
            attempt.ended = min(attempt.ended, now)


def play_scenario(
    name: str, summary: str, fixed: Mapping[str, Any], play: Callable[[World, Params], Play] = Play
) -> Scenario:
    """Everything by chance but what is ``fixed`` (fields of `Params`)."""
    return Scenario(
        name,
        summary,
        lambda seed, keep: make_world(seed, keep, fixed),
        lambda world: play(world, drawn_params(world.seed, fixed)).run(),
    )
