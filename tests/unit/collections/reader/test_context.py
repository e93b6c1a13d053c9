"""How long a reader waits between two looks for updates."""

from __future__ import annotations

import pytest

from tests.unit.collections.lake import FastClock
from tests.unit.collections.reader.conftest import ReadLake


class NotedClock(FastClock):
    """It notes how long it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


@pytest.mark.parametrize(("took", "slept"), [(0, 0.5), (0.1, 0.4), (0.4, 0.25), (7, 0.25)])
async def test_looks_for_updates_begin_one_interval_apart_unless_they_take_half_of_it(
    lake: ReadLake, took: float, slept: float
) -> None:
    clock = NotedClock()
    reading = lake.reading(clock=clock, poll_interval_ms=500)
    looked_ms = reading.now_ms()
    clock.now += took
    await reading.pause_for_updates(reading.pokes.count, looked_ms)
    assert clock.slept == pytest.approx([slept])


async def test_after_a_poke_the_next_look_is_at_once(lake: ReadLake) -> None:
    clock = NotedClock()
    reading = lake.reading(clock=clock)
    noted = reading.pokes.count
    reading.pokes.poke()
    await reading.pause_for_updates(noted, reading.now_ms())
    assert clock.slept == []
