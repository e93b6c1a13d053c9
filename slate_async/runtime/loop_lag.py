"""Event-loop lag: measured where work comes back from another thread, so it costs an idle loop nothing.

Such work goes on while tables are flushed and merged, which is when a loop is late if it ever is. A function's end is
noted in its thread; what passes until the loop goes on with its result is the loop's lag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from slate_async.runtime.protocol import Clock, Offload, Runtime

T = TypeVar("T")


class LoopLag:
    """Of one loop. ``samples``: how often it was measured; ``over_2ms`` and ``over_20ms``: how often it was more;
    ``max_s``: the longest, in seconds."""

    __slots__ = ("max_s", "over_2ms", "over_20ms", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.over_2ms = 0
        self.over_20ms = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """The loop went on so late."""
        self.samples += 1
        self.over_2ms += seconds > 0.002
        self.over_20ms += seconds > 0.020
        self.max_s = max(self.max_s, seconds)

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        return {
            "loop.lag_samples": self.samples,
            "loop.lag_over_2ms": self.over_2ms,
            "loop.lag_over_20ms": self.over_20ms,
            "loop.lag_max_seconds": self.max_s,
        }


def timed(runtime: Runtime, lag: LoopLag) -> Runtime:
    """``runtime``, whose work away from the loop tells ``lag`` how long its results wait for the loop."""
    offload, blocking = (_Timed(inner, runtime.clock, lag) for inner in (runtime.offload, runtime.blocking))
    parallel = None if runtime.parallel is None else _Timed(runtime.parallel, runtime.clock, lag)
    return replace(runtime, offload=offload, blocking=blocking, parallel=parallel)


class _Timed:
    """An `Offload` that measures how long the results of another one wait."""

    def __init__(self, inner: Offload, clock: Clock, lag: LoopLag) -> None:
        self._inner = inner
        self._clock = clock
        self._lag = lag

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
                self._lag.add(self._clock.monotonic() - ended)
