"""`GcRounds`: GC rounds that also remove destroyed databases, unfinished clones, and a clone's checkpoints in its
parents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from slate_async.engine.clone.abandoned import ClonesOfOne, is_abandoned, remove_abandoned
from slate_async.engine.clone.destroy import remove_all
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.context import DatabaseContext
from slate_async.engine.gc.open import OpenedGc
from slate_async.engine.gc.report import GcProgress, GcReport
from slate_async.engine.stored_database import stored_opener
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.edits.lifecycle import holders
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)


class GcRounds:
    """Rounds of one database: its garbage, and what its life leaves to be ended. One at a time."""

    def __init__(self, context: DatabaseContext, opened: OpenedGc, supervisor: Supervisor) -> None:
        self._name = context.name
        self._context = context
        self._opened = opened
        self._open_stored = stored_opener(context, supervisor)
        self._clones = ClonesOfOne(context.name, self._open_stored)

    async def collect(
        self, *, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None
    ) -> GcReport:
        """Do one; see `GarbageCollector.collect`."""
        abandoned = await self._abandoned_here(dry_run)
        report = await self._opened.sweeper.sweep(dry_run=dry_run, on_progress=on_progress)
        return await self._tended(replace(report, abandoned=abandoned))

    async def _abandoned_here(self, dry_run: bool) -> tuple[str, ...]:
        """Remove the database if it is a clone whose making was broken off long ago; its name, if it was."""
        state = self._opened.driver.head
        if dry_run or state is None or not is_abandoned(state, self._graced_ms()):
            return ()
        try:
            async with self._open_stored(self._name) as database:
                return (self._name,) if await remove_abandoned(database, self._open_stored, state) else ()
        except CorruptionError as error:
            logger.warning("%s: this unfinished clone could not be removed; destroy it by hand: %s", self._name, error)
            return ()

    def _graced_ms(self) -> int:
        """What ended, or was left, before then goes now."""
        settings = self._context.settings
        return self._context.runtime.clock.now_ms() - settings.gc_destroy_grace_ms - settings.gc_clock_skew_ms

    async def _tended(self, report: GcReport) -> GcReport:
        """Besides garbage: end a destroyed database whose time has come, clones that were never finished, and a clone's
        hold on its parents."""
        state = self._opened.driver.head
        if state is None:
            return report
        abandoned = await self._clones.end_abandoned(state, self._graced_ms(), dry_run=report.dry_run)
        report = replace(report, abandoned=report.abandoned + abandoned)
        if not (state.parents or state.destroyed_at_ms is not None):
            return report
        try:
            if state.destroyed_at_ms is not None:
                return await self._ended(report, state)
            return report if report.dry_run else await self._detached(report)
        except CorruptionError as error:  # what lives here was read by the round: it is a parent that is damaged
            logger.warning("%s: a parent cannot be read, so its checkpoint for this clone stays: %s", self._name, error)
            return report

    async def _ended(self, report: GcReport, state: ManifestState) -> GcReport:
        due = self._is_due(state)
        if due and not report.dry_run:
            async with self._open_stored(self._name) as database:
                await remove_all(database, self._open_stored, state.database_id)
        return replace(report, removed=due)

    async def _detached(self, report: GcReport) -> GcReport:
        try:
            async with self._open_stored(self._name) as database:
                return replace(report, detached=await detach_if_free(database, self._open_stored))
        except (UnavailableError, InvalidError) as error:
            logger.warning(
                "%s: this clone could not be detached from its parents; the next round tries again: %s",
                self._name,
                error,
            )
            return report

    def _is_due(self, state: ManifestState) -> bool:
        """Whether a destroyed database is to be removed, or to be rid of what its removal left undone."""
        if state.removed:
            return bool(state.parents)
        expired_ms = self._context.runtime.clock.now_ms() - self._context.settings.gc_clock_skew_ms
        return (state.destroyed_at_ms or 0) <= self._graced_ms() and not holders(state, expired_ms)
