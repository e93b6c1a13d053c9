"""`FairSlots`: bounded concurrency of which no group of users takes the others' share.

A bound on all of them alone would let one store that does not answer hold every slot until its requests time out. So
what has run for a while gives its slot of all back, and keeps only the one of its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

SLOW_S = 1.0
"""Work that has run for so long waits for a server that does not answer."""


class FairSlots:
    """First come, first served, within each group and among those that are new.

    at_once: how many may run, of all, that began less than `SLOW_S` ago
    per_group: how many of one group may run
    """

    def __init__(self, at_once: int, per_group: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._per_group = per_group
        self._groups: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def slot(self, group: Hashable) -> AsyncIterator[None]:
        """Run the body in a slot of ``group``."""
        own, users = self._groups.get(group, (asyncio.Semaphore(self._per_group), 0))
        self._groups[group] = (own, users + 1)
        try:
            async with own, self._shared():
                yield
        finally:
            own, users = self._groups.pop(group)
            if users > 1:
                self._groups[group] = (own, users - 1)

    @asynccontextmanager
    async def _shared(self) -> AsyncIterator[None]:
        """A slot of all, given back after `SLOW_S` or at the end."""
        await self._all.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._all.release()

        timer = asyncio.get_running_loop().call_later(SLOW_S, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
