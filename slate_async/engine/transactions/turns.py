"""Turns of those that change the same keys, and the gate before which all wait while one runs alone.

Both only say who goes first: whether a change may be applied is decided in the step that applies it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class KeyTurns:
    """For each key a queue, first come, first served. A key that nobody has takes no memory."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[asyncio.Future[bool]]] = {}

    def __contains__(self, key: bytes) -> bool:
        """Whether somebody has the turn of ``key``."""
        return key in self._queues

    async def take(self, key: bytes) -> bool:
        """Wait for the turn; whether the caller has it, or may go on beside others. A cancelled waiter is out."""
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque()
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.give(key)  # it had its turn in the very step in which it was cancelled
            raise

    def give(self, key: bytes) -> None:
        """It is the next one's turn."""
        queue = self._queues[key]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        del self._queues[key]

    def give_up(self, key: bytes) -> None:
        """The holder did not change ``key``, so nobody had to wait for it: all may go on."""
        for turn in self._queues.pop(key):
            if not turn.done():
                turn.set_result(False)

    @asynccontextmanager
    async def of(self, keys: Iterable[bytes]) -> AsyncIterator[None]:
        """The turns of all ``keys``. They are taken in the keys' order, so that no two wait for one another."""
        taken: list[bytes] = []
        try:
            for key in sorted(set(keys)):
                if await self.take(key):
                    taken.append(key)
            yield
        finally:
            for key in taken:
                self.give(key)


class Gate:
    """Open, but for what one holder lets through. Holders come one after the other, in order.

    shut: whether somebody runs alone
    """

    def __init__(self) -> None:
        self.shut = False
        self._turn = asyncio.Lock()
        self._open = asyncio.Event()

    async def passed(self) -> None:
        """Wait until it is open."""
        while self.shut:
            await self._open.wait()

    @asynccontextmanager
    async def alone(self, most_s: float) -> AsyncIterator[None]:
        """Shut it for the block, for ``most_s`` at most: after that the block still runs, no longer alone."""
        async with self._turn:
            self.shut = True
            self._open.clear()
            opens = asyncio.get_running_loop().call_later(most_s, self._let_in)
            try:
                yield
            finally:
                opens.cancel()
                self._let_in()

    def _let_in(self) -> None:
        self.shut = False
        self._open.set()
