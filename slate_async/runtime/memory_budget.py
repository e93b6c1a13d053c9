"""`MemoryBudget`: memory that is asked for before it is allocated.

Compressed bytes say nothing of what becomes of them: 70 KB may be a gigabyte. So a caller that decompresses asks for as
much as will come out, which the bytes say themselves, and waits until there is room.

Ordering rule: first come, first served, so a large block is not overtaken for ever by small ones. Invariant: at most
``capacity_bytes`` are held and lent; what is greater by itself has all of it, with nothing beside. A caller that holds
some asks for no more, so nobody waits for itself. What is lent can be had again: it is taken back, the oldest first,
before anybody waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Protocol
from weakref import ref


class Lent(Protocol):
    """Something in memory that can be read once more. ``nbytes``: what it takes now; 0 once it is taken back, and never
    more until it is lent again."""

    nbytes: int

    def take_back(self) -> None:
        """There is no room for it any more."""


class MemoryBudget:
    """Belongs to one event loop. ``held_bytes``: what is held now."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._lent: dict[int, ref[Lent]] = {}
        self._numbers = count()

    def widen(self, capacity_bytes: int) -> None:
        """Let it have at least so much."""
        self.capacity_bytes = max(self.capacity_bytes, capacity_bytes)
        self._serve()

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Hold ``nbytes`` while the context lasts, or all there is if that is less."""
        nbytes = min(nbytes, self.capacity_bytes)
        if self._waiting or not self._has_room(nbytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((nbytes, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(nbytes)
                else:  # it may have been passed over since
                    with contextlib.suppress(ValueError):
                        self._waiting.remove((nbytes, turn))
                    self._serve()
                raise
        else:
            self.held_bytes += nbytes
        try:
            yield
        finally:
            self._give_back(nbytes)

    def _give_back(self, nbytes: int) -> None:
        self.held_bytes -= nbytes
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += nbytes
                turn.set_result(None)

    # what can be had again

    def lend(self, lent: Lent) -> None:
        """Let ``lent`` stay until it is dropped, or somebody needs its room; take it back at once if somebody does."""
        if self._waiting or self.held_bytes + self.lent_bytes + lent.nbytes > self.capacity_bytes:
            lent.take_back()
        else:
            self._lent[next(self._numbers)] = ref(lent)

    @property
    def lent_bytes(self) -> int:
        """What is lent now."""
        total = 0
        for number, weak in [*self._lent.items()]:
            lent = weak()
            if lent is None or not lent.nbytes:
                del self._lent[number]
            else:
                total += lent.nbytes
        return total

    def _has_room(self, nbytes: int) -> bool:
        """Whether so much can be held now. If only what is lent is in the way, as much of it as need be is taken
        back."""
        if self.held_bytes + nbytes > self.capacity_bytes:
            return False
        if self._lent:
            missing = self.held_bytes + nbytes + self.lent_bytes - self.capacity_bytes
            for number, weak in [*self._lent.items()]:
                if missing <= 0:
                    break
                lent = weak()
                if lent is not None:
                    missing -= lent.nbytes
                    lent.take_back()
                del self._lent[number]
        return True
