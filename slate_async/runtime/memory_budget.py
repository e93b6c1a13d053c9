"""`MemoryBudget`: memory that is asked for before it is allocated.

Compressed bytes say nothing of what becomes of them: 70 KB may be a gigabyte. So a caller that decompresses asks for as
much as will come out, which the bytes say themselves, and waits until there is room.

Ordering rule: first come, first served, so a large block is not overtaken for ever by small ones. Invariant: at most
``capacity_bytes`` are held; what is greater by itself is refused. A caller that holds some asks for no more, so nobody
waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slate_async.errors import ConfigError


def over_budget(what: str, nbytes: int, most_bytes: int) -> ConfigError:
    """``what`` takes more memory than there may be for it."""
    return ConfigError(f"{what} takes {nbytes} bytes of memory, and decode_memory_bytes allows {most_bytes}; raise it")


class MemoryBudget:
    """Belongs to one event loop. ``held_bytes``: what is held now."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def widen(self, capacity_bytes: int) -> None:
        """Let it have at least so much."""
        self.capacity_bytes = max(self.capacity_bytes, capacity_bytes)
        self._serve()

    @asynccontextmanager
    async def hold(self, nbytes: int, what: str) -> AsyncIterator[None]:
        """Hold ``nbytes`` while the context lasts. Raises `ConfigError`, naming ``what``, if that is more than there
        may be."""
        if nbytes > self.capacity_bytes:
            raise over_budget(what, nbytes, self.capacity_bytes)
        if self._waiting or self.held_bytes + nbytes > self.capacity_bytes:
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
        while self._waiting and self.held_bytes + self._waiting[0][0] <= self.capacity_bytes:
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += nbytes
                turn.set_result(None)
