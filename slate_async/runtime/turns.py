"""Fair turns: an `await` that never suspends starves every other task of the loop.

A coroutine that can finish without waiting (a read from memory, a put with room) asks its `FairTurns` on each
call; when the calls since the last real suspension have used up the budget it gives the loop one turn."""

from __future__ import annotations

import asyncio

from slate_async.runtime.protocol import Clock

BUDGET_SECONDS = 0.0005
CALLS_PER_LOOK = 16
"""The clock is looked at on every n-th call only: looking costs as much as a small read."""


class FairTurns:
    """Counts synchronous work of one loop. Not for use from several loops."""

    __slots__ = ("_calls", "_clock", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls = 0
        self._since = clock.monotonic()

    def spent(self) -> bool:
        """Whether the caller should `await give` now. Cheap; call it once per operation."""
        self._calls += 1
        if self._calls < CALLS_PER_LOOK:
            return False
        self._calls = 0
        return self._clock.monotonic() - self._since > BUDGET_SECONDS

    def overdue(self) -> bool:
        """As `spent`, looking at the clock on every call: for steps of many operations each."""
        return self._clock.monotonic() - self._since > BUDGET_SECONDS

    async def give(self) -> None:
        """Let every other ready task run once, then start a new budget."""
        await asyncio.sleep(0)
        self._since = self._clock.monotonic()
