"""`MemoryBudget`: in turn, never more than there is, nothing lost by cancelling."""

from __future__ import annotations

import asyncio
import random

import pytest

from slate_async.errors import ConfigError
from slate_async.runtime.memory_budget import MemoryBudget


async def test_what_is_too_much_by_itself_is_refused_by_name() -> None:
    budget = MemoryBudget(10)
    with pytest.raises(ConfigError, match=r"sst/x takes 11 bytes .*decode_memory_bytes allows 10"):
        async with budget.hold(11, "sst/x"):
            pass
    async with budget.hold(10, "sst/x"):
        assert budget.held_bytes == 10
    assert budget.held_bytes == 0


async def test_a_large_one_is_not_overtaken() -> None:
    budget, order = MemoryBudget(10), list[int]()

    async def use(number: int, nbytes: int) -> None:
        async with budget.hold(nbytes, "x"):
            order.append(number)
            await asyncio.sleep(0)

    async with budget.hold(5, "x"):
        tasks = [asyncio.create_task(use(number, nbytes)) for number, nbytes in enumerate((10, 1, 1))]
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []  # the small ones would fit
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]


async def test_widening_lets_waiting_tasks_in() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(8, "x"):
        waiting = asyncio.create_task(budget.hold(8, "x").__aenter__())
        await asyncio.sleep(0)
        budget.widen(5)
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.widen(16)
        await asyncio.wait_for(waiting, 5)


async def test_one_cancelled_in_the_tick_that_makes_room_is_cancelled_and_the_next_gets_it() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(10, "x"):
        waiting = [asyncio.create_task(budget.hold(8, "x").__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await asyncio.wait_for(waiting[1], 5)


@pytest.mark.parametrize("seed", range(20))
async def test_however_it_is_cancelled_nothing_is_lost(seed: int) -> None:
    rng, budget, most = random.Random(seed), MemoryBudget(100), 0

    async def use() -> None:
        nonlocal most
        async with budget.hold(rng.randint(1, 100), "x"):
            most = max(most, budget.held_bytes)
            for _ in range(rng.randint(0, 3)):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(use()) for _ in range(60)]
    for _ in range(40):
        await asyncio.sleep(0)
        rng.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.held_bytes == 0
    assert 0 < most <= 100
    async with asyncio.timeout(5), budget.hold(100, "x"):
        pass
