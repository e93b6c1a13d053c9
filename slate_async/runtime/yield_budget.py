"""`YieldBudget`: how long a task may work before it lets the loop's other tasks run.

An `await` that never suspends starves every other task of the loop. A coroutine that can finish without waiting (a read
from memory, a put with room) asks its `YieldBudget` on each call; when the calls since the last real suspension have
used up the budget, it yields once.

Tasks that have yielded share one budget: the more of them wait, the sooner the one that works yields, so that all have
run after about one budget, or after one step each if steps are longer.

Invariant: a task that waits in `YieldBudget.yield_now` is overtaken by at most `MOST_LOOKS` looks of each other task,
whatever the clock says, because the loop runs tasks in the order in which they became ready.
"""

from __future__ import annotations

import asyncio

from slate_async.runtime.protocol import Clock

BUDGET_SECONDS = 0.0005
CALLS_PER_LOOK = 16
"""The clock is looked at on every n-th call only: looking costs as much as a small read."""
CALLS_AMONG_OTHERS = 4
"""As long as others wait: sixteen small operations of each of 64 tasks are milliseconds for one that waits for all."""
MOST_LOOKS = 64
"""So often a task looks at most before it yields to one that waits."""


class YieldBudget:
    """Counts synchronous work of one loop. Not for use from several loops."""

    __slots__ = ("_calls", "_clock", "_looks", "_since", "_waiting", "every")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls = 0
        self._looks = 0
        self._waiting = 0
        self.every = CALLS_PER_LOOK
        """How often `spent` looks at the clock, for callers that count calls themselves and then ask `exhausted`."""
        self._since = clock.monotonic()

    def spent(self) -> bool:
        """Whether the caller should `await yield_now` now. Cheap; call it once per operation."""
        self._calls += 1
        return not self._calls % self.every and self.exhausted()

    def exhausted(self) -> bool:
        """As `spent`, looking at the clock on every call: for steps of many operations each."""
        waiting = self._waiting
        if waiting:
            self._looks += 1
            if self._looks >= MOST_LOOKS:
                return True
        return (self._clock.monotonic() - self._since) * (1 + waiting) > BUDGET_SECONDS

    async def yield_now(self) -> None:
        """Let every other ready task run once, then start a new budget."""
        self._waiting += 1
        self.every = CALLS_AMONG_OTHERS
        try:
            await asyncio.sleep(0)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.every = CALLS_PER_LOOK
        self._looks = 0
        self._since = self._clock.monotonic()
