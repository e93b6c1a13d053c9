"""`runtime.yield_budget`: nobody waits for more than a bounded number of others' steps; nothing is timed."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.runtime.yield_budget import BUDGET_SECONDS, CALLS_AMONG_OTHERS, CALLS_PER_LOOK, MOST_LOOKS, YieldBudget


class Clock:
    """It goes on by ``step`` whenever an operation is done."""

    def __init__(self, step: float) -> None:
        self.seconds = 0.0
        self.step = step

    def now_ms(self) -> int:
        raise NotImplementedError

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


async def overtaken(tasks: int, operations: int, step: float, look: str) -> int:
    """By how many operations of one other task, at most, a task that waited for its turn was overtaken."""
    clock = Clock(step)
    budget = YieldBudget(clock)
    done = [0] * tasks
    most = 0

    async def work(me: int) -> None:
        nonlocal most
        due = getattr(budget, look)
        for _ in range(operations):
            if due():
                before = [*done]
                await budget.yield_now()
                most = max(most, *(now - then for now, then in zip(done, before, strict=True)))
            clock.seconds += clock.step
            done[me] += 1

    await asyncio.gather(*(work(number) for number in range(tasks)))
    assert done == [operations] * tasks
    return most


@pytest.mark.parametrize(("look", "each"), [("spent", CALLS_PER_LOOK), ("exhausted", 1)])
async def test_a_waiting_task_is_overtaken_a_bounded_number_of_times_whatever_the_clock_says(
    look: str, each: int
) -> None:
    """Here it stands still once somebody waits, so every operation seems to take no time."""
    clock = Clock(0)
    budget = YieldBudget(clock)
    clock.seconds += 2 * BUDGET_SECONDS
    assert budget.exhausted()
    waiter = asyncio.create_task(budget.yield_now())
    await asyncio.sleep(0)
    budget._since = clock.seconds
    count = 0
    while not getattr(budget, look)():
        count += 1
        assert count < 10 * MOST_LOOKS * each
    assert count <= MOST_LOOKS * each
    await waiter


@pytest.mark.parametrize("tasks", [2, 8, 64])
async def test_all_waiting_tasks_share_one_budget(tasks: int) -> None:
    steps_in_budget = 64
    step = BUDGET_SECONDS / steps_in_budget
    share = steps_in_budget // tasks
    assert await overtaken(tasks, 400, step, "exhausted") <= max(1, share) + 2
    assert await overtaken(tasks, 400, step, "spent") <= share + 2 * CALLS_AMONG_OTHERS


async def test_small_operations_are_counted_in_fours_while_others_wait() -> None:
    clock = Clock(0)
    budget = YieldBudget(clock)
    clock.seconds += 2 * BUDGET_SECONDS
    assert [budget.spent() for _ in range(CALLS_PER_LOOK)].index(True) == CALLS_PER_LOOK - 1
    waiter = asyncio.create_task(budget.yield_now())
    await asyncio.sleep(0)
    budget._since -= 2 * BUDGET_SECONDS
    assert [budget.spent() for _ in range(CALLS_PER_LOOK)].index(True) == CALLS_AMONG_OTHERS - 1
    await waiter


async def test_long_steps_are_taken_in_turn() -> None:
    """Each is longer than the budget, so nobody is overtaken twice by the same task."""
    assert await overtaken(16, 50, 2 * BUDGET_SECONDS, "exhausted") <= 2


async def test_a_task_alone_keeps_its_budget() -> None:
    clock = Clock(BUDGET_SECONDS / 1000)
    budget = YieldBudget(clock)
    for _ in range(900):
        clock.seconds += clock.step
        assert not budget.exhausted()
    clock.seconds += BUDGET_SECONDS
    assert budget.exhausted()
    await budget.yield_now()
    assert not budget.exhausted()
