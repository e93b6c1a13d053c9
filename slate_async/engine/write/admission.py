"""Backpressure: how many bytes may be in memory and not yet flushed, first come, first served.

Invariant: ``used <= limit``, except that a request larger than the limit is admitted when nothing else is in. While
``full()``, for another reason than bytes, no write is admitted, either; that ends with a release. Reserved bytes are
released by the flush of their rows, or by the waiter that was cancelled after it was let in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


def _never() -> bool:
    return False


class Admission:
    """A FIFO gate of ``limit`` bytes."""

    def __init__(self, limit: int, full: Callable[[], bool] = _never) -> None:
        self._limit = limit
        self._full = full
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: Callable[[], BaseException] | None = None
        self.stalls = 0

    @property
    def used(self) -> int:
        """Bytes let in and not yet released."""
        return self._used

    @property
    def room(self) -> int:
        """Bytes that fit in now."""
        return self._limit - self._used

    @property
    def waiting(self) -> int:
        """Callers that wait for room."""
        return len(self._waiting)

    def _fits(self, nbytes: int) -> bool:
        return self._used == 0 or (self._used + nbytes <= self._limit and not self._full())

    def try_admit(self, nbytes: int) -> bool:
        """Let ``nbytes`` in if there is room and no other write waits. Never suspends."""
        if self._waiting or not self._fits(nbytes):
            return False
        self._used += nbytes
        return True

    async def admit(self, nbytes: int) -> None:
        """Let ``nbytes`` in, waiting in order. Raises what `fail` was given. A cancelled waiter is out."""
        if self._failure is not None:
            raise self._failure()
        if self.try_admit(nbytes):
            return
        self.stalls += 1
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (nbytes, gate)
        self._waiting.append(entry)
        try:
            await gate
        except asyncio.CancelledError:
            if gate.done() and not gate.cancelled() and gate.exception() is None:
                self.release(nbytes)  # let in and cancelled in the same turn
            else:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._wake()
            raise

    def release(self, nbytes: int) -> None:
        """``nbytes`` are flushed (or were never used): let others in."""
        self._used -= nbytes
        self._wake()

    def force(self, nbytes: int) -> None:
        """Count ``nbytes`` that are in memory already, whatever the limit (a replayed log)."""
        self._used += nbytes

    def _wake(self) -> None:
        while self._waiting:
            nbytes, gate = self._waiting[0]
            if gate.done():
                self._waiting.popleft()
                continue
            if not self._fits(nbytes):
                return
            self._waiting.popleft()
            self._used += nbytes
            gate.set_result(None)

    def fail(self, failure: Callable[[], BaseException]) -> None:
        """Admit no more writes; ``failure`` makes the error each waiter gets."""
        self._failure = failure
        while self._waiting:
            _, gate = self._waiting.popleft()
            if not gate.done():
                gate.set_exception(failure())
