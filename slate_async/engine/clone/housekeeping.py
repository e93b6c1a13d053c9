"""Garbage collection put together: its rounds, for a process of its own, and beside a writer. Wiring only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from metastores.protocol import Register
from slate_async.engine.clone.abandoned import ClonesOfOne, is_abandoned, remove_abandoned
from slate_async.engine.clone.destroy import remove_all
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.clone.sites import sites_of
from slate_async.engine.context import Place
from slate_async.engine.gc.collector import Collector, Limits
from slate_async.engine.gc.due import ended, held_back, made_garbage
from slate_async.engine.gc.report import CollectionProgress, CollectionReport
from slate_async.errors import CorruptionError, InvalidError, SlateError, UnavailableError
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.lifecycle import holders
from slate_async.storage.manifest.marker import WrongPlaceError
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
SPREAD = 0.1
"""Pauses vary by this share, so that collectors started together do not list together for ever."""
FIRST_PAUSE_MS = 30_000
"""What earlier openings left is looked for soon, but not before this one has had its time to begin."""


@dataclass(frozen=True, slots=True)
class OpenedCollector:
    """What rounds are made of."""

    collector: Collector
    driver: ManifestDriver
    register: Register | None


def collector_of(place: Place, driver: ManifestDriver, register: Register | None) -> OpenedCollector:
    """The collector of the database at ``place``."""
    settings = place.settings
    limits = Limits(
        settings.gc_min_age_ms,
        settings.gc_clock_skew_ms,
        settings.gc_max_deletes_per_round,
        settings.gc_stalled_compaction_ms,
    )
    check = partial(place.ground.check_again, load_head=driver.load)
    collector = Collector(place.store, driver, register, place.runtime, limits, check_place=check)
    return OpenedCollector(collector, driver, register)


class Rounds:
    """Rounds of one collector: the database's garbage, and what its life leaves to be ended. One at a time."""

    def __init__(self, place: Place, opened: OpenedCollector, supervisor: Supervisor) -> None:
        self._name = place.name
        self._place = place
        self._opened = opened
        self._open_site = sites_of(place, supervisor)
        self._clones = ClonesOfOne(place.name, self._open_site)

    async def collect(
        self, *, dry_run: bool = False, on_progress: Callable[[CollectionProgress], None] | None = None
    ) -> CollectionReport:
        """Do one; see `GarbageCollector.collect`."""
        abandoned = await self._abandoned_here(dry_run)
        report = await self._opened.collector.collect(dry_run=dry_run, on_progress=on_progress)
        return await self._tended(replace(report, abandoned=abandoned))

    async def _abandoned_here(self, dry_run: bool) -> tuple[str, ...]:
        """Remove the database if it is a clone whose making was broken off long ago; its name, if it was."""
        state = self._opened.driver.head
        if dry_run or state is None or not is_abandoned(state, self._graced_ms()):
            return ()
        try:
            async with self._open_site(self._name) as site:
                return (self._name,) if await remove_abandoned(site, self._open_site, state) else ()
        except CorruptionError as error:
            logger.warning("%s: an unfinished clone could not be removed: %s", self._name, error)
            return ()

    def _graced_ms(self) -> int:
        """What ended, or was left, before then goes now."""
        settings = self._place.settings
        return self._place.runtime.clock.now_ms() - settings.gc_destroy_grace_ms - settings.gc_clock_skew_ms

    async def _tended(self, report: CollectionReport) -> CollectionReport:
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
            logger.warning("%s: a parent cannot be read, and keeps what it holds for this clone: %s", self._name, error)
            return report

    async def _ended(self, report: CollectionReport, state: ManifestState) -> CollectionReport:
        due = self._is_due(state)
        if due and not report.dry_run:
            async with self._open_site(self._name) as site:
                await remove_all(site, self._open_site, state.database_id)
        return replace(report, removed=due)

    async def _detached(self, report: CollectionReport) -> CollectionReport:
        try:
            async with self._open_site(self._name) as site:
                return replace(report, detached=await detach_if_free(site, self._open_site))
        except (UnavailableError, InvalidError) as error:
            logger.warning("%s: could not be detached from its parents: %s", self._name, error)
            return report

    def _is_due(self, state: ManifestState) -> bool:
        """Whether a destroyed database is to be removed, or to be rid of what its removal left undone."""
        if state.removed:
            return bool(state.parents)
        expired_ms = self._place.runtime.clock.now_ms() - self._place.settings.gc_clock_skew_ms
        return (state.destroyed_at_ms or 0) <= self._graced_ms() and not holders(state, expired_ms)


class BesideWriter:
    """Collects the database's garbage beside its writer, of which ``driver`` and ``register`` are.

    It looks at what the writer knows of the manifest, which costs nothing, and at the store only if something was made
    garbage since its last round (`engine.gc.due`), or waits to be old enough, or compactions are registered and
    may be nobody's by now. What goes wrong is logged and counted: it does not end the writer. A round that fails is
    repeated; but damage, or an error that nobody expects, ends the collecting: what comes next may be wrong, too.

    ``gone`` is told why the database is not in its place any more, if a round met that, and the collecting ends:
    nobody could open what the writer goes on to acknowledge."""

    def __init__(
        self,
        place: Place,
        driver: ManifestDriver,
        register: Register | None,
        supervisor: Supervisor,
        gone: Callable[[BaseException], None],
    ) -> None:
        opened = collector_of(place, driver, register)
        self._name = place.name
        self._driver = driver
        self._open_site = sites_of(place, supervisor)
        self._gone = gone
        self._runtime = place.runtime
        self._settings = place.settings
        self._rounds = Rounds(place, opened, supervisor)
        self._looked: ManifestState | None = None
        self._looked_at = self._runtime.clock.monotonic()
        self._waiting = False
        self.stats = opened.collector.stats

    def start(self, tasks: Supervisor) -> None:
        """Begin, as one of ``tasks``, unless the setting ``auto_gc`` is off."""
        if self._settings.auto_gc:
            tasks.part(self._failed).spawn("garbage collector", self._run())

    def _failed(self, cause: BaseException) -> None:
        """The task ended as it never should. Garbage costs space only, so that is no reason to end the writer."""
        self.stats.failures += 1
        logger.error("%s: garbage is no longer collected until it is opened again", self._name, exc_info=cause)

    async def _run(self) -> None:
        """For ever, or until something is found damaged."""
        interval_ms = self._settings.gc_interval_ms
        pause_ms = min(interval_ms, FIRST_PAUSE_MS)
        while True:
            spread = self._runtime.rng.uniform(1 - SPREAD, 1)
            await self._runtime.clock.sleep(pause_ms * spread / 1000)
            pause_ms = interval_ms
            if not self._due():
                continue
            try:
                await self._collect()
            except CorruptionError as error:
                self.stats.failures += 1
                logger.warning("%s: garbage is no longer collected: %s; run verify", self._name, error)
                if (cause := await self._found_gone(error)) is not None:
                    self._gone(cause)
                return
            except SlateError as error:
                self.stats.failures += 1
                logger.warning("%s: garbage was not collected: %s", self._name, error)
                if isinstance(error, WrongPlaceError) and (cause := await self._found_gone(error)) is not None:
                    return self._gone(cause)

    async def _found_gone(self, met: SlateError) -> SlateError | None:
        """Why the database cannot be found any more, if so, by a look that remembers nothing, as of who opens it next.
        ``met``: what a round said. Not that another owner has it, or destroyed it: polls tell."""
        try:
            async with self._open_site(self._name) as site:
                head = await site.driver.load()
                if head is None:
                    return met if isinstance(met, CorruptionError) else None
                known = self._driver.head
                if known is not None and head.writer_token != known.writer_token:
                    return None
                await site.ground.check_again(head, site.driver.load)
        except (CorruptionError, WrongPlaceError) as error:
            return error
        except SlateError as error:
            logger.info("%s: whether its place is still its own is not known: %s", self._name, error)
        return None

    def _due(self) -> bool:
        head, looked = self._driver.head, self._looked
        if head is None or head.destroyed_at_ms is not None:
            return False
        if looked is None or self._waiting or made_garbage(looked, head):
            return True
        looked_ago_s = self._runtime.clock.monotonic() - self._looked_at
        if head.compactions and looked_ago_s * 1000 >= self._settings.gc_stalled_compaction_ms:
            return True
        return ended(head, self._runtime.clock.now_ms() - self._settings.gc_clock_skew_ms)

    async def _collect(self) -> None:
        more = True
        while more:
            before = self._driver.head
            report = await self._rounds.collect()
            more = report.truncated
        head = self._driver.head
        self._looked, self._looked_at = before, self._runtime.clock.monotonic()
        self._waiting = bool(report.waiting) and head is not None and not held_back(head)
