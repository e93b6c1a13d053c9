"""Bounded concurrency that leaves nothing running behind a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``, however often the caller is cancelled meanwhile; such a cancellation is raised afterwards.

    For giving back what was taken: a cancel scope cancels each wait of a cleanup anew. ``work`` must be short."""
    task = asyncio.create_task(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            interrupted = error
    task.result()
    if interrupted is not None:
        raise interrupted


async def each_of(closers: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Call all of them, the last one first, whatever another raises; the last failure is raised at the end, with those
    before it as its context."""
    failure: BaseException | None = None
    for closer in reversed(closers):
        try:
            await closer()
        except BaseException as error:  # noqa: BLE001 - raised at the end
            error.__context__ = error.__context__ or failure
            failure = error
    if failure is not None:
        raise failure


async def together(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Both results, awaited at once. The first failure cancels the other one and is raised as it is."""
    tasks = asyncio.create_task(one), asyncio.create_task(other)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def map_bounded(
    function: Callable[[A], Awaitable[B]], items: Sequence[A], limit: int, *, staggered: bool = False
) -> list[B]:
    """``[await function(item) for item in items]``, up to ``limit`` at a time, results in order.

    staggered: the first ones begin one in each turn of the loop, for whoever has time and holds nobody else up
    The first failure cancels the rest and is raised as it is (not in a group)."""
    if len(items) == 1:
        return [await function(items[0])]
    results: dict[int, B] = {}
    queue = iter(enumerate(items))

    async def work() -> None:
        for index, item in queue:
            results[index] = await function(item)

    tasks: list[asyncio.Task[None]] = []
    try:
        for _ in range(min(limit, len(items))):
            tasks.append(asyncio.create_task(work()))
            if staggered:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[index] for index in range(len(items))]


async def ahead(
    function: Callable[[A], Coroutine[Any, Any, B]],
    items: AsyncGenerator[tuple[A, int]],
    *,
    limit: int,
    budget: int,
) -> AsyncGenerator[B]:
    """``await function(item)`` for each of ``items``, in order, begun ahead of whoever takes the results: up to
    ``limit`` at a time, and no further one once those that are not taken yet weigh ``budget``.

    items: with the weight of each. What fails is raised when its turn comes; the rest is cancelled then, as when it is
    closed early"""
    begun: deque[tuple[asyncio.Task[B], int]] = deque()
    weight = 0
    try:
        async with aclosing(items):
            more = True
            while more or begun:
                while more and len(begun) < limit and weight < budget:
                    try:
                        item, nbytes = await anext(items)
                    except StopAsyncIteration:
                        more = False
                    else:
                        begun.append((asyncio.create_task(function(item)), nbytes))
                        weight += nbytes
                if begun:
                    yield await begun[0][0]
                    weight -= begun.popleft()[1]
    finally:
        for task, _ in begun:
            task.cancel()
        await asyncio.gather(*(task for task, _ in begun), return_exceptions=True)
