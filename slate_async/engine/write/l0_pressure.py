"""Backpressure from compaction: a writer that outruns it waits, and says so.

A stall begins when a write or a flush has to wait because L0 is full and ends when an SST fits in; it is logged when it
begins, when it ends, and every so often between.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import anyio

from slate_async.runtime.protocol import Clock

logger = logging.getLogger(__name__)
SLOWER_BY_S = 0.1
SLOWEST_S = 1.0
"""Without a WAL each flush is an SST: from the limit on they come further apart by `SLOWER_BY_S` with each SST that is
too many, up to this. They do not stop, for then a write that waits to be durable could wait for ever."""

REMIND_AFTER_S = 30.0
"""The writer logs a stall again each time it has lasted so long: no compactor may be running."""


class L0(Protocol):
    """What of the writer's state is needed here."""

    @property
    def l0_count(self) -> int:
        """SSTs that no compaction has taken yet."""


class WhoCompacts(Protocol):
    """What of the compactor's role is needed here."""

    def describe(self) -> str:
        """Which process compacts, for the log and the status."""


class L0Pressure:
    """Counts stalls and lets wait for their end.

    name: the database's, for the log
    limit: SSTs in L0 (and in a log without a WAL) from which on there is no room; l0: how many there are
    compactor: says which process compacts
    stalled: set while a stall lasts
    """

    def __init__(self, name: str, limit: int, l0: L0, compactor: WhoCompacts, clock: Clock) -> None:
        self._name = name
        self._limit = limit
        self._l0 = l0
        self._compactor = compactor
        self._clock = clock
        self._fell = asyncio.Event()
        self.stalled = asyncio.Event()
        self._since: float | None = None
        self._seconds = 0.0
        self._lifted = False
        self.stalls = 0

    @property
    def over(self) -> int:
        """By how many SSTs there are too many for one more; 0 or less if there is room."""
        return self._l0.l0_count + 1 - self._limit

    @property
    def reason(self) -> str | None:
        """Why the writer waits, ``None`` if it does not."""
        if self._since is None:
            return None
        reason = f"L0 has {self._l0.l0_count} SSTs and may have {self._limit}; {self._compactor.describe()}"
        waited = self._clock.monotonic() - self._since
        if waited < REMIND_AFTER_S:
            return reason
        return f"{reason}; no room has come for {waited:.0f} s: see that a compactor runs, such as `slate compactor`"

    @property
    def stalled_seconds(self) -> float:
        """How long the writer has waited in all."""
        return self._seconds + (0.0 if self._since is None else self._clock.monotonic() - self._since)

    def begin(self) -> None:
        """A stall begins, unless one lasts already."""
        if self._since is None:
            self._since = self._clock.monotonic()
            self.stalls += 1
            self.stalled.set()
            logger.warning("%s: writes wait for compaction: %s", self._name, self.reason)

    def changed(self) -> None:
        """The number of SSTs may have fallen."""
        if self.over > 0:
            return
        self._fell.set()
        if self._since is not None:
            waited = self._clock.monotonic() - self._since
            self._seconds += waited
            self._since = None
            self.stalled.clear()
            logger.info("%s: writes go on after %.1f s: L0 has %d SSTs", self._name, waited, self._l0.l0_count)

    def slowdown(self) -> float:
        """Seconds that should lie between two flushes that each make an SST."""
        if self.over <= 0 or self._lifted:
            return 0.0
        self.begin()
        return min(SLOWEST_S, SLOWER_BY_S * self.over)

    def lift(self) -> None:
        """The writer ends: nothing is slowed any more."""
        self._lifted = True

    def succeed(self, before: L0Pressure) -> None:
        """Count on from where ``before``, which has no waiters any more, ended."""
        self.stalls += before.stalls
        self._seconds += before.stalled_seconds

    async def room(self) -> None:
        """Return once one more SST fits in."""
        while self.over > 0:
            self.begin()
            self._fell.clear()
            with anyio.move_on_after(REMIND_AFTER_S):
                await self._fell.wait()
                continue
            logger.warning("%s: writes still wait for compaction: %s", self._name, self.reason)
