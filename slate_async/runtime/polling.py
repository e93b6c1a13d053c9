"""One timer task for the polling of many databases, so a thousand idle ones do not wake the loop a thousand ways.

A poll that is still running when it is due again is skipped, not queued. At most `CONCURRENT_POLLS` that are new run at
once, and `POLLS_OF_A_STORE` of one store; so a store that does not answer holds up nobody else's.

The task is supervised: its end ends every database that is polled, with the cause, for each would show stale values.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

import anyio

from slate_async.runtime.protocol import Runtime
from slate_async.runtime.slots import FairSlots
from slate_async.runtime.supervisor import Supervisor

CONCURRENT_POLLS = 16
POLLS_OF_A_STORE = 8
SPREAD = 0.1
"""Intervals vary by this share, so that processes started together do not poll together for ever."""


@dataclass(slots=True, eq=False)
class Poll:
    """One registered poll. ``poke`` is called when it is due; it must not block. ``lost`` is called with the reason why
    it ended by
    itself: ``poke`` raised, or the timer failed."""

    interval_s: float
    poke: Callable[[], None]
    lost: Callable[[BaseException], None]
    due: float = field(default=0.0)


class PollScheduler:
    """Calls each registered ``poke`` about every ``interval_s``. The task runs while polls are registered."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._heap: list[tuple[float, int, Poll]] = []
        self._number = 0
        self._supervisor = Supervisor("slate", self._failed)
        self._task: asyncio.Task[None] | None = None
        self._earlier = asyncio.Event()
        self._slots = FairSlots(CONCURRENT_POLLS, POLLS_OF_A_STORE)

    def of_store(self, store: Hashable) -> StorePolls:
        """The polls of databases in ``store``, whatever names it."""
        return StorePolls(self, store)

    def register(self, interval_s: float, poke: Callable[[], None], lost: Callable[[BaseException], None]) -> Poll:
        """Start calling ``poke``; `cancel` ends it."""
        poll = Poll(interval_s, poke, lost)
        self._schedule(poll)
        if self._task is None or self._task.done():
            self._task = self._supervisor.spawn("poll scheduler", self._run())
        return poll

    def cancel(self, poll: Poll) -> None:
        """Stop calling, at once, and keep nothing of the caller. Idempotent."""
        self._heap = [waiting for waiting in self._heap if waiting[2] is not poll]
        heapq.heapify(self._heap)
        self._earlier.set()

    def retime(self, poll: Poll, interval_s: float) -> None:
        """Call it about every ``interval_s`` from now on. Does nothing to one that was cancelled."""
        if poll.interval_s == interval_s or all(waiting[2] is not poll for waiting in self._heap):
            return
        self.cancel(poll)
        poll.interval_s = interval_s
        self._schedule(poll)

    async def limited(self, store: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Run a poll's work within the shared limits."""
        async with self._slots.slot(store):
            await work()

    def _schedule(self, poll: Poll) -> None:
        spread = self._runtime.rng.uniform(1 - SPREAD, 1)
        poll.due = self._runtime.clock.monotonic() + poll.interval_s * spread
        self._number += 1
        heapq.heappush(self._heap, (poll.due, self._number, poll))
        self._earlier.set()

    async def _run(self) -> None:
        while self._heap:
            wait = self._heap[0][0] - self._runtime.clock.monotonic()
            if wait > 0:
                self._earlier.clear()
                with anyio.move_on_after(wait):
                    await self._earlier.wait()
                continue
            _, _, poll = heapq.heappop(self._heap)
            self._schedule(poll)
            try:
                poll.poke()
            except Exception as error:  # noqa: BLE001 - its owner's to judge, and no other database's
                self.cancel(poll)
                poll.lost(error)

    def _failed(self, cause: BaseException) -> None:
        """The timer ended, so all its polls end. Later registrations get another timer."""
        self._supervisor = Supervisor("slate", self._failed)
        polls, self._heap = [poll for _, _, poll in self._heap], []
        for poll in polls:
            poll.lost(cause)

    async def close(self) -> None:
        """End the task. Idempotent."""
        await self._supervisor.close()


class StorePolls:
    """`PollScheduler` as the databases of one store use it."""

    def __init__(self, scheduler: PollScheduler, store: Hashable) -> None:
        self._scheduler = scheduler
        self._store = store

    def register(self, interval_s: float, poke: Callable[[], None], lost: Callable[[BaseException], None]) -> Poll:
        """See `PollScheduler.register`."""
        return self._scheduler.register(interval_s, poke, lost)

    def cancel(self, poll: Poll) -> None:
        """See `PollScheduler.cancel`."""
        self._scheduler.cancel(poll)

    def retime(self, poll: Poll, interval_s: float) -> None:
        """See `PollScheduler.retime`."""
        self._scheduler.retime(poll, interval_s)

    async def limited(self, work: Callable[[], Awaitable[None]]) -> None:
        """See `PollScheduler.limited`."""
        await self._scheduler.limited(self._store, work)
