"""One request kept on its way, for scripts of what must happen meanwhile."""

from __future__ import annotations

import asyncio

from tests.simulation.faults import Fault, Rule
from tests.simulation.node import Node
from tests.simulation.world import World

LIMIT_SECONDS = 10


class Hold:
    """The next request of ``node`` whose operation and key begin so waits for `release`."""

    def __init__(self, world: World, node: Node, operation: str, key: str = "") -> None:
        self._network = world.network
        self._key = ""
        self._sent = asyncio.Event()

        def matches(sender: str, sent: str, about: str) -> bool:
            if sender != node.name or not sent.startswith(operation) or not about.startswith(key):
                return False
            self._key = about
            self._sent.set()
            return True

        self._node = node
        self._rule = world.rule(Rule(matches, Fault.HELD))

    async def caught(self) -> str:
        """Wait until it was sent; its key."""
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._sent.wait()
        return self._key

    def release(self) -> None:
        """Let it arrive now, unless its sender has given it up and it got lost. Nothing if it was never sent."""
        self._rule.times = 0
        for request in list(self._network.held.values()):
            if request.sender is self._node and request.key == self._key:
                self._network.release(request)
