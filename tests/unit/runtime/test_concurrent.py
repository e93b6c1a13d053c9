"""What is closed together is closed whole, whatever fails; work ahead is in order, and bounded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest

from slate_async.runtime.concurrent import KEPT, ahead, run_all, run_to_completion

MANY = 10_000
"""More than calls can nest."""


async def test_each_of_many_is_called_the_last_one_first() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)

    await run_all([partial(close, number) for number in range(MANY)])
    assert called == list(range(MANY))[::-1]


async def test_work_runs_to_its_end_in_a_cancelled_scope_without_waking_the_loop_in_between() -> None:
    done = False
    waits: list[None] = []
    wait = asyncio.wait

    async def work() -> None:
        nonlocal done
        for _ in range(50):
            await asyncio.sleep(0)
        done = True

    with pytest.MonkeyPatch.context() as patched, anyio.CancelScope() as scope:
        patched.setattr(asyncio, "wait", lambda tasks: waits.append(None) or wait(tasks))
        scope.cancel()
        await run_to_completion(work())
    assert done
    assert scope.cancelled_caught
    assert len(waits) == 2, "one wait that is cancelled, and one that is not"


async def test_a_failure_stops_no_other_and_is_raised() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)
        if number in (1, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1") as caught:
        await run_all([partial(close, number) for number in range(5)])
    assert called == [4, 3, 2, 1, 0]
    assert str(caught.value.__context__) == "3"


async def numbered(*weights: int) -> AsyncGenerator[tuple[int, int]]:
    for number, weight in enumerate(weights):
        await asyncio.sleep(0)
        yield number, weight


@dataclass
class Work:
    """Work that ends when the test lets it."""

    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    gates: dict[int, asyncio.Event] = field(default_factory=dict)

    async def __call__(self, number: int) -> int:
        self.begun.append(number)
        try:
            await self.gates.setdefault(number, asyncio.Event()).wait()
        finally:
            self.ended.append(number)
        return number

    def let(self, *numbers: int) -> None:
        for number in numbers:
            self.gates.setdefault(number, asyncio.Event()).set()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_work_ahead_comes_in_order_and_is_begun_no_further_than_allowed() -> None:
    work = Work()
    results = ahead(work, numbered(*[1] * 9), limit=3, budget=100)
    first = asyncio.ensure_future(anext(results))
    await settle()
    assert (work.begun, first.done()) == ([0, 1, 2], False)
    work.let(*range(9))
    assert await first == 0
    assert [result async for result in results] == list(range(1, 9))


async def test_work_ahead_stays_within_its_budget_but_for_one() -> None:
    work = Work()
    results = ahead(work, numbered(4, 5, 200, 1, 1), limit=64, budget=10)
    first = asyncio.ensure_future(anext(results))
    await settle()
    assert work.begun == [0, 1, 2]
    work.let(0, 1, 2)
    assert await first == 0
    assert [await anext(results), await anext(results)] == [1, 2]
    assert work.begun == [0, 1, 2]  # the large one is taken, but its taker is not done with it
    work.let(3, 4)
    assert [result async for result in results] == [3, 4]


async def test_a_failure_ahead_is_raised_in_its_turn_and_ends_the_rest() -> None:
    work = Work()

    async def failing(number: int) -> int:
        if await work(number) == 1:
            raise ValueError("one")
        return number

    results = ahead(failing, numbered(1, 1, 1, 1), limit=3, budget=100)
    first = asyncio.ensure_future(anext(results))
    await settle()
    work.let(1)
    await settle()
    work.let(0)
    assert await first == 0
    with pytest.raises(ValueError, match="one"):
        await anext(results)
    assert (work.begun, work.ended) == ([0, 1, 2], [1, 0, 2])


async def test_work_ahead_that_nobody_takes_any_more_is_cancelled() -> None:
    work = Work()
    results = ahead(work, numbered(1, 1, 1), limit=2, budget=100)
    waiting = asyncio.ensure_future(anext(results))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(work.ended) == [0, 1]


async def test_slow_work_does_not_hold_up_what_follows_until_too_much_waits_for_it() -> None:
    work = Work()
    work.let(*range(1, MANY))
    results = ahead(work, numbered(*[1] * 100), limit=3, budget=1_000)
    first = asyncio.ensure_future(anext(results))
    for _ in range(10):
        await settle()
    assert (len(work.begun), first.done()) == (3 * KEPT, False)
    work.let(0)
    assert await first == 0
    assert [result async for result in results] == list(range(1, 100))


async def test_items_are_asked_for_while_work_is_under_way_but_not_all_of_them() -> None:
    asked: list[int] = []

    async def items() -> AsyncGenerator[tuple[int, int]]:
        for number in range(100):
            asked.append(number)
            yield number, 1

    work = Work()
    results = ahead(work, items(), limit=2, budget=100)
    first = asyncio.ensure_future(anext(results))
    await settle()
    assert (len(work.begun), len(asked)) == (2, 2 * KEPT + 2)
    work.let(*range(100))
    assert [await first, *[result async for result in results]] == list(range(100))


async def test_what_asking_for_items_raises_ends_the_work() -> None:
    async def items() -> AsyncGenerator[tuple[int, int]]:
        yield 0, 1
        raise ValueError("page")

    work = Work()
    results = ahead(work, items(), limit=2, budget=100)
    with pytest.raises(ValueError, match="page"):
        await asyncio.wait_for(anext(results), 20)
    assert work.begun == work.ended


async def test_work_that_was_never_begun_is_not_waited_for() -> None:
    """Closed in the very step in which the worker was made."""
    work = Work()
    results = ahead(work, numbered(1, 1, 1), limit=1, budget=100)
    first = asyncio.ensure_future(anext(results))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(first, 20)


class Ended(BaseException):
    """No `Exception`, as an interrupt is none."""


async def test_whatever_ends_work_ahead_is_raised_and_not_waited_for() -> None:
    async def ending(number: int) -> int:
        raise Ended

    with pytest.raises(Ended):
        await asyncio.wait_for(anext(ahead(ending, numbered(1, 1), limit=1, budget=100)), 20)


@pytest.mark.parametrize("fails", [False, True])
async def test_work_that_ends_in_the_step_in_which_its_caller_is_cancelled_is_nobodys_failure(fails: bool) -> None:
    """The result that it waits for is cancelled with it, and the work comes to its end before the caller runs."""
    gate, unseen = asyncio.Event(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(str(context)))

    async def work(number: int) -> int:
        await gate.wait()
        if fails:
            raise ValueError(number)
        return number

    async def items() -> AsyncGenerator[tuple[int, int]]:
        yield 1, 1

    async def take() -> list[int]:
        return [number async for number in ahead(work, items(), limit=1, budget=10)]

    taking = asyncio.create_task(take())
    await asyncio.sleep(0.01)
    gate.set()  # the work goes on in the next step, before the caller learns that it is cancelled
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    del taking
    await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []
