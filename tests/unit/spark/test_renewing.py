"""`slate_async.spark.renewing`: when a task renews what it reads under."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark")

from slate_async.spark.renewing import renewed
from tests.engine import ManualClock, settle


class CountedClock(ManualClock):
    """Of which each sleep is noted, and the first one is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if len(self.sleeps) > 1:
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("age_s", "renewals", "sleeps"),
    [(30, 2, [25, 25]), (10, 1, [15, 25]), (-10_000, 1, [25, 25])],
    ids=["it is due", "it is not due", "made by a clock that is ahead"],
)
async def test_it_is_renewed_each_quarter_of_its_life(age_s: int, renewals: int, sleeps: list[float]) -> None:
    clock, count = CountedClock(), 0

    async def renew() -> None:
        nonlocal count
        count += 1

    async with renewed(clock, 100.0, clock.now_ms() - age_s * 1000, renew):
        await settle()
        assert (count, clock.sleeps) == (renewals, sleeps)
