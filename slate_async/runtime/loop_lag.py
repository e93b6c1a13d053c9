"""How late the event loop is: measured where work comes back from another thread, so it costs an idle loop nothing.

Such work goes on while tables are flushed and merged, which is when a loop is late if it ever is. A function's end is
noted in its thread; what passes until the loop goes on with its result is how late the loop was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from slate_async.runtime.protocol import Clock, Offload, Runtime

T = TypeVar("T")
LATE_S = 0.002
VERY_LATE_S = 0.020


class Lateness:
    """Of one loop. ``wakes``: how often it was measured; ``late`` and ``very_late``: how often it was late by more than
    `LATE_S` and `VERY_LATE_S`; ``most_s``: the latest it was, in seconds."""

    __slots__ = ("late", "most_s", "very_late", "wakes")

    def __init__(self) -> None:
        self.wakes = 0
        self.late = 0
        self.very_late = 0
        self.most_s = 0.0

    def add(self, seconds: float) -> None:
        """The loop was so late."""
        self.wakes += 1
        self.late += seconds > LATE_S
        self.very_late += seconds > VERY_LATE_S
        self.most_s = max(self.most_s, seconds)

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        return {
            "loop.wakes": self.wakes,
            "loop.late_2ms": self.late,
            "loop.late_20ms": self.very_late,
            "loop.most_late_seconds": self.most_s,
        }


def timed(runtime: Runtime, lateness: Lateness) -> Runtime:
    """``runtime``, whose work away from the loop tells ``lateness`` how long its results wait for the loop."""
    offload, blocking = (_Timed(inner, runtime.clock, lateness) for inner in (runtime.offload, runtime.blocking))
    return replace(runtime, offload=offload, blocking=blocking)


class _Timed:
    """An `Offload` that measures how long the results of another one wait."""

    def __init__(self, inner: Offload, clock: Clock, lateness: Lateness) -> None:
        self._inner = inner
        self._clock = clock
        self._lateness = lateness

    async def run(self, function: Callable[[], T]) -> T:
        """See `Offload.run`."""
        ended: float | None = None

        def noted() -> T:
            nonlocal ended
            try:
                return function()
            finally:
                ended = self._clock.monotonic()

        try:
            return await self._inner.run(noted)
        finally:
            if ended is not None:
                self._lateness.add(self._clock.monotonic() - ended)
