"""`Cast`: two writers that fence each other, a compactor and a reader of one database, all of which may crash.

What writers write, and what must be seen of it, a scenario says in a class of its own.
"""

from __future__ import annotations

import abc
import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

import slate_async as slate
from tests.engine import on
from tests.simulation.faults import NO_FAULTS, FaultPlan
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.engine.workload import EXPECTED
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tiny import tiny_world
from tests.simulation.world import World

ROUNDS = 40
WRITERS = 2
LIVES = 3
"""Of a writer. Others go on until writers are over, but have at most `MOST_LIVES`."""
MOST_LIVES = 20
PAUSE_S = 0.15
Role = Callable[[Node], Coroutine[Any, Any, None]]


class Cast(abc.ABC):
    """One seed's run. ``name``: of the database."""

    name: ClassVar[str]

    def __init__(self, world: World, settings: dict[str, Any]) -> None:
        self.world = world
        self.settings = settings
        self.counts: dict[str, int] = {}
        self.over = False

    @abc.abstractmethod
    async def write_once(self, node: Node, db: slate.Db) -> None:
        """One write."""

    @abc.abstractmethod
    async def look(self, node: Node, db: slate.Readable) -> None:
        """Read all, and judge it."""

    @abc.abstractmethod
    async def finish(self, node: Node) -> None:
        """Judge what is there when all is over and no fault comes any more."""

    @abc.abstractmethod
    def stats(self) -> Stats:
        """Counts of what happened, beside `counts`."""

    def roles(self) -> Sequence[tuple[str, Role]]:
        """What processes do, by name; the writers first."""
        return [("writer0", self.write), ("writer1", self.write), ("compactor", self.compact), ("reader", self.read)]

    def count(self, name: str) -> None:
        """One more of ``name``."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def opened(self, node: Node, call: str = "open", **more: Any) -> Any:
        """What ``call`` opens."""
        settings = slate.Settings(**{**self.settings, **more.pop("settings", {})})
        opening = getattr(on(node.runtime), call)
        store, factory = self.world.cloud.objects(node), self.world.cloud.put_if_absent(node)
        return opening(store, name=self.name, metastore=factory, settings=settings, **more)

    async def pause(self, node: Node) -> None:
        """Some time passes."""
        await node.runtime.clock.sleep(node.rng.uniform(0, PAUSE_S))

    async def run(self) -> Stats:
        """All of it."""
        world = self.world
        plan, world.plan = world.plan, NO_FAULTS
        creator = world.node("creator")
        await creator.run(self._create(creator))
        world.plan = plan
        tasks = [world.loop.create_task(self._live(name, role), name=name) for name, role in self.roles()]
        for task in tasks[:WRITERS]:
            await task
        self.over = True
        for task in tasks[WRITERS:]:
            await task
        world.plan = NO_FAULTS
        await world.network.quiet()
        observer = world.node("observer")
        await observer.run(self.finish(observer))
        return {**self.stats(), **self.counts}

    async def _create(self, node: Node) -> None:
        async with self.opened(node):
            pass

    async def _live(self, name: str, role: Role) -> None:
        """A process, and the next one when it ends, crashes or is fenced."""
        for life in itertools.count():
            if (life >= LIVES if name.startswith("writer") else self.over) or life > MOST_LIVES:
                return
            node = self.world.node(name)
            if self.world.rng.random() < 0.3:
                node.crash_after(self.world.rng.randrange(50, 2_000))
            try:
                await node.run(role(node), name)
            except NodeCrashedError:
                self.count("crashes")
            except EXPECTED:
                self.count("ended")

    # ---- what processes do

    async def write(self, node: Node) -> None:
        """Write, and look at what that makes."""
        rng = node.rng
        async with self.opened(node, settings={"auto_compaction": rng.random() < 0.7}) as db:
            for _ in range(rng.randrange(5, ROUNDS)):
                match rng.choices(("write", "flush", "compact", "look"), (6, 2, 1, 1))[0]:
                    case "write":
                        await self.write_once(node, db)
                    case "flush":
                        await db.flush(l0=True)
                    case "compact":
                        await db.compact(full=rng.random() < 0.3)
                    case _:
                        await self.look(node, db)
                await self.pause(node)

    async def compact(self, node: Node) -> None:
        """Compact until another process takes over."""
        async with self.opened(node, "open_compactor") as compactor:
            while not self.over:
                await self.pause(node)
                if node.rng.random() < 0.3:
                    await compactor.compact(full=node.rng.random() < 0.3)

    async def read(self, node: Node) -> None:
        """Follow."""
        async with self.opened(node, "open_reader") as reader:
            while not self.over:
                await self.pause(node)
                await self.look(node, reader)


def small_settings(rng: random.Random, retention_ms: Sequence[int], sst_bytes: Sequence[int]) -> dict[str, Any]:
    """Under which few rows are compacted often; of both some by chance."""
    return {
        "retention_ms": rng.choice(retention_ms),
        "compaction_style": rng.choice(("size_tiered", "leveled")),
        "min_merge_width": 2,
        "level_base_bytes": 2_000,
        "level_size_multiplier": 2,
        "l0_compact_ssts": rng.choice((1, 2)),
        "sst_bytes": rng.choice(sst_bytes),
        "block_bytes": 64,
        "manifest_poll_interval_ms": 60,
        "gc_min_age_ms": 0,
        "retry_deadline_ms": 2_000,
    }


def scenario(name: str, summary: str, cast: Callable[[World], Cast], plan: FaultPlan | None) -> Scenario:
    """With these faults; ``None``: the usual ones."""
    return Scenario(name, summary, lambda seed, keep: tiny_world(seed, keep, plan), lambda world: cast(world).run())
