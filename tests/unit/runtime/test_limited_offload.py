"""`LimitedOffload`: how many functions run at a time, in what order, and after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from slate_async.runtime.limited_offload import LimitedOffload

T = TypeVar("T")


class Gated:
    """An offload whose functions end when they are let."""

    def __init__(self) -> None:
        self.running: list[asyncio.Event] = []
        self.begun = 0

    async def run(self, function: Callable[[], T]) -> T:
        gate = asyncio.Event()
        self.running.append(gate)
        self.begun += 1
        await gate.wait()
        self.running.remove(gate)
        return function()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_so_many_at_a_time_in_order() -> None:
    gated, done = Gated(), list[int]()
    offload = LimitedOffload(gated, 2)
    calls = [asyncio.create_task(offload.run(lambda number=number: done.append(number))) for number in range(5)]
    while not all(call.done() for call in calls):
        await settle()
        assert len(gated.running) == min(2, 5 - len(done))
        gated.running[0].set()
        await settle()
    assert done == [0, 1, 2, 3, 4]


async def test_a_failure_frees_its_place() -> None:
    def fail() -> None:
        raise ValueError("no")

    class Inline:
        async def run(self, function: Callable[[], T]) -> T:
            return function()

    offload = LimitedOffload(Inline(), 1)
    with pytest.raises(ValueError, match="no"):
        await offload.run(fail)
    assert await offload.run(lambda: 3) == 3


async def test_a_cancelled_wait_takes_no_place() -> None:
    gated = Gated()
    offload = LimitedOffload(gated, 1)
    first, second, third = (asyncio.create_task(offload.run(lambda: None)) for _ in range(3))
    await settle()
    second.cancel()
    gated.running[0].set()
    await settle()
    assert first.done()
    assert gated.begun == 2
    gated.running[0].set()
    await third
