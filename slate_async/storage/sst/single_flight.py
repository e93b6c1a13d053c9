"""One task per thing being fetched, however many callers wait for it.

Invariant: the task lives while any caller waits. A cancelled waiter leaves; the last one to leave cancels the task. A
failure reaches all waiters and is not remembered: the next caller tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from slate_async.errors import UnavailableError

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("task", "waiters")

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiters = 0


class SingleFlight:
    """Runs at most one fetch per name at a time. Belongs to one event loop. What a name stands for has one type."""

    __slots__ = ("_flights",)

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[Any]] = {}

    async def run(self, name: Hashable, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the fetch called ``name`` that is under way, or of ``fetch()``, started now."""
        flight = self._flights.get(name)
        if flight is None:
            flight = self._start(name, fetch)
        flight.waiters += 1
        try:
            await asyncio.wait([flight.task])
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                flight.task.cancel()
                self._forget(name, flight)
        if flight.task.cancelled():
            raise UnavailableError("the fetch this read waited for was cancelled")
        result: T = flight.task.result()
        return result

    def _start(self, name: Hashable, fetch: Callable[[], Coroutine[Any, Any, T]]) -> _Flight[T]:
        flight = _Flight(asyncio.get_running_loop().create_task(fetch(), name=f"sst-fetch-{name}"))
        self._flights[name] = flight

        def ended(task: asyncio.Task[T]) -> None:
            self._forget(name, flight)
            if not task.cancelled():
                task.exception()  # seen: every waiter raises it itself, and there may be none left

        flight.task.add_done_callback(ended)
        return flight

    def _forget(self, name: Hashable, flight: _Flight[Any]) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]
