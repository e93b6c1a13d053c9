"""`Backoff`: trying an operation again and again, within one deadline.

Invariant: no wait ends long past the deadline. An operation that ran out of time is `UnavailableError` with outcome
unknown, because any of its attempts may still take effect; with another one only where its caller knows better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from slate_async.errors import Outcome, UnavailableError, met_before
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")
SHORTEST_ATTEMPT_S = 0.001
_SAID: dict[Outcome | None, str] = {
    "unknown": "; it may still take effect",
    "not_applied": "; nothing was written",
    None: "",
}


class Backoff:
    """Attempts of one operation and the jittered waits between them, all within one deadline."""

    def __init__(self, runtime: Runtime, deadline_ms: int, what: str) -> None:
        self._runtime = runtime
        self._what = what
        self._limit_ms = deadline_ms
        self._deadline = runtime.clock.monotonic() + deadline_ms / 1000
        self._attempt = 0
        self._cause: BaseException | None = None  # of the last wait

    async def attempt(self, work: Awaitable[T]) -> T:
        """What ``work`` gives, which has deadlines of its own for each request and its repetitions. Cut off at the
        deadline of all attempts: `UnavailableError` (outcome unknown)."""
        left = max(SHORTEST_ATTEMPT_S, self._deadline - self._runtime.clock.monotonic())
        try:
            async with asyncio.timeout(left):
                return await work
        except TimeoutError as error:
            before = "" if self._cause is None else f"; before that: {self._cause}"
            said = f"{self._what}: no answer in time{met_before(error) or before}"
            raise UnavailableError(said, outcome="unknown") from error

    async def wait(self, cause: BaseException | None = None, outcome: Outcome | None = "unknown") -> None:
        """Wait before the next attempt, or raise `UnavailableError` past the deadline.

        outcome: of all attempts together, which the error has, and says; ``None`` for a read"""
        left = self._deadline - self._runtime.clock.monotonic()
        if left <= 0:
            last = "" if cause is None else f": {cause}"
            said = f"{self._what} did not succeed within {self._limit_ms} ms{_SAID[outcome]}{last}"
            raise UnavailableError(said, outcome=outcome) from cause
        self._cause = cause
        limit = min(0.02 * 2 ** min(self._attempt, 6), left)
        self._attempt += 1
        await self._runtime.clock.sleep(self._runtime.rng.uniform(limit / 4, limit))
