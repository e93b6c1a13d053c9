"""What read handles cost that nobody asks anything."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from slate_async.collections.reader.handle import ReadHandle, open_reader
from tests.engine import StoreInHand, memory_store, settle
from tests.unit.collections.kept import KeptLake
from tests.unit.collections.lake import FastClock
from tests.unit.collections.reader.conftest import ReadLake

HANDLES = 20


class SteppedClock(FastClock):
    """Moves when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def step(self, seconds: float) -> None:
        """Wake those whose time has come, and let them go on."""
        self.now += seconds
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self.now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper not in due]
        for _, woken in due:
            woken.set()
        await settle(200)


@pytest.fixture
def store() -> StoreInHand:
    """In memory: the test says when anything takes time."""
    return StoreInHand(memory_store(), watch="")


async def test_handles_of_one_process_look_for_a_new_version_once(lake: ReadLake) -> None:
    clock = SteppedClock()
    context = lake.reading(clock=clock, poll_interval_ms=500)
    kept = KeptLake(lake.store, lake.supervisor)
    await kept.put([(b"x", 0, 1)], 0, 1)
    handles: list[ReadHandle] = []
    for _ in range(HANDLES):
        handles.append(await open_reader(context))
        lake.readers.append(handles[-1])
        await clock.step(0.5 / HANDLES)
    lake.store.gets.clear()
    for _ in range(40):
        await clock.step(0.05)
    asked = Counter(key.partition("/")[0] for key in lake.store.gets)
    assert asked["readers"] == 0
    assert sum(asked.values()) <= 2 * 4, "four polls"
    controller = await kept.controller()
    await controller.round()
    await controller.close()
    for _ in range(20):
        await clock.step(0.05)
    assert {handle._area.version for handle in handles} == {(await kept.head()).version}
