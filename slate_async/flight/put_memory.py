"""`PutMemory`: how many bytes of rows wait in memory to be stored, over all streams.

A stream asks for room before it reads its next message, and its bytes are counted until Arrow frees them, whatever they
have become by then. What is over the limit is at most one message for each stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class PutMemory:
    """Belongs to one event loop. ``held_bytes``: what is counted now; ``stalls``: how often a stream had to wait."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self.stalls = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether another message may be read."""
        return self.held_bytes < self.capacity_bytes

    async def room(self) -> None:
        """Wait until there is."""
        if self.has_room:
            return
        self.stalls += 1
        while not self.has_room:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)

    def charge(self, nbytes: int) -> Charge:
        """Count ``nbytes`` until what is returned is freed, in any thread. Called in the loop's thread."""
        self.held_bytes += nbytes
        return Charge(self, nbytes)

    def give_back(self, nbytes: int) -> None:
        """In any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(self._given, nbytes)

    def _given(self, nbytes: int) -> None:
        self.held_bytes -= nbytes
        while self._waiting and self.has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


class Charge:
    """Bytes that are counted while it lives."""

    __slots__ = ("_memory", "_nbytes")

    def __init__(self, memory: PutMemory, nbytes: int) -> None:
        self._memory = memory
        self._nbytes = nbytes

    def grow(self, nbytes: int) -> None:
        """Count so many more. Called in the loop's thread."""
        self._nbytes += nbytes
        self._memory.held_bytes += nbytes

    def __del__(self) -> None:
        self._memory.give_back(self._nbytes)
