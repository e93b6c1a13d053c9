"""Pinners: processes that share one critical hold, which keeps since and has no lease."""

from __future__ import annotations

import random

from slate_async.collections.core.errors import LeaseLostError, TokenMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.reader.critical import CriticalHandle, open_critical
from slate_async.errors import ClosedError, UnavailableError
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate
from tests.simulation.scenarios.lake.eye import Eye
from tests.simulation.scenarios.lake.readers import Reading

CRITICAL = "billing"


async def pin(estate: Estate, eye: Eye, node: Node, name: str) -> None:
    """Have the hold called ``name``, and read under it."""
    for _ in estate.turns():
        try:
            await Pinning(estate, eye, node, name).run(node.rng.choice((2, 8)))
        except (LeaseLostError, UnavailableError):
            estate.count("pins lost")
            await node.runtime.clock.sleep(0.02)
        except ClosedError:
            estate.count("closed")
            return


class Pinning:
    """What one process does with the hold."""

    def __init__(self, estate: Estate, eye: Eye, node: Node, name: str) -> None:
        self.estate = estate
        self.eye = eye
        self.node = node
        self.name = name
        self.rng: random.Random = node.rng

    async def run(self, turns: int) -> None:
        """So many turns."""
        pin = await open_critical(self.estate.stores(self.node).reading(), self.name)
        self.eye.criticals.add(self.name)
        self.estate.count("pins")
        for _ in range(turns):
            if self.estate.over or not pin.since.elements:
                return
            if self.rng.random() < 0.5:
                await self._move(pin)
            else:
                await self._read(pin)
            await self.node.runtime.clock.sleep(self.rng.choice((0, 0.02, 0.1)))

    async def _move(self, pin: CriticalHandle) -> None:
        ahead = tuple(number + self.rng.randrange(3) for number in self.rng.choice(pin.since.elements))
        try:
            await pin.compare_and_downgrade(pin.token, self.node.runtime.ids.token(), Frontier([ahead]))
        except TokenMismatchError:
            self.estate.count("tokens of others")
            await pin.refresh()

    async def _read(self, pin: CriticalHandle) -> None:
        reader = await pin.reader("under a pin")
        expired = self.eye.believe(self.node, lambda: reader._hold.handle)
        try:
            for _ in range(2):
                await Reading(self.estate, self.eye, self.node, reader).look()
        finally:
            expired()
            await reader.expire()
