"""What a controller does by itself: rounds when there is work, merges when they are due, little while there is none.

Each `poll_interval_ms` it looks whether something is pending: a listing, or of a chain the one name that can come next.
It is absorbed if so. A round follows now and then, and as long as rounds change anything, because what one publishes
the next one uses. Garbage is collected each `gc_interval_ms`, and the holds of an idle collection are looked at each
`exert_interval_ms`, when its merges are granted fuel as well. One that is at rest costs a look a poll, and no writes.

While the store does not answer, it waits longer each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.collect import bury
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.failures import Failures
from slate_async.collections.controller.merger import Mergers
from slate_async.collections.controller.pending import PendingBatch, has_work
from slate_async.collections.controller.report import RoundReport
from slate_async.collections.controller.round import Rounds
from slate_async.collections.core import spine
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.names import COMPARE_SHARD, PendingName
from slate_async.errors import ClosedError, UnavailableError
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)
LONGEST_PAUSE_MS = 60_000
QUIET_MS = 60_000
LONGEST_POLL = 4
"""Of a collection that has not changed for `QUIET_MS` polls are so many times as long."""
LOOK_POLLS = 4
"""While much comes in, the holds are looked at each so many polls."""
COLLECT_AFTER = 1_000
"""Garbage is collected sooner once so many appends were absorbed since the last time."""


class Tasks:
    """The tasks of one controller. ``turn``: rounds are done under it, one at a time."""

    def __init__(self, context: ControllerContext, rounds: Rounds, mergers: Mergers, turn: asyncio.Lock) -> None:
        self._context = context
        self._rounds = rounds
        self._mergers = mergers
        self._turn = turn
        self._again = True
        self._collected_ms = -math.inf
        self._looked_ms = -math.inf
        self._uncollected = 0
        self._changed_ms = context.now_ms()
        self._work = asyncio.Event()
        self._poked = asyncio.Event()
        self._exerted: deque[Sequence[MergedBatch]] = deque()

    def start(self, supervisor: Supervisor) -> None:
        """Begin."""
        for number in range(self._context.parallel_merges):
            supervisor.spawn(f"merger {number}", self._merge_until_deleted())
        supervisor.spawn("rounds", self._until_deleted())

    def poke(self) -> None:
        """Look for work now."""
        self._poked.set()

    async def _until_deleted(self) -> None:
        try:
            await self._forever(self._step)
        except ClosedError as error:
            closed = error
            await self._forever(lambda: self._bury(closed))

    async def _forever(self, step: Callable[[], Awaitable[None]]) -> None:
        """``step`` again and again. What is not for want of an answer ends it."""
        failures = Failures(2 * self._context.poll_interval_ms, LONGEST_PAUSE_MS)
        while True:
            try:
                await step()
                failures.passed(logger, f"{self._context.name}: its controller goes on")
            except UnavailableError as error:
                pause = failures.failed(logger, f"{self._context.name}: its controller tries again", error)
                await self._context.sleep_ms(self._context.runtime.rng.uniform(pause / 2, pause))

    # ---- rounds

    async def _step(self) -> None:
        """One poll: a round if there is anything to do, or fuel for an idle collection."""
        context, now = self._context, self._context.now_ms()
        collecting = now - self._collected_ms >= context.gc_interval_ms or self._uncollected >= COLLECT_AFTER
        unseen_ms = now - self._looked_ms
        found = await self._found()
        if found is not None and not collecting and unseen_ms < LOOK_POLLS * context.poll_interval_ms:
            await self._absorb(found)
        elif found is not None or collecting or self._again:
            await self._round(collecting, found or [])
        elif unseen_ms >= context.exert_interval_ms:
            await self._look_and_exert()
        await self._pause()

    async def _absorb(self, found: list[PendingBatch]) -> None:
        async with self._turn:
            before = self._rounds.counts.appends
            if await self._rounds.absorb(found):
                self._again = True
                self._changed_ms = self._context.now_ms()
                self._uncollected += self._rounds.counts.appends - before
        self._work.set()

    async def _round(self, collecting: bool, found: list[PendingBatch]) -> None:
        async with self._turn:
            report = await self._rounds.round(collecting=collecting, batches=found)
        self._looked_ms = now = self._context.now_ms()
        self._again = report.changed
        if report.changed:
            self._changed_ms = now
        self._uncollected = 0 if collecting else self._uncollected + report.appends
        if collecting and is_all_collected(report):
            self._collected_ms = now
        self._work.set()

    async def _found(self) -> list[PendingBatch] | None:
        """What is pending, if it can be absorbed now."""
        context, head = self._context, self._head()
        if head.upper.is_done or not spine.has_room(head):
            return None
        if context.appends is Appends.COMPARE:
            name = PendingName(COMPARE_SHARD, head.upper, None)
            is_there = await context.answered("a look at what is pending", lambda: context.pending.describe(name))
            return None if is_there is None else await self._rounds.pending(head.upper)
        batches = await self._rounds.pending(head.upper)
        return batches if has_work(batches, head.upper, context.appends) else None

    async def _look_and_exert(self) -> None:
        self._looked_ms = self._context.now_ms()
        async with self._turn:
            self._again = await self._rounds.look()
        target = self._rounds.target
        if not self._again and target is not None and not self._head().is_ended:
            inputs = () if self._exerted else self._mergers.exert(self._head(), target)
            if inputs:
                self._exerted.append(inputs)
                self._work.set()

    async def _bury(self, closed: ClosedError) -> None:
        tombstone = await self._context.answered("a read of the head", self._context.versions.load)
        if not tombstone.deleted:
            raise closed
        await bury(self._context, tombstone)
        await self._context.sleep_ms(self._context.gc_interval_ms)

    async def _pause(self) -> None:
        """Until the next poll, or until somebody pokes."""
        is_quiet = self._context.now_ms() - self._changed_ms > QUIET_MS
        polls = LONGEST_POLL if is_quiet else 1
        sleep = asyncio.ensure_future(self._context.sleep_ms(polls * self._context.poll_interval_ms))
        poke = asyncio.ensure_future(self._poked.wait())
        try:
            await asyncio.wait([sleep, poke], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            poke.cancel()
        self._poked.clear()

    # ---- merges

    async def _merge_until_deleted(self) -> None:
        with contextlib.suppress(ClosedError):  # the rounds find out why
            await self._forever(self._merge_one)

    async def _merge_one(self) -> None:
        """The merge that is due first, or wait for one."""
        target, inputs = self._rounds.target, self._next()
        if target is None or not inputs:
            self._work.clear()
            await self._work.wait()
            return
        if await self._mergers.merge(inputs, target) is not None:
            self._again = True
            self._work.set()
            self.poke()

    def _next(self) -> Sequence[MergedBatch]:
        head = self._context.versions.head
        if head is None or head.is_ended:
            return ()
        return self._mergers.due(head) or (self._exerted.popleft() if self._exerted else ())

    def _head(self) -> Area:
        head = self._context.versions.head
        assert head is not None
        return head


def is_all_collected(report: RoundReport) -> bool:
    """Whether the next collection of garbage can wait."""
    return report.collected is None or report.collected.complete
