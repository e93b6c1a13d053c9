"""`WriterWatch`: who is to apply what a driver commits, judged by the writer's beats.

A head without a writer's checkpoint says at once that nobody writes. A beat that is younger than three intervals, by
the wall clocks, is taken for a writer that lives: if it does not, the driver finds out while it waits. An older one is
watched for up to three intervals. This decides when a driver tries to become the writer; fencing decides who is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from slate_async.engine.context import DatabaseContext
from slate_async.errors import InvalidError
from slate_async.runtime.protocol import Clock
from slate_async.storage.liveness.observer import LOOKS_PER_BEAT, MISSED_BEATS, WriterLife, WriterLiveness
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.writer import has_writer

logger = logging.getLogger(__name__)
IngestMode = Literal["auto", "ingest", "exclusive"]
"""``"auto"``: beside a writer that lives, and without one as the writer; ``"ingest"``: a writer applies the job, now or
later; ``"exclusive"``: as the writer, which fences one that lives."""
MODES: tuple[IngestMode, ...] = ("auto", "ingest", "exclusive")
OnWait: TypeAlias = Callable[[str], None]
"""Hears in a sentence what is waited for."""


def check_mode(mode: object) -> IngestMode:
    """``mode``. Raises `InvalidError` for what is none."""
    for known in MODES:
        if mode == known:
            return known
    raise InvalidError(f"mode is one of {', '.join(MODES)}, not {mode!r}")


class WriterWatch:
    """Belongs to one caller, who looks again `pause_s` later. ``poll_s``: how often it looks at the head."""

    def __init__(self, context: DatabaseContext, driver: ManifestDriver, poll_s: float) -> None:
        self._name = context.name
        self._clock: Clock = context.runtime.clock
        self._driver = driver
        self._poll_s = poll_s
        self._liveness = WriterLiveness(context.name, context.store, self._clock)
        self._life: WriterLife | None = None
        self._next_look = 0.0
        self.token = ""
        """Of the writer that was looked at last."""

    @property
    def pause_s(self) -> float:
        """Until the next look, at most."""
        interval_ms = None if self._life is None else self._life.interval_ms
        return self._poll_s if interval_ms is None else min(self._poll_s, interval_ms / 1000 / LOOKS_PER_BEAT)

    async def look(self) -> WriterLife:
        """What the head says now, and the beats, which are read a few times for each. Raises `UnavailableError`."""
        head = await self._driver.existing()
        now = self._clock.monotonic()
        if self._life is None or not has_writer(head) or head.writer_token != self.token or now >= self._next_look:
            self._life = None
            self._life = await self._liveness.look(head)
            self.token = head.writer_token
            self._next_look = now + (self._life.interval_ms or 0) / 1000 / LOOKS_PER_BEAT
        return self._life

    async def until_judged(self, on_wait: OnWait) -> WriterLife:
        """Wait until it is known whether to count on a writer: three of its intervals at most. One that does not beat
        is counted on. Raises `UnavailableError`."""
        waiting = False
        while True:
            life = await self.look()
            if life.free or self.counted_on(life):
                return life
            if not waiting:
                waiting = True
                silence_s = MISSED_BEATS * (life.interval_ms or 0) / 1000
                said = f"writer epoch {life.epoch} is silent; waiting {silence_s:g} s at most, to see whether it lives"
                logger.warning("%s: %s", self._name, said)
                on_wait(said)
            await self._clock.sleep(self.pause_s)

    def counted_on(self, life: WriterLife) -> bool:
        """Whether the writer lives, or is thought to."""
        return not life.free and (life.interval_ms is None or life.guess(self._clock.now_ms()) == "alive")

    def silence_s(self, life: WriterLife) -> float:
        """How long it takes to judge a writer that is not counted on; else 0."""
        return 0.0 if self.counted_on(life) else (MISSED_BEATS + 1) * (life.interval_ms or 0) / 1000
