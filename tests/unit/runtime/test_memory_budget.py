"""`MemoryBudget`: in turn, never more than there is, nothing lost by cancelling."""

from __future__ import annotations

import asyncio
import random

import pytest

from slate_async.runtime.memory_budget import MemoryBudget


async def test_what_is_too_much_by_itself_has_all_there_is_and_nothing_beside() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(1):
        large = budget.hold(11)
        waiting = asyncio.create_task(large.__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
    assert budget.held_bytes == 10
    small = budget.hold(1)
    beside = asyncio.create_task(small.__aenter__())
    await asyncio.sleep(0)
    assert not beside.done()
    await large.__aexit__(None, None, None)
    await asyncio.wait_for(beside, 5)
    assert budget.held_bytes == 1
    await small.__aexit__(None, None, None)


async def test_a_large_one_is_not_overtaken() -> None:
    budget, order = MemoryBudget(10), list[int]()

    async def use(number: int, nbytes: int) -> None:
        async with budget.hold(nbytes):
            order.append(number)
            await asyncio.sleep(0)

    async with budget.hold(5):
        tasks = [asyncio.create_task(use(number, nbytes)) for number, nbytes in enumerate((10, 1, 1))]
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []  # the small ones would fit
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]


async def test_widening_lets_waiting_tasks_in() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(8):
        waiting = asyncio.create_task(budget.hold(8).__aenter__())
        await asyncio.sleep(0)
        budget.widen(5)
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.widen(16)
        await asyncio.wait_for(waiting, 5)


async def test_one_cancelled_in_the_tick_that_makes_room_is_cancelled_and_the_next_gets_it() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(10):
        waiting = [asyncio.create_task(budget.hold(8).__aenter__()) for _ in range(2)]
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
        async with budget.hold(rng.randint(1, 100)):
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
    async with asyncio.timeout(5), budget.hold(100):
        pass


class Lendable:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def take_back(self) -> None:
        self.nbytes = 0


async def test_what_is_lent_gives_way_the_oldest_first_and_only_as_much_as_need_be() -> None:
    budget = MemoryBudget(10)
    lent = [Lendable(3), Lendable(3), Lendable(3)]
    for loan in lent:
        budget.lend(loan)
    async with budget.hold(3):
        assert [loan.nbytes for loan in lent] == [0, 3, 3]
        late = Lendable(2)
        budget.lend(late)
        assert late.nbytes == 0  # there is no room
        lent[1].nbytes = 0  # it was used
        budget.lend(another := Lendable(4))
        assert (another.nbytes, budget.lent_bytes) == (4, 7)
    async with budget.hold(10):
        assert budget.lent_bytes == 0


async def test_nothing_is_lent_while_somebody_waits_and_nobody_waits_for_what_is_lent() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(8):
        budget.lend(lent := Lendable(2))
        waiting = asyncio.create_task(budget.hold(8).__aenter__())
        await asyncio.sleep(0)
        budget.lend(late := Lendable(0))
        assert (lent.nbytes, late.nbytes) == (2, 0)  # it waits for what is held
    async with asyncio.timeout(5):
        await waiting
    assert (budget.held_bytes, lent.nbytes) == (8, 2)


@pytest.mark.parametrize("seed", range(20))
async def test_held_and_lent_together_are_never_more_than_there_is(seed: int) -> None:
    rng, budget, kept = random.Random(seed), MemoryBudget(100), list[Lendable]()

    async def work() -> None:
        await asyncio.sleep(rng.random() / 1000)
        async with budget.hold(rng.randint(1, 100)):
            assert budget.held_bytes + budget.lent_bytes <= 100
            await asyncio.sleep(rng.random() / 1000)
        kept.append(Lendable(rng.randint(1, 60)))
        budget.lend(kept[-1])
        assert budget.held_bytes + budget.lent_bytes <= 100
        if rng.random() < 0.5:
            kept.pop(rng.randrange(len(kept)))

    async with asyncio.timeout(20):
        await asyncio.gather(*(work() for _ in range(50)))
    assert not budget.held_bytes
