"""One timer task for the polling of many databases, so a thousand idle ones do not wake the loop a thousand ways.

A poll that is still running when it is due again is skipped, not queued; at most `CONCURRENT_POLLS` run at once.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from slate_async.runtime.protocol import Runtime

logger = logging.getLogger(__name__)

CONCURRENT_POLLS = 16
SPREAD = 0.1
"""Intervals vary by this share, so that processes started together do not poll together for ever."""


@dataclass(slots=True, eq=False)
class Poll:
    """One registered poll. ``poke`` is called when it is due; it must not block and must not raise."""

    interval_s: float
    poke: Callable[[], None]
    cancelled: bool = False
    due: float = field(default=0.0)


class PollScheduler:
    """Calls each registered ``poke`` about every ``interval_s``. The task runs while polls are registered."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._heap: list[tuple[float, int, Poll]] = []
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._earlier = asyncio.Event()
        self._slots = anyio.CapacityLimiter(CONCURRENT_POLLS)

    def register(self, interval_s: float, poke: Callable[[], None]) -> Poll:
        """Start calling ``poke``; `cancel` ends it."""
        poll = Poll(interval_s, poke)
        self._schedule(poll)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="slate/poll scheduler")
        return poll

    def cancel(self, poll: Poll) -> None:
        """Stop calling. Idempotent; takes effect at once."""
        poll.cancelled = True
        self._earlier.set()

    async def limited(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a poll's work within the shared concurrency limit."""
        async with self._slots:
            await work()

    def _schedule(self, poll: Poll) -> None:
        spread = self._runtime.rng.uniform(1 - SPREAD, 1)
        poll.due = self._runtime.clock.monotonic() + poll.interval_s * spread
        self._number += 1
        heapq.heappush(self._heap, (poll.due, self._number, poll))
        self._earlier.set()

    async def _run(self) -> None:
        while True:
            while self._heap and self._heap[0][2].cancelled:
                heapq.heappop(self._heap)
            if not self._heap:
                return
            wait = self._heap[0][0] - self._runtime.clock.monotonic()
            if wait > 0:
                self._earlier.clear()
                with anyio.move_on_after(wait):
                    await self._earlier.wait()
                continue
            _, _, poll = heapq.heappop(self._heap)
            if not poll.cancelled:
                self._schedule(poll)
                try:
                    poll.poke()
                except Exception:
                    logger.exception("a poll could not be started")

    async def close(self) -> None:
        """End the task. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
