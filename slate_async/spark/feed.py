"""Spark's iterator, which one thread draws from, as an asynchronous one for the engine on its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import slate_async as slate
from slate_async.spark.worker import this_worker

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Items that wait for the loop, at most: it works on one while this thread gets the next."""
_END: Any = object()


def feed(items: Iterable[T], work: Callable[[AsyncIterator[T], slate.Environment], Coroutine[Any, Any, R]]) -> R:
    """What ``work`` returns, run on this worker's loop with ``items``, which the calling thread draws meanwhile.

    Raises what either raises; an error of ``work`` ends the drawing, and an error of drawing cancels ``work``."""
    worker = this_worker()
    queue: asyncio.Queue[T] = asyncio.Queue(AHEAD)
    working = worker.start(partial(work, _taken(queue)))
    try:
        for item in chain(items, [_END]):
            handed = worker.start(partial(_put, queue, item))
            both: list[Future[Any]] = [handed, working]
            wait(both, return_when=FIRST_COMPLETED)
            if working.done():
                handed.cancel()
                break
        return working.result()
    except slate.InvalidError as error:
        working.cancel()
        raise error.with_traceback(None) from error.__cause__  # Spark repeats it: forty lines for one wrong row
    except BaseException:
        working.cancel()
        raise


async def _put(queue: asyncio.Queue[T], item: T, _: slate.Environment) -> None:
    await queue.put(item)


async def _taken(queue: asyncio.Queue[T]) -> AsyncIterator[T]:
    while (item := await queue.get()) is not _END:
        yield item
