"""The play of a life: as `tests.simulation.scenarios.engine.play`, with the product's own helpers, and a longer end.

When the last writer has seen the final order, everything that holds something is let go, or not, as the seed has it;
compactors and collectors come once more; then the store must hold what is needed, and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from slate_async import GcReport
from slate_async.engine.gc.sweeper import PROBED_MS
from slate_async.errors import InvalidError, UnavailableError
from tests.live_set import live_set
from tests.simulation.checkers import Violation, check_history
from tests.simulation.history import Kind
from tests.simulation.linearizability import NEVER
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.play import FINAL_SKEW_MS, Act, Play, world_of
from tests.simulation.scenarios.engine.rows import record_view
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.life import cloners, mirrorers
from tests.simulation.scenarios.life.beside import collect, compact, follow, writes_of
from tests.simulation.scenarios.life.cloners import clone
from tests.simulation.scenarios.life.consumed import check_consumed
from tests.simulation.scenarios.life.consumers import consume, finish
from tests.simulation.scenarios.life.estate import Clone, Estate, lasting, rows_of
from tests.simulation.scenarios.life.keepers import Keeper, keep
from tests.simulation.scenarios.life.mirrorers import mirror
from tests.simulation.scenarios.life.params import GC_SKEW_MS, LIFETIME_MS, SKEW_MS, LifeParams, draw_life
from tests.simulation.scenarios.life.replacers import ingest_or_replace
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.world import World

ROUNDS = 12
"""So many rounds of a collector are enough for anything that was left."""
BETWEEN_SECONDS = 1.0
LAST_LIFETIMES_SECONDS = 2 * (LIFETIME_MS + GC_SKEW_MS) / 1000 + 3
"""After this long what readers held, and checkpoints that end, have ended for everybody."""
Work = Callable[[Estate, SimulatedDatabase, Node], Coroutine[Any, Any, None]]


class LifePlay(Play):
    """One seed's run."""

    skew_ms = SKEW_MS

    def __init__(self, world: World, params: LifeParams) -> None:
        super().__init__(world, params)
        self.estate = Estate(world, params)
        self.database = self.estate.source
        self._probed_until = 0.0

    def _start_helpers(self) -> None:
        params, rng = self.estate.params, self.world.rng
        helpers: tuple[tuple[int, str, Work], ...] = (
            (params.compactors, "compactor", compact),
            (params.collectors, "collector", collect),
            (params.readers, "reader", follow),
            (params.keepers, "keeper", keep),
            (params.cloners, "cloner", clone),
            (params.mirrorers, "mirrorer", mirror),
        )
        ingesting: Act = functools.partial(ingest_or_replace, self.estate)
        for number in range(params.ingesters):
            self._start(f"ingester{number}", rng.uniform(0, params.active_seconds * 0.4), ingesting, lives=2)
        for count, name, work in helpers:
            for number in range(count):
                act: Act = functools.partial(work, self.estate)
                self._start(f"{name}{number}", rng.uniform(0, params.active_seconds * 0.4), act, lives=2)
        for number, consumed in enumerate(self.estate.consumers):
            consuming: Act = functools.partial(consume, self.estate, consumed=consumed)
            self._start(f"consumer{number}", rng.uniform(0, params.active_seconds * 0.4), consuming, lives=4)

    # ---- the end

    async def _judge(self) -> None:
        self._probed_until = self.world.loop.time() + 2 * PROBED_MS / 1000
        self.estate.check()
        check_history(self.database.history)
        rng = self.world.rng
        left: list[Clone] = []
        for chosen in self.estate.clones:
            if chosen.left and not chosen.made and not self.estate.is_finished(chosen):
                left.append(chosen)
            elif chosen.begun:
                await self._end_of(chosen, destroyed=rng.random() < 0.5)
        if self.estate.mirrors:
            await self._end_of_mirror(self.estate.mirrors[0])
        node = self.world.node("caretaker")
        for number, consumed in enumerate(self.estate.consumers):
            await node.run(finish(self.estate, self.database, node, consumed))
            check_consumed(self.database.history, consumed, f"consumer{number}")
        if rng.random() < 0.5:
            for kept in self.estate.kept.values():
                kept.deleted = True
            await node.run(self._forget_all(node))
        else:
            keeper = Keeper(self.estate, self.database, node)
            for _ in range(3):
                await node.run(keeper.read())
        await node.runtime.clock.sleep(LAST_LIFETIMES_SECONDS)
        await self._tidy(self.database)
        self._check_released(left)
        await self._look_again()
        self.estate.check()

    async def _forget_all(self, node: Node) -> None:
        async with self.estate.admin(node, self.database) as admin:
            for info in await admin.checkpoints.list():
                if info.owner == "user" or (info.owner == "feed" and info.name is not None):
                    await admin.checkpoints.delete(info.id)

    async def _end_of(self, chosen: Clone, *, destroyed: bool) -> None:
        """Finish, judge, and perhaps destroy a clone."""
        node = self.world.node("heir")
        if not chosen.made:
            await node.run(cloners.make(self.estate, chosen, node))
        if not chosen.doomed:
            if chosen.base is None:
                await node.run(cloners.see(self.estate, chosen, node))
            await self._judge_clone(chosen)
            if not destroyed:
                await self._tidy(chosen.database)
        if chosen.doomed or destroyed:
            try:
                await node.run(cloners.destroy(self.estate, chosen, node))
            except InvalidError:
                if self.estate.eye(chosen.database).head is not None:
                    raise

    async def _end_of_mirror(self, database: SimulatedDatabase) -> None:
        """A last checkpoint is mirrored, whatever was begun before; then the mirror is a database like any other."""
        node = self.world.node("heir")
        kept = await node.run(Keeper(self.estate, self.database, node).create())
        if not await node.run(mirrorers.mirror_one(self.estate, node, kept)):
            raise Violation("stuck", f"{database.name} could not be made to show checkpoint {kept.id}")
        rows = await node.run(mirrorers.look(self.estate, node))
        if rows is None or lasting(rows) != lasting(kept.rows or []):
            raise Violation("mirror", f"{database.name} holds {rows}, the checkpoint {kept.rows}")
        await self._judge_clone(Clone(database, base=rows))
        await self._tidy(database)

    def _check_released(self, left: list[Clone]) -> None:
        """What clones that nobody goes on making held in the source has been given back."""
        head = self.estate.eye(self.database).head
        assert head is not None
        held = {checkpoint.name for checkpoint in head.checkpoints if checkpoint.owner == "clone"}
        for chosen in left:
            self.estate.count("clones-left")
            if chosen.database.name in held:
                raise Violation(
                    "orphan", f"{self.database.name} is held by {chosen.database.name}, which nobody goes on making"
                )

    async def _judge_clone(self, chosen: Clone) -> None:
        """Its history is that of its source up to where it was made, and its own from there on."""
        history, source = chosen.database.history, self.database.history
        assert chosen.base is not None
        inherited = (source.writes[write] for write in writes_of(chosen.base))
        for write in inherited:
            history.writes[write.id] = replace(write, acked=NEVER, refused=False)
        heir = Session(chosen.database, self.world.node("heir", skew_ms=FINAL_SKEW_MS), poll_ms=60_000)
        if not await heir.node.run(heir.open()) or not await heir.node.run(heir.look(Kind.FINAL)):
            raise Violation("stuck", f"nobody could open {chosen.database.name}")
        check_history(history)
        await heir.node.run(heir.close())

    async def _tidy(self, database: SimulatedDatabase) -> None:
        """Compact and collect until nothing is left to do; then compare what there is with what is needed."""
        node = self.world.node("caretaker")

        async def work() -> None:
            async with self.estate.compactor(node, database) as compactor:
                await compactor.compact(full=self.world.rng.random() < 0.5)
            async with self.estate.collector(node, database) as collector:
                report: GcReport | None = None
                for _ in range(ROUNDS):
                    try:
                        report = await collector.collect()
                    except UnavailableError:
                        continue  # so much garbage that deleting it, one by one, takes longer than a request may
                    if report.manifest_versions or report.objects or report.waiting or report.abandoned:
                        await node.runtime.clock.sleep(BETWEEN_SECONDS)
                    elif (young_s := self._probed_until - self.world.loop.time()) > 0:
                        await node.runtime.clock.sleep(young_s + BETWEEN_SECONDS)
                    else:
                        return
            raise Violation("garbage", f"{ROUNDS} rounds of a collector have not come to an end: {report}")

        await node.run(work())
        found = await node.run(live_set(database.store(node), database.factory(node), database.name, node.runtime))
        if found.missing:
            raise Violation("missing", f"{database.name} needs {found.missing}")
        if found.left:
            raise Violation("garbage", f"{database.name} keeps {found.left} for ever")

    async def _look_again(self) -> None:
        """Nothing of that has changed what the database holds."""
        node = self.world.node("caretaker", skew_ms=FINAL_SKEW_MS)

        async def look() -> None:
            async with self.estate.reader(node, self.database) as reader:
                rows = await rows_of(reader)
            record_view(self.database.history, node.name, Kind.FINAL, rows)

        before = self.database.history.final
        await node.run(look())
        after = self.database.history.final
        if (sorted(before.writes), before.values) != (sorted(after.writes), after.values):
            raise Violation("value", f"the end was {before}; compacted and collected it is {after}")


def life_scenario(name: str, summary: str, **fixed: Any) -> Scenario:
    """Everything by chance but what is ``fixed`` (fields of `LifeParams`)."""

    def params(seed: int) -> LifeParams:
        return draw_life(derived_rng(seed, "params"), fixed)

    def make(seed: int, keep_trace: bool) -> World:
        return world_of(seed, keep_trace, params(seed))

    return Scenario(name, summary, make, lambda world: LifePlay(world, params(world.seed)).run())
