"""`GcSchedule`: GC rounds of one database, one after the other: when they are asked for, and periodically."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from slate_async.engine.clone.embedded_gc import SPREAD
from slate_async.engine.clone.housekeeping import GcRounds
from slate_async.engine.context import DatabaseContext
from slate_async.engine.gc.open import OpenedGc
from slate_async.engine.gc.report import BlockingCompaction, GcProgress, GcReport
from slate_async.errors import InvalidError, UnavailableError
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)


class GcSchedule:
    """``last`` is the report of the newest round that was no dry run, ``None`` before the first one."""

    def __init__(self, context: DatabaseContext, opened: OpenedGc, supervisor: Supervisor) -> None:
        self._name = context.name
        self._clock, self._rng = context.runtime.clock, context.runtime.rng
        self._interval_s = context.settings.gc_interval_ms / 1000
        self._rounds = GcRounds(context, opened, supervisor)
        self._stats = opened.sweeper.stats
        self._one_at_a_time = asyncio.Lock()
        self._warned_of: set[UUID] = set()
        self._round_ended = asyncio.Event()
        self.last: GcReport | None = None

    async def collect(self, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None) -> GcReport:
        """One round, after those that are under way; see `GarbageCollector.collect`."""
        async with self._one_at_a_time:
            report = await self._rounds.collect(dry_run=dry_run, on_progress=on_progress)
        if not dry_run:
            self._warn_of(report.blocked_by)
            self.last = report
            self.notify()
        return report

    async def run(self) -> None:
        """Rounds for ever; one that found more than it may delete is followed at once."""
        while True:
            try:
                more = (await self.collect()).truncated
            except (UnavailableError, InvalidError) as error:
                self._stats.failures += 1
                logger.warning("%s: a GC round failed, the next one tries again: %s", self._name, error)
                more = False
            if not more:
                await self._clock.sleep(self._interval_s * self._rng.uniform(1 - SPREAD, 1))

    async def round_ended(self) -> None:
        """Wait for the end of a round, or for `notify`."""
        await self._round_ended.wait()

    def notify(self) -> None:
        """Wake those that wait for the end of a round."""
        self._round_ended.set()
        self._round_ended = asyncio.Event()

    def _warn_of(self, blocking: Sequence[BlockingCompaction]) -> None:
        """Once of each: it may as well be long, and under way."""
        for compaction in blocking:
            if compaction.id not in self._warned_of:
                logger.warning("%s: %s", self._name, compaction)
        self._warned_of = {compaction.id for compaction in blocking}
