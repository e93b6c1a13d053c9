"""`Backoff`: trying an operation again and again, within one deadline.

Invariant: no wait ends long past the deadline, and an operation that ran out of time is `UnavailableError` with outcome
unknown, because any of its attempts may still take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from slate_async.errors import UnavailableError, met_before
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")
SHORTEST_ATTEMPT_S = 0.001


class Backoff:
    """Attempts of one operation and the jittered waits between them, all within one deadline."""

    def __init__(self, runtime: Runtime, deadline_ms: int, what: str) -> None:
        self._runtime = runtime
        self._what = what
        self._limit_ms = deadline_ms
        self._deadline = runtime.clock.monotonic() + deadline_ms / 1000
        self._attempt = 0

    async def attempt(self, work: Awaitable[T]) -> T:
        """What ``work`` gives, which has deadlines of its own for each request and its repetitions. Cut off at the
        deadline of all attempts: `UnavailableError` (outcome unknown)."""
        left = max(SHORTEST_ATTEMPT_S, self._deadline - self._runtime.clock.monotonic())
        try:
            async with asyncio.timeout(left):
                return await work
        except TimeoutError as error:
            raise UnavailableError(f"{self._what}: no answer in time{met_before(error)}", outcome="unknown") from error

    async def wait(self, cause: BaseException | None = None) -> None:
        """Wait before the next attempt, or raise `UnavailableError` (outcome unknown) past the deadline."""
        left = self._deadline - self._runtime.clock.monotonic()
        if left <= 0:
            last = "" if cause is None else f": {cause}"
            raise UnavailableError(
                f"{self._what} did not succeed within {self._limit_ms} ms; it may still take effect{last}",
                outcome="unknown",
            ) from cause
        limit = min(0.02 * 2 ** min(self._attempt, 6), left)
        self._attempt += 1
        await self._runtime.clock.sleep(self._runtime.rng.uniform(limit / 4, limit))
