"""Bounded concurrency that leaves nothing running behind a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import anyio

A = TypeVar("A")
B = TypeVar("B")
KEPT = 8
"""So many results, times what may be begun at a time, wait for one that comes before them; each costs a task."""


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``, however often the caller is cancelled meanwhile; such a cancellation is raised afterwards.

    For giving back what was taken. A cancel scope cancels each unshielded wait anew, in every turn of the loop, so the
    wait after the first cancellation is shielded from scopes. ``work`` must be short."""
    task = asyncio.create_task(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=interrupted is not None):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            interrupted = error
    task.result()
    if interrupted is not None:
        raise interrupted


async def run_all(closers: Sequence[Callable[[], Awaitable[None]]]) -> None:
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


async def gather_pair(one: Coroutine[Any, Any, A], other: Coroutine[Any, Any, B]) -> tuple[A, B]:
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

    staggered: the first ones begin one in each turn of the loop, for callers that have time and hold nobody else up
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
    """``await function(item)`` for each of ``items``, in order, begun ahead of the caller that takes the results: up to
    ``limit`` at a time, and no further one once those that are not taken yet weigh ``budget``, or are `KEPT` times
    ``limit``. So one that is slow holds up those that follow it no sooner than that.

    items: with the weight of each, asked for ahead by as many. What asking for them raises is raised at once, what
    ``function`` raises when its turn comes; the rest is cancelled then, as when it is closed early"""
    window = _Window(function, limit, budget)
    try:
        async with aclosing(items):
            more = True
            while True:
                while more and window.wants_items:
                    try:
                        item, nbytes = await anext(items)
                    except StopAsyncIteration:
                        more = False
                    else:
                        window.add(item, nbytes)
                        del item  # the next one may wait for its memory
                if (result := window.oldest) is None:
                    return
                yield await result
                window.taken()
    finally:
        await window.close()


class _Window(Generic[A, B]):
    """What `ahead` has listed and begun.

    A worker that ends a piece of work begins the next one in the same step. So what is done with the results takes its
    time while requests are under way, and not between one lot of them and the next."""

    def __init__(self, function: Callable[[A], Coroutine[Any, Any, B]], limit: int, budget: int) -> None:
        self._function = function
        self._limit = limit
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._listed: deque[tuple[A, int]] = deque()
        self._begun: deque[tuple[asyncio.Future[B], int]] = deque()
        self._weight = self._running = 0
        self._failed = False
        self._workers: dict[asyncio.Task[None], None] = {}

    @property
    def wants_items(self) -> bool:
        """Whether the work could run out of items before somebody asks for more."""
        return len(self._listed) < KEPT * self._limit

    def add(self, item: A, nbytes: int) -> None:
        """One more item."""
        self._listed.append((item, nbytes))
        self._employ()

    def _employ(self) -> None:
        while self._running < self._limit and (begun := self._begin()) is not None:
            self._running += 1
            worker = asyncio.create_task(self._work(*begun))
            self._workers[worker] = None
            worker.add_done_callback(self._workers.pop)

    def _begin(self) -> tuple[A, asyncio.Future[B]] | None:
        """The next item and where its result is awaited, if there is one and it may be begun."""
        begun = self._begun
        if not self._listed or self._failed or self._weight >= self._budget or len(begun) >= KEPT * self._limit:
            return None
        item, nbytes = self._listed.popleft()
        result: asyncio.Future[B] = self._loop.create_future()
        begun.append((result, nbytes))
        self._weight += nbytes
        return item, result

    async def _work(self, item: A, result: asyncio.Future[B]) -> None:
        begun: tuple[A, asyncio.Future[B]] | None = (item, result)
        while begun is not None:
            item, result = begun
            try:
                found = await self._function(item)
            except asyncio.CancelledError:
                result.cancel()
                raise
            except BaseException as error:  # noqa: BLE001 - raised where the result is taken
                self._failed = True
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():  # by a caller that was cancelled while it waited, and closes soon
                    result.set_result(found)
            begun = self._begin()
        self._running -= 1

    @property
    def oldest(self) -> asyncio.Future[B] | None:
        """The result that is taken next; ``None`` when there is no item."""
        return self._begun[0][0] if self._begun else None

    def taken(self) -> None:
        """The caller that took the oldest one is done with it."""
        self._weight -= self._begun.popleft()[1]
        self._employ()

    async def close(self) -> None:
        """Cancel what is under way."""
        self._failed = True
        workers = [worker for worker in self._workers if not worker.done()]
        for worker in workers:
            worker.cancel()
        if workers:  # else no turn of the loop is lost: a takeover races the log's writer
            await asyncio.gather(*workers, return_exceptions=True)
        for result, _ in self._begun:
            if not result.cancel() and not result.cancelled():  # of a worker that never started; or a failure
                result.exception()  # which nobody takes any more
