"""`CompletionQueue`: waiters of durable writes are completed in order, some in each turn of the loop.

Completing thousands in one turn would put everything else behind all that their tasks do next, the sending of what
these write included, though the store could work on it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

COMPLETIONS_PER_TURN = 128
"""About a millisecond of what woken tasks do."""


class CompletionQueue:
    """``done`` is called when all are completed and have had their turn; ``busy`` until then."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._queue: deque[asyncio.Future[None]] = deque()
        self.busy = False

    def add(self, waiters: Iterable[asyncio.Future[None]]) -> None:
        """Complete ``waiters`` after those added before."""
        self._queue.extend(waiters)
        if self._queue and not self.busy:
            self.busy = True
            self._complete()

    def _complete(self) -> None:
        queue = self._queue
        if not queue:
            self.busy = False
            self._done()
            return
        for _ in range(min(COMPLETIONS_PER_TURN, len(queue))):
            waiter = queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
        self._loop.call_soon(self._complete)  # behind the tasks just woken
