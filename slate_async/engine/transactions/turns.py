"""Turns of those that change the same keys, and the gate before which all wait while one runs alone.

Both only say who goes first: whether a change may be applied is decided in the step that applies it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class Turn:
    """The turn of one key, which one holder after the other has. ``held``: how many had it; ``waiting``: the others."""

    __slots__ = ("held", "key", "seen", "waiting")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.held = 0
        self.seen = 0
        self.waiting: deque[asyncio.Future[Turn | None]] = deque()


class KeyTurns:
    """For each key a queue, first come, first served. A key that nobody has takes no memory.

    most_s: a holder is waited for at most twice as long; then all go on"""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._turns: dict[bytes, Turn] = {}
        self._watched = False

    def __contains__(self, key: bytes) -> bool:
        """Whether somebody has the turn of ``key``."""
        return key in self._turns

    async def take(self, key: bytes) -> Turn | None:
        """Wait for the turn, which the caller has to `give`; ``None``: it may go on without. A cancelled waiter is
        out."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = Turn(key)
            return turn
        loop = asyncio.get_running_loop()
        if not self._watched:
            self._watched = True
            loop.call_later(self._most_s, self._watch)
        mine: asyncio.Future[Turn | None] = loop.create_future()
        turn.waiting.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and (given := mine.result()) is not None:
                self.give(given)  # it had its turn in the very step in which it was cancelled
            raise

    def give(self, turn: Turn) -> None:
        """It is the next one's turn; nothing if nobody waits for the caller any more."""
        if self._turns.get(turn.key) is not turn:
            return
        turn.held += 1
        waiting = turn.waiting
        while waiting:
            mine = waiting.popleft()
            if not mine.done():
                mine.set_result(turn)
                return
        del self._turns[turn.key]

    def give_up(self, turn: Turn) -> None:
        """The holder did not change the key, so nobody had to wait for it: all may go on."""
        if self._turns.get(turn.key) is not turn:
            return
        del self._turns[turn.key]
        for mine in turn.waiting:
            if not mine.done():
                mine.set_result(None)

    def _watch(self) -> None:
        """While anybody waits: nobody waits for ever for one that hangs."""
        for turn in list(self._turns.values()):
            if turn.waiting and turn.seen == turn.held + 1:
                self.give_up(turn)
            turn.seen = turn.held + 1
        self._watched = any(turn.waiting for turn in self._turns.values())
        if self._watched:
            asyncio.get_running_loop().call_later(self._most_s, self._watch)

    @asynccontextmanager
    async def of(self, keys: Iterable[bytes]) -> AsyncIterator[None]:
        """The turns of all ``keys``. They are taken in the keys' order, so that no two wait for one another."""
        taken: list[Turn] = []
        try:
            for key in sorted(set(keys)):
                turn = await self.take(key)
                if turn is not None:
                    taken.append(turn)
            yield
        finally:
            for turn in taken:
                self.give(turn)


class Gate:
    """Open, but for what one holder lets through. Holders come one after the other, in order.

    shut: whether somebody runs alone
    """

    def __init__(self) -> None:
        self.shut = False
        self._turn = asyncio.Lock()
        self._open = asyncio.Event()
        self._holder: object = None

    async def passed(self) -> None:
        """Wait until it is open."""
        while self.shut:
            await self._open.wait()

    @asynccontextmanager
    async def alone(self, most_s: float) -> AsyncIterator[None]:
        """Shut it for the block, for ``most_s`` at most: after that the block still runs, no longer alone, and the next
        holder has its turn."""
        await self._turn.acquire()
        holder = self._holder = object()
        self.shut = True
        self._open.clear()
        opens = asyncio.get_running_loop().call_later(most_s, self._let_in, holder)
        try:
            yield
        finally:
            opens.cancel()
            self._let_in(holder)

    def _let_in(self, holder: object) -> None:
        if self._holder is holder:
            self._holder = None
            self.shut = False
            self._open.set()
            self._turn.release()
