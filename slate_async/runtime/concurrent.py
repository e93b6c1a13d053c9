"""Bounded concurrency that leaves nothing running behind a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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


async def map_bounded(function: Callable[[A], Awaitable[B]], items: Sequence[A], limit: int) -> list[B]:
    """``[await function(item) for item in items]``, up to ``limit`` at a time, results in order.

    The first failure cancels the rest and is raised as it is (not in a group)."""
    if len(items) == 1:
        return [await function(items[0])]
    results: dict[int, B] = {}
    queue = iter(enumerate(items))

    async def work() -> None:
        for index, item in queue:
            results[index] = await function(item)

    tasks = [asyncio.create_task(work()) for _ in range(min(limit, len(items)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[index] for index in range(len(items))]
