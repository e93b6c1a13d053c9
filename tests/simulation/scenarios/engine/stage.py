"""A stage for scripts: a calm world, one database, and processes that do what the script says, one step at a time.

Rules that only a rare interleaving needs are tried here: the script brings it about, the seed draws what may differ.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from slate_async.errors import ConflictError, FencedError
from slate_async.objectstore.protocol import CREATE, ObjectInfo
from slate_async.storage.manifest.state import ManifestState
from tests.simulation.checkers import Violation, check_history
from tests.simulation.history import History, Kind
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.play import drawn_params, make_world
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

CALM = {
    "ack": "committed",
    "create_by_writers": False,
    "faults": 0.0,
    "crashes": 0.0,
    "freezes": 0.0,
    "parallelism": 4,
    "l0_rows": 1000,
    "bite": 8,
}
NO_POLLS_MS = 60_000
FINAL_SKEW_MS = 3_600_000
"""The last writer's clock is ahead of all others, so that what was to expire has."""


class Stage:
    """See the module docstring."""

    def __init__(self, database: SimulatedDatabase) -> None:
        self.database = database
        self.world = world = database.world
        self.rng = world.rng
        self._helper = self.database.handle(world.node("helper"))

    def session(self, name: str) -> Session:
        """A process that is to open the database, and never looks at the head unless it must."""
        return Session(self.database, self.world.node(name), poll_ms=NO_POLLS_MS)

    async def writer(self, name: str) -> Session:
        """A process that has opened it."""
        session = self.session(name)
        if not await session.node.run(session.open()):
            raise Violation("stuck", f"{name} could not take over a calm database")
        return session

    async def write(self, session: Session, times: int) -> None:
        """So many writes, all durable."""

        async def work() -> None:
            for _ in range(times):
                await session.write()
            await session.db.flush()

        await session.node.run(work())

    def begin(self, node: Node, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Work in that process that may take long, and may end because somebody took over its role."""

        async def guarded() -> None:
            with contextlib.suppress(FencedError, ConflictError):
                await work

        return node.spawn(guarded())

    def hold(self, node: Node, operation: str, key: str = "") -> Hold:
        """See `Hold`."""
        folder = f"{self.database.folder}/" if self.database.folder and key else ""
        return Hold(self.world, node, operation, folder + key)

    async def head(self) -> ManifestState:
        """The manifest as it is."""
        state = await self._helper.node.run(self._helper.driver.load())
        assert state is not None
        return state

    async def collect(self, *keys: str) -> None:
        """Delete log objects, in that order."""
        self.database.collected.update(dict.fromkeys(keys))
        await self._helper.node.run(self._helper.store.delete(keys))

    async def listed(self, prefix: str) -> list[ObjectInfo]:
        """The objects that are there."""

        async def work() -> list[ObjectInfo]:
            return [info async for info in self._helper.store.list(prefix)]

        return await self._helper.node.run(work())

    async def read(self, key: str) -> bytes:
        """A whole object."""
        return bytes((await self._helper.node.run(self._helper.store.get(key))).data)

    async def put(self, key: str, data: bytes) -> None:
        """Make an object that is not there."""
        await self._helper.node.run(self._helper.store.put(key, data, mode=CREATE))

    async def end(self) -> Stats:
        """A fresh writer takes over when nothing is under way any more; what it finds is the final order."""
        await self.world.network.quiet()
        last = Session(self.database, self.world.node("last", skew_ms=FINAL_SKEW_MS), poll_ms=NO_POLLS_MS)
        if not await last.node.run(last.open()):
            raise Violation("stuck", "nobody could take over a calm database")
        await self.write(last, 2)
        if not await last.node.run(last.look(Kind.FINAL)):
            raise Violation("stuck", "the last writer could not read")
        check_history(self.database.history)
        acked = sum(write.is_acked for write in self.database.history.writes.values())
        return {"writes": len(self.database.history.writes), "acknowledged": acked, **self.database.counts}


def scripted(name: str, script: Callable[[Stage], Coroutine[Any, Any, None]], **fixed: Any) -> Scenario:
    """A scenario that follows ``script``, described by its docstring; ``fixed`` as for `engine_scenario`."""
    chosen = {**CALM, **fixed}

    async def play(world: World) -> Stats:
        stage = Stage(SimulatedDatabase(world, drawn_params(world.seed, chosen), History(world.loop.time)))
        await stage.database.create()
        await script(stage)
        return await stage.end()

    return Scenario(f"script-{name}", summary_of(script), lambda seed, keep: make_world(seed, keep, chosen), play)


def summary_of(script: Callable[..., object]) -> str:
    """The first line of what a script says of itself."""
    return (script.__doc__ or "").strip().splitlines()[0]
