"""`GarbageCollector`: collects the garbage of one database, round after round. Wiring only; see `engine.gc`.

Any number of them may run, in any processes, beside writers, readers and compactors: they only repeat each other's
work. Several databases are collected in one process by opening several in one `Environment`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from uuid import UUID

from slate_async.database.handle import Handle, HandleResources
from slate_async.database.metrics import shared_counters
from slate_async.engine.clone.embedded_gc import SPREAD
from slate_async.engine.clone.housekeeping import GcRounds
from slate_async.engine.gc.open import OpenedGc
from slate_async.engine.gc.report import BlockingCompaction, GcProgress, GcReport
from slate_async.errors import ClosedError, InvalidError, UnavailableError

logger = logging.getLogger(__name__)


class GarbageCollector(Handle):
    """Made by `slate_async.open_gc` or `Environment.open_gc`, never directly.

    It closes itself, with the cause, when something that lives cannot be read; a store that does not answer, a
    database that is gone for the moment, and a clone's parent that is damaged, are logged and waited out."""

    _noun = "garbage collector"

    def __init__(
        self,
        resources: HandleResources,
        opened: OpenedGc,
        *,
        periodic: bool,
    ) -> None:
        super().__init__(resources)
        context, supervisor = resources.context, resources.supervisor
        self._opened = opened
        self._runtime = context.runtime
        self._interval_s = context.settings.gc_interval_ms / 1000
        self._one_at_a_time = asyncio.Lock()
        self._last: GcReport | None = None
        self._warned_of: set[UUID] = set()
        self._collecting = GcRounds(context, opened, supervisor)
        self._round_ended = asyncio.Event()
        if periodic:
            supervisor.spawn("garbage collection", self._run())

    @property
    def last(self) -> GcReport | None:
        """What the last round did; ``None`` before the first one."""
        return self._last

    async def collect(
        self, *, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None
    ) -> GcReport:
        """Do one round now. ``dry_run`` changes nothing and tells what a round would do, and why.

        ``on_progress`` is called after each request that deletes. A cancelled caller abandons the wait, not the round.

        Raises `InvalidError` if the database is gone or was never finished, `CorruptionError` if something that lives
        cannot be read (then nothing was deleted), `UnavailableError`, and what a closed collector raises."""
        self._check()
        try:
            return await self._supervisor.run("one GC round", self._round(dry_run, on_progress))
        except ClosedError:
            self._check()  # says why it closed
            raise

    async def rounds(self) -> AsyncIterator[GcReport]:
        """The report of each round that ends from now on, until the collector is closed; who is slow misses some.

        Raises what the collector closed itself with."""
        self._check()
        while self._state == "open":
            seen = self._last
            await self._round_ended.wait()
            if self._last is not None and self._last is not seen:
                yield self._last
        if self._cause is not None:
            raise self._closed_failure()

    async def _round(self, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None) -> GcReport:
        async with self._one_at_a_time:
            report = await self._collecting.collect(dry_run=dry_run, on_progress=on_progress)
        if not dry_run:
            self._warn_of(report.blocked_by)
            self._last = report
            self._tell()
        return report

    def _warn_of(self, holding: Sequence[BlockingCompaction]) -> None:
        """Once of each: it may as well be long, and under way."""
        for one in holding:
            if one.id not in self._warned_of:
                logger.warning("%s: %s", self._name, one)
        self._warned_of = {one.id for one in holding}

    def _tell(self) -> None:
        """Wake whoever waits for the end of a round."""
        self._round_ended.set()
        self._round_ended = asyncio.Event()

    async def _run(self) -> None:
        """Rounds for ever; one that found more than it may delete is followed at once."""
        while True:
            try:
                more = (await self._round()).truncated
            except (UnavailableError, InvalidError) as error:
                self._opened.sweeper.stats.failures += 1
                logger.warning("%s: garbage was not collected: %s", self._name, error)
                more = False
            if not more:
                spread = self._runtime.rng.uniform(1 - SPREAD, 1)
                await self._runtime.clock.sleep(self._interval_s * spread)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``.

        ``cache.*`` and ``store.*`` count for all who share the `Environment` and the bucket."""
        opened = self._opened
        return {**opened.sweeper.stats.metrics(), **shared_counters(self._context, opened.driver, opened.register)}

    def _ended(self, cause: BaseException | None) -> None:
        self._tell()

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        register = self._opened.register
        return [self._opened.driver.close, *([] if register is None else [register.close])]

    def __repr__(self) -> str:
        return f"<GarbageCollector {self._name} {self._state}>"
