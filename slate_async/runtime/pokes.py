"""`Pokes`: those who look for something again and again look at once when this process may have brought it about.

A poke is a hint: nothing rests on it, and who missed it sees what is new at the next look.
"""

from __future__ import annotations

import asyncio

from slate_async.runtime.protocol import Clock


class Pokes:
    """Belongs to one event loop. ``count``: of all pokes so far, to be noted before a look."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._next = 0

    def poke(self) -> None:
        """Wake all who wait."""
        self.count += 1
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, noted: int, clock: Clock, seconds: float) -> None:
        """Wait for a poke after ``noted`` was the count, and for ``seconds`` at most."""
        if self.count != noted:
            return
        loop = asyncio.get_running_loop()
        number, self._next = self._next, self._next + 1
        waiter = self._waiting[number] = loop.create_future()
        sleeping = loop.create_task(_sleep(clock, seconds, waiter), name="wait for a poke")
        try:
            await waiter
        finally:
            self._waiting.pop(number, None)
            sleeping.cancel()


async def _sleep(clock: Clock, seconds: float, waiter: asyncio.Future[None]) -> None:
    try:
        await clock.sleep(seconds)
    finally:
        if not waiter.done():
            waiter.set_result(None)
