"""An iterator of one thread, taken by the loop of another."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Iterator

import pytest

import slate_async as slate
from slate_async.spark.feed import AHEAD, feed


async def total(items: AsyncIterator[int], _: slate.Environment) -> int:
    found = 0
    async for item in items:
        found += item
    return found


def test_all_items_come_in_order() -> None:
    assert feed([], total) == 0
    assert feed(range(100), total) == 4950


def test_work_that_fails_ends_the_drawing() -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1_000):
            drawn.append(number)
            yield number

    async def refuse(items: AsyncIterator[int], _: slate.Environment) -> None:
        await anext(items)
        raise slate.InvalidError("no more")

    with pytest.raises(slate.InvalidError, match="no more") as refused:
        feed(numbers(), refuse)
    lines = "".join(traceback.format_exception(refused.value))
    assert "in refuse" not in lines, "Spark shows each frame, more than once"
    assert lines.count("Traceback") == 1
    assert len(drawn) <= AHEAD + 3


def test_drawing_that_fails_cancels_the_work() -> None:
    ended: list[bool] = []

    def broken() -> Iterator[int]:
        yield 1
        raise RuntimeError("the source broke")

    async def work(items: AsyncIterator[int], _: slate.Environment) -> None:
        try:
            async for _item in items:
                pass
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="the source broke"):
        feed(broken(), work)
    feed([], total)  # a turn of the loop later
    assert ended == [True]
