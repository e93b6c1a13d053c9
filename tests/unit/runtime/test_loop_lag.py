"""Loop lag: the time between a function's end elsewhere and the loop's going on is what counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

import slate_async as slate
from slate_async.runtime.loop_lag import LoopLag, timed
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import SystemIds
from tests.engine import memory_store, on, runtime

T = TypeVar("T")


class Hand:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Slow:
    """Functions take a second; then the loop comes so much later."""

    def __init__(self, clock: Hand, loop_s: float) -> None:
        self._clock = clock
        self._loop_s = loop_s

    async def run(self, function: Callable[[], T]) -> T:
        self._clock.seconds += 1
        try:
            return function()
        finally:
            self._clock.seconds += self._loop_s


def slow(loop_s: float, lag: LoopLag) -> Runtime:
    clock = Hand()
    offload = Slow(clock, loop_s)
    return timed(Runtime(clock, random.Random(1), SystemIds(), offload, offload), lag)


async def test_what_the_loop_was_late_is_counted_and_what_the_work_took_is_not() -> None:
    lag = LoopLag()
    for loop_s in (0.001, 0.003, 0.030):
        assert await slow(loop_s, lag).offload.run(lambda: 7) == 7
        assert await slow(loop_s / 2, lag).blocking.run(lambda: 8) == 8
    assert lag.metrics() == {
        "loop.lag_samples": 6,
        "loop.lag_over_2ms": 3,
        "loop.lag_over_20ms": 1,
        "loop.lag_max_seconds": pytest.approx(0.030),
    }


async def test_failures_count_and_are_raised() -> None:
    lag = LoopLag()
    with pytest.raises(ZeroDivisionError):
        await slow(0.003, lag).offload.run(lambda: 1 // 0)
    assert lag.over_2ms == 1


async def test_work_that_never_began_does_not_count() -> None:
    class Never:
        async def run(self, function: Callable[[], T]) -> T:
            return await asyncio.Future()

    lag = LoopLag()
    whole = timed(Runtime(Hand(), random.Random(1), SystemIds(), Never(), Never()), lag)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(whole.offload.run(lambda: None), 0)
    assert lag.samples == 0


async def test_a_database_tells() -> None:
    batch = slate.WriteBatch()
    for row in range(500):
        batch.put(b"%04d" % row, bytes(1000))
    async with on(runtime()).open(memory_store(), name="memory://test") as db:
        await db.write(batch)
        await db.flush(l0=True)
        assert db.metrics()["loop.lag_samples"] > 0
