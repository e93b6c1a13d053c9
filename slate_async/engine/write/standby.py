"""Opening a database as its writer once no other writer has it open.

A standby reads the manifest's head every poll, so it is connected, knows the newest state, and sees a writer's closing
within one poll; and it watches the writer's beats. It takes over by a claim that fences only the writer it watched: if
two standbys find it dead at once, the second one's claim meets the first one's token, and the second one goes on
waiting.

One whose store goes away while it takes over stands by again. Its claim may be in, and no process serves under it; so a
head that names one of its own claims is free.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from slate_async.engine.context import DatabaseContext
from slate_async.engine.write.open import Opened, open_writer
from slate_async.errors import FencedError, UnavailableError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.polling import SPREAD
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.liveness.observer import LOOKS_PER_BEAT, MISSED_BEATS, WriterLife, WriterLiveness
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)


async def stand_by(
    context: DatabaseContext, supervisor: Supervisor, *, create: bool, properties: Mapping[str, str] | None = None
) -> Opened:
    """Wait until no writer lives, then claim and recover the database of ``context``; see `open_writer`.

    While the store does not answer it goes on waiting, its own takeover included. May be cancelled. Raises what
    `open_writer` raises, but neither `FencedError`: it waits for the writer that was first, nor `UnavailableError`."""
    watch = _Watch(context)
    while True:
        free = await watch.until_free(supervisor, create=create)
        token = context.runtime.ids.token()
        watch.own[token] = None
        try:
            return await open_writer(
                context, supervisor, create=create, properties=properties, instead_of=free or "", token=token
            )
        except FencedError as error:
            logger.info("%s: another writer was first; standing by again: %s", context.name, error)
        except UnavailableError as error:
            logger.warning(
                "%s: the takeover failed, because the store did not answer; standing by again: %s", context.name, error
            )
            await watch.pause()


class _Watch:
    """What a standby has seen, and the tokens of its own claims that did not become a writer, though they may be in."""

    def __init__(self, context: DatabaseContext) -> None:
        self._context = context
        self._runtime = context.runtime
        self._liveness = WriterLiveness(context.name, context.store, context.runtime.clock)
        self._life: WriterLife | None = None
        self._head: ManifestState | None = None
        self._next_look = 0.0
        self._cut_off = False
        self.own: dict[str, None] = {}

    async def until_free(self, supervisor: Supervisor, *, create: bool) -> str | None:
        """Wait; the token of the writer that does not live any more, ``None`` if there is no database yet."""
        driver = self._context.driver(supervisor)
        try:
            return await self._until_free(driver, create=create)
        finally:
            await run_to_completion(driver.close())

    async def _until_free(self, driver: ManifestDriver, *, create: bool) -> str | None:
        waiting = False
        while True:
            try:
                head = await driver.load()
                if head is None or (head.removed and create):
                    return None
                check_usable(head)
                if head.writer_token in self.own:
                    return head.writer_token
                life = await self._look(head)
                self._cut_off = False
                if life.free:
                    logger.info("%s: writer epoch %d is %s; taking over", self._context.name, life.epoch, life.state)
                    return head.writer_token
                if not waiting:
                    waiting = True
                    self._note_waiting(life)
            except UnavailableError as error:
                self._note_unavailable(error)
            await self.pause()

    async def pause(self) -> None:
        """Until the next look."""
        await self._runtime.clock.sleep(self._pause_s() * self._runtime.rng.uniform(1 - SPREAD, 1))

    def _pause_s(self) -> float:
        poll_s = self._context.settings.manifest_poll_interval_ms / 1000
        if self._life is None or self._life.interval_ms is None:
            return poll_s
        return min(poll_s, self._life.interval_ms / 1000 / LOOKS_PER_BEAT)

    def _note_waiting(self, life: WriterLife) -> None:
        when = (
            ", which sends no heartbeats: only its close is noticed"
            if life.interval_ms is None
            else f", until it closes or is silent for {MISSED_BEATS * life.interval_ms / 1000:g} s"
        )
        logger.warning("%s: standing by for writer epoch %d%s", self._context.name, life.epoch, when)

    async def _look(self, head: ManifestState) -> WriterLife:
        """What the head says; what the beats say, a few times for each."""
        now = self._runtime.clock.monotonic()
        if self._life is None or head is not self._head or now >= self._next_look:
            self._life = await self._liveness.look(head)
            self._head = head
            if self._life.interval_ms is not None:
                self._next_look = now + self._life.interval_ms / 1000 / LOOKS_PER_BEAT
        return self._life

    def _note_unavailable(self, error: UnavailableError) -> None:
        self._life = None
        if not self._cut_off:
            logger.warning("%s: standing by, but the store does not answer: %s", self._context.name, error)
        self._cut_off = True
