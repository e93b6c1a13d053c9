"""Readers: processes that read through the product's `ReadHandle`, and compare what they get with what is true."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import Time, join
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.snapshot import Snapshot
from slate_async.errors import ClosedError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate
from tests.simulation.scenarios.lake.eye import Eye

SESSIONS = {"short": (1, 2, 4), "any": (2, 8, 30)}
"""How much a handle is asked before it is given up."""


async def read(estate: Estate, eye: Eye, node: Node) -> None:
    """Ask a handle for snapshots."""
    await use_handles(estate, eye, node, node.name, lambda reader: Reading(estate, eye, node, reader).run())


async def use_handles(
    estate: Estate, eye: Eye, node: Node, note: str, use: Callable[[ReadHandle], Awaitable[None]]
) -> None:
    """Open a handle and use it until it is lost; begin again."""
    for _ in estate.turns():
        try:
            reader = await open_reader(estate.stores(node).reading(), note=note)
        except ClosedError:
            estate.count("closed")
            return
        except (LeaseLostError, UnavailableError):
            await node.runtime.clock.sleep(0.05)
            continue
        expired = eye.believe(node, lambda reader=reader: reader._hold.handle)  # type: ignore[misc]
        try:
            await use(reader)
        except LeaseLostError:
            estate.count("lease lost")
        except ClosedError:
            estate.count("closed")
            return
        except UnavailableError:
            estate.count("unavailable")
        finally:
            expired()
            try:
                await reader.expire()
            except UnavailableError:
                estate.count("unavailable")


class Reading:
    """What one handle is asked."""

    def __init__(self, estate: Estate, eye: Eye, node: Node, reader: ReadHandle) -> None:
        self.estate = estate
        self.eye = eye
        self.node = node
        self.reader = reader
        self.rng: random.Random = node.rng

    async def run(self) -> None:
        """Until the handle is given up, or nothing is left to ask."""
        estate, rng = self.estate, self.rng
        for _ in range(rng.choice(SESSIONS[estate.params.sessions])):
            if estate.over or not self.reader.since.elements:
                return
            chance = rng.random()
            if chance < 0.6:
                await self.look()
            elif chance < 0.85:
                await self.give_up()
            elif chance < 0.93:
                await self.clone()
            else:
                await self.nap()

    async def nap(self) -> None:
        """As long as the lease lasts, or not."""
        await self.node.runtime.clock.sleep(self.rng.choice((0.01, 0.05, 0.3)))

    async def clone(self) -> None:
        """A clone, which is asked something; this one may be given up before."""
        clone = await self.reader.clone("clone")
        self.estate.count("clones")
        expired = self.eye.believe(self.node, lambda: clone._hold.handle)
        try:
            if self.rng.random() < 0.5:
                await self.give_up()
            else:
                await self.nap()
            cloned = Reading(self.estate, self.eye, self.node, clone)
            for _ in range(2):
                await cloned.look()
        finally:
            expired()
            await clone.expire()

    async def give_up(self) -> None:
        """Some times; of pairs perhaps so that two elements are left."""
        ahead = [self._ahead(self.rng.choice((2, 2, 4))) for _ in range(self.rng.choice((1, 2)))]
        await self.reader.downgrade_since(Frontier(ahead).join(self.reader.since))

    def _ahead(self, most: int) -> Time:
        """A time beyond the since."""
        one = self.rng.choice(self.reader.since.elements)
        return tuple(number + self.rng.randrange(most) for number in one)

    async def look(self) -> None:
        """One snapshot."""
        estate, rng = self.estate, self.rng
        as_of = self._as_of()
        if as_of is None:
            await self.node.runtime.clock.sleep(0.02)
            return
        try:
            async with asyncio.timeout(rng.choice((0.02, 0.1, 0.3))):
                snapshot = await self.reader.snapshot(as_of if len(as_of) > 1 else as_of[0])
        except TimeoutError:
            estate.count("waited in vain")
            return
        except SinceError:
            estate.count("refused")
            return
        with_naps = rng.random() < 0.4
        async with snapshot:
            for _ in range(rng.choice((1, 1, 2))):
                if with_naps:
                    await self.nap()
                await self._compare(snapshot)

    def _as_of(self) -> Time | None:
        """A time that somebody was told is complete, or now and then any."""
        acks, edge = self.estate.acks, self.estate.params.edge
        for _ in range(8):
            as_of = join(self._ahead(self.rng.choice((1, 3, 6))), self._ahead(1))
            as_of = tuple(min(number, edge) for number in as_of)
            if self.rng.random() < 0.02 or any(not ack.upper.less_equal(as_of) for ack in acks):
                return as_of
        return None

    async def _compare(self, snapshot: Snapshot) -> None:
        found = sorted([row async for row in snapshot.rows()])
        expected = self.estate.contents(snapshot.as_of)
        self.estate.count("snapshots")
        if found != expected:
            raise Violation("snapshot", f"{self.node.name} at {snapshot.as_of}: {found}, expected {expected}")
