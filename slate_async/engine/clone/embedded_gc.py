"""`EmbeddedGc`: garbage collection in the writer's process, when the manifest says that there is something to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from metastores.protocol import Register
from slate_async.engine.clone.housekeeping import GcRounds
from slate_async.engine.context import DatabaseContext
from slate_async.engine.gc.due import ended, held_back, made_garbage
from slate_async.engine.gc.open import OpenedGc
from slate_async.engine.stored_database import stored_opener
from slate_async.errors import ClosedError, CorruptionError, SlateError
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import WrongPlaceError
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
SPREAD = 0.1
"""Pauses vary by this share, so that garbage collectors started together do not list together for ever."""
FIRST_PAUSE_MS = 30_000
"""What earlier openings left is looked for soon, but not before this one has had its time to begin."""


class EmbeddedGc:
    """Collects the database's garbage beside its writer, of which ``driver`` and ``register`` are.

    It looks at what the writer knows of the manifest, which costs nothing, and at the store only if something was made
    garbage since its last round (`engine.gc.due`), or waits to be old enough, or compactions are registered and may be
    nobody's by now. A failed round is logged, counted and repeated; it does not end the writer. Damage, or an
    unexpected error, ends GC, because what it would delete next may be wrong, too.

    If the database has left its place, ``on_lost`` is called with the cause, and GC ends: nobody could open what the
    writer goes on to acknowledge. Where the metadata is elsewhere, commits do not notice that, and rounds may not come.
    So the marker is read as often as rounds may be, if anything was committed since."""

    def __init__(
        self,
        context: DatabaseContext,
        driver: ManifestDriver,
        register: Register | None,
        supervisor: Supervisor,
        on_lost: Callable[[BaseException], None],
    ) -> None:
        opened = OpenedGc.of(context, driver, register)
        self._name = context.name
        self._driver = driver
        self._open_stored = stored_opener(context, supervisor)
        self._on_lost = on_lost
        self._ground = context.ground
        self._runtime = context.runtime
        self._settings = context.settings
        self._rounds = GcRounds(context, opened, supervisor)
        self._looked: ManifestState | None = None
        self._proved = driver.head
        self._looked_at = self._runtime.clock.monotonic()
        self._waiting = False
        self.stats = opened.sweeper.stats

    def start(self, tasks: Supervisor) -> None:
        """Begin, as one of ``tasks``. With the setting ``auto_gc`` off nothing is collected, and the place is looked at
        if its marker is to tell."""
        if self._settings.auto_gc:
            tasks.part(self._failed).spawn("garbage collector", self._run())
        elif self._ground.elsewhere:
            tasks.part(self._failed).spawn("place", self._watch_place())

    def _failed(self, cause: BaseException) -> None:
        """The task ended as it never should. Garbage costs space only, so that is no reason to end the writer."""
        if isinstance(cause, ClosedError):  # cancelled with all tasks of a loop that ends, which the writer says, too
            logger.warning("%s: GC stopped: %s", self._name, cause)
            return
        self.stats.failures += 1
        logger.error("%s: GC stopped until the database is opened again; report this error", self._name, exc_info=cause)

    async def _run(self) -> None:
        """For ever, or until something is found damaged."""
        interval_ms = self._settings.gc_interval_ms
        pause_ms = min(interval_ms, FIRST_PAUSE_MS)
        while True:
            await self._pause(pause_ms)
            pause_ms = interval_ms
            if not self._due():
                if await self._place_lost():
                    return
                continue
            try:
                await self._collect()
            except CorruptionError as error:
                self.stats.failures += 1
                logger.warning(
                    "%s: GC stopped, because stored bytes are wrong; run `slate verify`: %s", self._name, error
                )
                if (cause := await self._found_lost(error)) is not None:
                    self._on_lost(cause)
                return
            except SlateError as error:
                self.stats.failures += 1
                logger.warning("%s: a GC round failed, the next one tries again: %s", self._name, error)
                if isinstance(error, WrongPlaceError) and (cause := await self._found_lost(error)) is not None:
                    return self._on_lost(cause)

    async def _watch_place(self) -> None:
        """For ever, or until the place is found to be another's."""
        while not await self._place_lost():
            await self._pause(self._settings.gc_interval_ms)

    async def _place_lost(self) -> bool:
        """Whether the place was found to be another's, and the writer ends. An idle database costs nothing."""
        head = self._driver.head
        if not self._ground.elsewhere or head is None or head is self._proved:
            return False
        try:
            await self._ground.check_again(head, self._driver.load)
            self._proved = head
        except WrongPlaceError as error:
            if (cause := await self._found_lost(error)) is not None:
                self._on_lost(cause)
                return True
        except SlateError as error:
            logger.info("%s: whether this is still the database's place could not be checked: %s", self._name, error)
        return False

    async def _pause(self, milliseconds: float) -> None:
        await self._runtime.clock.sleep(milliseconds * self._runtime.rng.uniform(1 - SPREAD, 1) / 1000)

    async def _found_lost(self, met: SlateError) -> SlateError | None:
        """Why the next opening would not find the database, or ``None``: looks at the store without any remembered
        state. ``met``: the error of a round. A takeover or a destruction is not reported, because the writer's polls
        find those."""
        try:
            async with self._open_stored(self._name) as database:
                head = await database.driver.load()
                if head is None:
                    return met if isinstance(met, CorruptionError) else None
                known = self._driver.head
                if known is not None and head.writer_token != known.writer_token:
                    return None
                await database.ground.check_again(head, database.driver.load)
        except (CorruptionError, WrongPlaceError) as error:
            return error
        except SlateError as error:
            logger.info("%s: whether this is still the database's place could not be checked: %s", self._name, error)
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
