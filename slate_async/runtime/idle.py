"""How often a writer polls: seldom while it has nothing to write, often while ingests come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from slate_async.runtime.protocol import Clock


class PollIntervals(Protocol):
    """The settings that say how often a writer polls."""

    @property
    def manifest_poll_interval_ms(self) -> int:
        """While it writes."""

    @property
    def idle_poll_interval_ms(self) -> int | None:
        """While it does not; ``None``: as often."""


OFTEN = 8
"""While more is expected, polls are so many times as frequent."""


class IdlePoll:
    """A poll that is left out while nothing was written since the last one and that is not long ago.

    poke: starts a poll
    last_seq: the newest sequence number
    expects_more: whether something that only a poll finds is likely to come
    """

    def __init__(
        self,
        poke: Callable[[], None],
        last_seq: Callable[[], int],
        intervals: PollIntervals,
        clock: Clock,
        expects_more: Callable[[], bool],
    ) -> None:
        self._poke = poke
        self._last_seq = last_seq
        self._clock = clock
        self._expects_more = expects_more
        self._interval_s = intervals.manifest_poll_interval_ms / 1000
        self._idle_s = (intervals.idle_poll_interval_ms or 0) / 1000
        self._polled_seq, self._polled_at = -1, 0.0

    @property
    def interval_s(self) -> float:
        """How often `tick` is to be called now."""
        return self._interval_s / OFTEN if self._expects_more() else self._interval_s

    def tick(self) -> None:
        """The poll is due."""
        now, seq = self._clock.monotonic(), self._last_seq()
        if self._expects_more() or seq != self._polled_seq or now - self._polled_at >= self._idle_s:
            self._polled_seq, self._polled_at = seq, now
            self._poke()
