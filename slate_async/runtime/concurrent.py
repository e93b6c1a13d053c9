"""Bounded concurrency that leaves nothing running behind a failure."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")
KEPT = 8
"""So many results, times what may be begun at a time, wait for one that comes before them; each costs a task."""
LISTED = 1_000
"""So many items are known before they are begun: stores list as many at once, which takes about as long as a read."""


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
    ``limit`` at a time, and no further one once those that are not taken yet weigh ``budget``, or are `KEPT` times
    ``limit``. So one that is slow holds up those that follow it no sooner than that.

    items: with the weight of each; they are asked for ahead, too. What asking for them raises is raised at once, what
    ``function`` raises when its turn comes; the rest is cancelled then, as when it is closed early"""
    window = _Window(function, items, limit, budget)
    try:
        while (result := await window.next()) is not None:
            yield await result
            window.taken()
    finally:
        await window.close()


class _Window(Generic[A, B]):
    """What `ahead` has listed and begun.

    Whoever ends a piece of work begins the next one in the same step. So what is done with the results takes its time
    while requests are under way, and not between one lot of them and the next."""

    def __init__(
        self,
        function: Callable[[A], Coroutine[Any, Any, B]],
        items: AsyncGenerator[tuple[A, int]],
        limit: int,
        budget: int,
    ) -> None:
        self._function = function
        self._limit = limit
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._listed: deque[tuple[A, int]] = deque()
        self._begun: deque[tuple[asyncio.Future[B], int]] = deque()
        self._weight = 0
        self._failed = False
        self._to_list = asyncio.Event()
        self._to_take = asyncio.Event()
        self._workers: dict[asyncio.Task[None], None] = {}
        self._lister = asyncio.create_task(self._list(items))
        self._lister.add_done_callback(lambda lister: self._to_take.set())

    async def _list(self, items: AsyncGenerator[tuple[A, int]]) -> None:
        async with aclosing(items):
            async for one in items:
                self._listed.append(one)
                self._employ()
                while len(self._listed) >= LISTED:
                    self._to_list.clear()
                    await self._to_list.wait()

    def _employ(self) -> None:
        while len(self._workers) < self._limit and (begun := self._begin()) is not None:
            worker = asyncio.create_task(self._work(*begun))
            worker.add_done_callback(self._left)
            self._workers[worker] = None

    def _left(self, worker: asyncio.Task[None]) -> None:
        del self._workers[worker]
        self._employ()

    def _begin(self) -> tuple[A, asyncio.Future[B]] | None:
        """The next item and where its result is awaited, if there is one and it may be begun."""
        begun = self._begun
        if not self._listed or self._failed or self._weight >= self._budget or len(begun) >= KEPT * self._limit:
            return None
        item, nbytes = self._listed.popleft()
        result: asyncio.Future[B] = self._loop.create_future()
        begun.append((result, nbytes))
        self._weight += nbytes
        self._to_take.set()
        if len(self._listed) < LISTED:
            self._to_list.set()
        return item, result

    async def _work(self, item: A, result: asyncio.Future[B]) -> None:
        while True:
            try:
                found = await self._function(item)
            except asyncio.CancelledError:
                result.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - raised where the result is taken
                self._failed = True
                result.set_exception(error)
                return
            result.set_result(found)
            if (begun := self._begin()) is None:
                return
            item, result = begun

    async def next(self) -> asyncio.Future[B] | None:
        """The oldest one that is not taken; ``None`` when there is no more. Raises what listing raised."""
        while True:
            if self._lister.done():
                self._lister.result()
            if self._begun:
                return self._begun[0][0]
            if self._lister.done() and not self._listed:
                return None
            self._to_take.clear()
            await self._to_take.wait()

    def taken(self) -> None:
        """Whoever took the oldest one is done with it."""
        self._weight -= self._begun.popleft()[1]
        self._employ()

    async def close(self) -> None:
        """Cancel what is under way."""
        self._failed = True
        tasks = [self._lister, *self._workers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for result, _ in self._begun:
            result.cancel()  # of a worker that never started
        await asyncio.gather(*(result for result, _ in self._begun), return_exceptions=True)
