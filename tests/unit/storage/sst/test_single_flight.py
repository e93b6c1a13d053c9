"""`slate_async.storage.sst.single_flight`."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.errors import UnavailableError
from slate_async.storage.sst.single_flight import SingleFlight


class Fetch:
    """A fetch that waits until let go, and counts."""

    def __init__(self) -> None:
        self.started = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> int:
        self.started += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return self.started


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_fetch_serves_all_waiting_callers() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    waiting = [asyncio.create_task(flights.run("a", fetch)) for _ in range(5)]
    await turns()
    fetch.go.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await flights.run("a", fetch) == 2


async def test_names_are_apart() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    fetch.go.set()
    assert await asyncio.gather(flights.run("a", fetch), flights.run("b", fetch)) == [1, 2]


async def test_a_failure_reaches_all_and_is_not_remembered() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    fetch.failure = UnavailableError("down")
    waiting = [asyncio.create_task(flights.run("a", fetch)) for _ in range(3)]
    await turns()
    fetch.go.set()
    assert await asyncio.gather(*waiting, return_exceptions=True) == [fetch.failure] * 3
    fetch.failure = None
    assert await flights.run("a", fetch) == 2


async def test_a_cancelled_waiter_leaves_the_others_their_fetch() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    first, second = (asyncio.create_task(flights.run("a", fetch)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert first.cancelled()
    fetch.go.set()
    assert await second == 1
    assert (fetch.started, fetch.cancelled) == (1, 0)


async def test_the_last_waiter_to_leave_ends_the_fetch() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    waiting = [asyncio.create_task(flights.run("a", fetch)) for _ in range(2)]
    await turns()
    for task in waiting:
        task.cancel()
    fetch.go.set()
    await turns()
    assert fetch.cancelled == 1
    assert await flights.run("a", fetch) == 2


async def test_a_fetch_cancelled_from_outside_is_an_error_not_a_cancellation() -> None:
    flights = SingleFlight()
    fetch = Fetch()
    waiting = asyncio.create_task(flights.run("a", fetch))
    await turns()
    (inner,) = [task for task in asyncio.all_tasks() if task.get_name() == "sst-fetch-a"]
    inner.cancel()
    with pytest.raises(UnavailableError):
        await waiting
