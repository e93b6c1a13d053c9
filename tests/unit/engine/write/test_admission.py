"""Backpressure is first come, first served, and cancellation neither leaks room nor loses a wake-up."""

from __future__ import annotations

import asyncio
import random

import pytest

from slate_async.engine.write.admission import Admission
from slate_async.errors import ClosedError


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiters_are_let_in_in_order() -> None:
    gate = Admission(100)
    assert gate.try_admit(60)
    order: list[int] = []

    async def put(number: int, nbytes: int) -> None:
        await gate.admit(nbytes)
        order.append(number)

    tasks = [asyncio.create_task(put(0, 60)), asyncio.create_task(put(1, 10))]
    await settle()
    assert gate.waiting == 2  # the small one could go, but it is not its turn
    assert not gate.try_admit(1)
    gate.release(60)
    await asyncio.gather(*tasks)
    assert order == [0, 1]
    assert gate.used == 70


async def test_a_request_larger_than_the_limit_goes_alone() -> None:
    gate = Admission(10)
    assert gate.try_admit(1)
    task = asyncio.create_task(gate.admit(1000))
    await settle()
    assert not task.done()
    gate.release(1)
    await task
    assert gate.used == 1000
    assert not gate.try_admit(1)


async def test_cancelled_waiters_leave_no_trace() -> None:
    gate = Admission(10)
    gate.force(10)
    tasks = [asyncio.create_task(gate.admit(4)) for _ in range(4)]
    await settle()
    tasks[0].cancel()
    tasks[2].cancel()
    await settle()
    assert gate.waiting == 2
    gate.release(10)
    await asyncio.gather(tasks[1], tasks[3])
    assert (gate.used, gate.waiting) == (8, 0)


async def test_cancelled_in_the_turn_it_was_let_in() -> None:
    gate = Admission(10)
    gate.force(10)
    first, second = asyncio.create_task(gate.admit(10)), asyncio.create_task(gate.admit(10))
    await settle()
    gate.release(10)  # lets the first in ...
    first.cancel()  # ... which never gets to know
    await second
    assert (gate.used, gate.waiting) == (10, 0)


async def test_cancelling_a_large_head_of_line_lets_small_ones_in() -> None:
    gate = Admission(10)
    gate.force(5)
    large, small = asyncio.create_task(gate.admit(9)), asyncio.create_task(gate.admit(2))
    await settle()
    assert gate.waiting == 2
    large.cancel()
    await small
    assert gate.used == 7


async def test_failure_reaches_everyone_with_an_error_of_its_own() -> None:
    gate = Admission(1)
    gate.force(1)
    tasks = [asyncio.create_task(gate.admit(1)) for _ in range(3)]
    await settle()
    gate.fail(lambda: ClosedError("gone"))
    failures = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(failure, ClosedError) for failure in failures)
    assert len({id(failure) for failure in failures}) == 3
    with pytest.raises(ClosedError):
        await gate.admit(1)


@pytest.mark.parametrize("seed", range(20))
async def test_random_cancellation_keeps_the_books(seed: int) -> None:
    rng = random.Random(seed)
    gate = Admission(50)
    held: list[int] = []
    done = 0

    async def put(nbytes: int) -> None:
        nonlocal done
        await gate.admit(nbytes)
        held.append(nbytes)
        done += 1

    tasks = [asyncio.create_task(put(rng.randint(1, 60))) for _ in range(80)]
    while any(not task.done() for task in tasks):
        await asyncio.sleep(0)
        if rng.random() < 0.3:
            rng.choice(tasks).cancel()
        if held and rng.random() < 0.7:
            gate.release(held.pop(rng.randrange(len(held))))
        assert gate.used >= sum(held)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert gate.used == sum(held)
    assert gate.waiting == 0
    assert done == sum(not task.cancelled() for task in tasks)
