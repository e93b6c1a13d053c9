"""What is closed together is closed whole, whatever fails; work ahead is in order, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

import pytest

from slate_async.runtime.concurrent import ahead, each_of

MANY = 10_000
"""More than calls can nest."""


async def test_each_of_many_is_called_the_last_one_first() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)

    await each_of([partial(close, number) for number in range(MANY)])
    assert called == list(range(MANY))[::-1]


async def test_a_failure_stops_no_other_and_is_raised() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)
        if number in (1, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1") as caught:
        await each_of([partial(close, number) for number in range(5)])
    assert called == [4, 3, 2, 1, 0]
    assert str(caught.value.__context__) == "3"


async def numbered(*weights: int) -> AsyncGenerator[tuple[int, int]]:
    for number, weight in enumerate(weights):
        await asyncio.sleep(0)
        yield number, weight


@dataclass
class Work:
    """Work that ends when told."""

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
    work.let(1, 2)
    await settle()
    assert (work.begun, first.done()) == ([0, 1, 2], False)
    work.let(*range(9))
    assert await first == 0
    assert [one async for one in results] == list(range(1, 9))


async def test_work_ahead_stays_within_its_budget_but_for_one() -> None:
    work = Work()
    results = ahead(work, numbered(4, 5, 200, 1, 1), limit=64, budget=10)
    first = asyncio.ensure_future(anext(results))
    await settle()
    assert work.begun == [0, 1, 2]
    work.let(0, 1, 2)
    assert await first == 0
    assert [await anext(results), await anext(results)] == [1, 2]
    assert work.begun == [0, 1, 2]  # the large one is taken, but whoever took it is not done with it
    work.let(3, 4)
    assert [one async for one in results] == [3, 4]


async def test_a_failure_ahead_is_raised_in_its_turn_and_ends_the_rest() -> None:
    work = Work()

    async def failing(number: int) -> int:
        if number == 1:
            raise ValueError("one")
        return await work(number)

    results = ahead(failing, numbered(1, 1, 1, 1), limit=3, budget=100)
    first = asyncio.ensure_future(anext(results))
    await settle()
    work.let(0)
    assert await first == 0
    with pytest.raises(ValueError, match="one"):
        await anext(results)
    assert (work.begun, work.ended) == ([0, 2], [0, 2])


async def test_work_ahead_that_nobody_takes_any_more_is_cancelled() -> None:
    work = Work()
    results = ahead(work, numbered(1, 1, 1), limit=2, budget=100)
    waiting = asyncio.ensure_future(anext(results))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(work.ended) == [0, 1]
