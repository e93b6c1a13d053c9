"""A stage for scripts: one collection without faults, and processes that do what they are told, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.core.errors import LeaseLostError, SinceError, UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.snapshot import Snapshot
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.errors import ClosedError
from tests.simulation.checkers import Violation
from tests.simulation.faults import Fault, Rule
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.lake.awaits import world_of
from tests.simulation.scenarios.lake.estate import FOLDER, Estate, Row
from tests.simulation.scenarios.lake.eye import Eye
from tests.simulation.scenarios.lake.params import draw
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

LEASE_MS, POLL_MS = 100, 20
PAST_A_LEASE = 0.4
EDGE = 12
FIXED = {
    "kind": TimeKind.U64,
    "metastore": "server",
    "edge": EDGE,
    "page_keys": 1000,
    "lease_ms": LEASE_MS,
    "poll_ms": POLL_MS,
    "parallelism": 2,
    "part_bytes": 0,
}


class LakeStage:
    """See the module docstring. Of a ``definite`` collection, one row is written at each time."""

    def __init__(self, world: World, appends: Appends) -> None:
        self.world = world
        self.estate = Estate(world, draw(derived_rng(world.seed, "params"), {**FIXED, "appends": appends}), world.rng)
        if appends is Appends.DEFINITE:
            self.estate.truth = [(b"%d" % (time % 3), (time,), 1) for time in range(EDGE)]
        self.eye = Eye(self.estate)
        self.controllers: list[Controller] = []

    # ---- writers

    async def writer(self, name: str) -> tuple[Node, Writer]:
        """A process that appends."""
        node = self.world.node(name)
        opening = open_writer(self.estate.writing(node, name), self.estate.params.appends, flush_parallelism=2)
        return node, await node.run(opening)

    async def append(self, writer: tuple[Node, Writer], lower: int, upper: int) -> None:
        """What is written at the times between; of a ``compare`` collection something that only this append brings."""
        node, opened = writer
        begin, end = Frontier([(lower,)]), Frontier([(upper,)])
        rows: list[Row] = [(self.estate.mark(node.name), (time,), 1) for time in range(lower, upper)]
        if self.estate.params.appends is Appends.DEFINITE:
            rows = self.estate.rows(begin, end)
        await node.run(opened.append(rows, lower=begin, upper=end))

    async def lost_append(self, writer: tuple[Node, Writer], lower: int, upper: int) -> None:
        """One that comes too late to be acknowledged."""
        try:
            await self.append(writer, lower, upper)
        except (ClosedError, UpperMismatchError):
            return
        raise Violation("acknowledged", f"an append from {lower} to {upper} is acknowledged, and it is dead")

    # ---- readers

    async def reader(self, name: str) -> tuple[Node, ReadHandle]:
        """A process that reads."""
        node = self.world.node(name)
        return self.believed(node, await node.run(open_reader(self.estate.stores(node).reading(), note=name)))

    def believed(self, node: Node, reader: ReadHandle) -> tuple[Node, ReadHandle]:
        """It has that handle from now on."""
        self.eye.believe(node, lambda: reader._hold.handle)
        return node, reader

    async def give_up(self, reader: tuple[Node, ReadHandle], since: int) -> None:
        """Times before ``since``, and have that written."""
        node, handle = reader
        await node.run(handle.downgrade_since(since))
        await asyncio.sleep(4 * POLL_MS / 1000)

    def mute(self, node: Node) -> None:
        """What it writes to its holds from now on does not arrive; else it goes on."""

        def matches(name: str, operation: str, key: str) -> bool:
            return name == node.name and operation.startswith("put-match") and key.endswith("/hold")

        self.world.rule(Rule(matches, Fault.REFUSED, times=1_000_000))

    async def look(self, reader: tuple[Node, ReadHandle], as_of: int) -> None:
        """A snapshot is the truth, or refused."""
        node, handle = reader

        async def work() -> None:
            try:
                async with asyncio.timeout(5), await handle.snapshot(as_of) as snapshot:
                    await self.compare(snapshot)
            except (ClosedError, LeaseLostError, SinceError, TimeoutError):
                self.estate.count("refused")

        await node.run(work())

    async def compare(self, snapshot: Snapshot) -> None:
        """It is the truth."""
        found = sorted([row async for row in snapshot.rows()])
        if found != (expected := self.estate.contents(snapshot.as_of)):
            raise Violation("snapshot", f"at {snapshot.as_of}: {found}, expected {expected}")
        self.estate.count("snapshots")

    # ---- controllers

    async def controller(self, name: str = "controller") -> tuple[Node, Controller]:
        """A process that has the role, and works when it is told."""
        node = self.world.node(name)
        opened = await node.run(open_controller(controlling(self.estate.stores(node)), background=False))
        self.controllers.append(opened)
        return node, opened

    async def rounds(self, controller: tuple[Node, Controller], times: int = 4) -> None:
        """So many, each with all merges: enough for what was given up to be compacted and collected."""
        node, opened = controller
        for _ in range(times):
            await node.run(opened.round())
            await node.run(opened.merge(everything=True))

    async def outlast(self, controller: tuple[Node, Controller]) -> None:
        """Rounds until leases that nobody renews have ended, and what they held is collected."""
        await self.rounds(controller, 1)
        await asyncio.sleep(PAST_A_LEASE)
        await self.rounds(controller, 8)

    # ---- requests

    def hold(self, node: Node, operation: str, key: str = "") -> Hold:
        """See `Hold`."""
        return Hold(self.world, node, operation, f"{FOLDER}/{key}" if key else "")

    async def end(self) -> Stats:
        """Nothing was wrong."""
        await self.world.network.quiet()
        self.eye.check()
        self.estate.count("revoked", sum(controller.counts[0].revoked for controller in self.controllers))
        return self.estate.counts


def lake_script(name: str, appends: Appends, script: Callable[[LakeStage], Coroutine[Any, Any, None]]) -> Scenario:
    """A scenario that follows ``script``, described by its docstring."""

    async def play(world: World) -> Stats:
        stage = LakeStage(world, appends)
        await script(stage)
        return await stage.end()

    return Scenario(f"script-collections-{name}", (script.__doc__ or "").strip().splitlines()[0], world_of, play)
