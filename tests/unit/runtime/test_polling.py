"""The poll timer: which polls it calls, which it drops, and what its end means."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from slate_async.errors import ClosedError
from slate_async.runtime.polling import POLLS_OF_A_STORE, PollScheduler
from tests.engine import runtime, until


class Polled:
    """What is polled."""

    def __init__(self) -> None:
        self.pokes = 0
        self.cause: BaseException | None = None

    def poke(self) -> None:
        self.pokes += 1

    def lost(self, cause: BaseException) -> None:
        self.cause = cause


async def test_a_cancelled_poll_keeps_nothing_of_its_owner() -> None:
    polls = PollScheduler(runtime())
    owner = Polled()
    poll = polls.register(3_600, owner.poke, owner.lost)
    there = weakref.ref(owner)
    polls.cancel(poll)
    polls.cancel(poll)
    del owner, poll
    gc.collect()
    assert there() is None
    await polls.close()


async def test_a_poll_is_called_at_its_new_interval_at_once() -> None:
    polls = PollScheduler(runtime())
    owner, cancelled = Polled(), Polled()
    poll, gone = (polls.register(3_600, polled.poke, polled.lost) for polled in (owner, cancelled))
    await asyncio.sleep(0)
    polls.cancel(gone)
    for each in (poll, gone):
        polls.retime(each, 0.001)
    await until(lambda: owner.pokes > 2, "polls at the new interval")
    assert cancelled.pokes == 0
    await polls.close()


async def test_the_end_of_the_timer_ends_all_its_polls() -> None:
    polls = PollScheduler(runtime())
    owners = [Polled(), Polled()]
    for owner in owners:
        polls.register(3_600, owner.poke, owner.lost)
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "slate/poll scheduler"]
    task.cancel()
    await until(lambda: all(owner.cause is not None for owner in owners), "the cause")
    assert isinstance(owners[0].cause, ClosedError)
    later = Polled()
    polls.register(0.001, later.poke, later.lost)
    await until(lambda: later.pokes > 2, "polls of another timer")
    await polls.close()


async def test_a_poke_that_raises_ends_its_own_database() -> None:
    class Broken(Polled):
        def poke(self) -> None:
            raise KeyError("broken")

    polls = PollScheduler(runtime())
    broken, other = Broken(), Polled()
    for owner in (broken, other):
        polls.register(0.001, owner.poke, owner.lost)
    await until(lambda: broken.cause is not None and other.pokes > 2, "the others to go on")
    assert isinstance(broken.cause, KeyError)
    assert other.cause is None
    await polls.close()


async def test_a_store_that_does_not_answer_holds_up_nobody_elses_polls() -> None:
    scheduler = PollScheduler(runtime())
    dead, healthy = scheduler.of_store("dead"), scheduler.of_store("healthy")
    hanging = 0

    async def hang() -> None:
        nonlocal hanging
        hanging += 1
        await asyncio.Event().wait()

    async def answer() -> None:
        await asyncio.sleep(0)

    tasks = [asyncio.create_task(dead.limited(hang)) for _ in range(100)]
    await until(lambda: hanging == POLLS_OF_A_STORE, "polls of the dead store")
    async with asyncio.timeout(20):
        for _ in range(50):
            await healthy.limited(answer)
    assert hanging == POLLS_OF_A_STORE
    for task in tasks:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(*tasks)
