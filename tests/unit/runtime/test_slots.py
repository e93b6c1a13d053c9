"""Slots: how many run at a time, and that work that waits for an answer does not keep the rest waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from slate_async.runtime import slots as module
from slate_async.runtime.slots import FairSlots
from tests.engine import until


class Crowd:
    """Work that goes on until it is let, by group."""

    def __init__(self, slots: FairSlots) -> None:
        self._slots = slots
        self.running: list[tuple[Hashable, asyncio.Event]] = []

    async def work(self, group: Hashable) -> None:
        async with self._slots.slot(group):
            gate = asyncio.Event()
            self.running.append((group, gate))
            await gate.wait()
            self.running.remove((group, gate))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_group_has_its_own_bound_and_all_have_one() -> None:
    crowd = Crowd(FairSlots(3, 2))
    tasks = [asyncio.create_task(crowd.work(group)) for group in ("a", "a", "a", "b", "b")]
    await settle()
    assert [group for group, _ in crowd.running] == ["a", "a", "b"]
    while crowd.running:
        assert len(crowd.running) <= 3
        crowd.running[0][1].set()
        await settle()
    assert all(task.done() for task in tasks)
    assert crowd._slots._groups == {}


async def test_what_hangs_gives_the_shared_slots_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.01)
    crowd = Crowd(FairSlots(2, 2))
    tasks = [asyncio.create_task(crowd.work("dead")) for _ in range(9)]
    await settle()
    tasks += [asyncio.create_task(crowd.work("healthy")) for _ in range(2)]
    await until(lambda: [group for group, _ in crowd.running].count("healthy") == 2, "the healthy ones")
    assert [group for group, _ in crowd.running].count("dead") == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert crowd._slots._groups == {}
    assert crowd._slots._all._value == 2


async def test_a_cancelled_wait_takes_no_slot() -> None:
    crowd = Crowd(FairSlots(1, 1))
    first, second, third = (asyncio.create_task(crowd.work("a")) for _ in range(3))
    await settle()
    second.cancel()
    crowd.running[0][1].set()
    await settle()
    assert first.done()
    assert len(crowd.running) == 1
    crowd.running[0][1].set()
    await third
