"""`Pokes`: a wait ends by a poke, also by one that came before it began, or by the clock."""

from __future__ import annotations

import asyncio

from slate_async.runtime.pokes import Pokes
from tests.engine import ManualClock, settle


class Sleepy(ManualClock):
    """Sleeps until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.awake = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.awake.wait()


async def test_a_poke_wakes_all_who_wait() -> None:
    pokes, clock = Pokes(), Sleepy()
    waiting = [asyncio.ensure_future(pokes.wait(pokes.count, clock, 5)) for _ in range(3)]
    await settle()
    assert not any(task.done() for task in waiting)
    assert clock.slept == [5, 5, 5]
    waiting[0].cancel()
    await settle()
    pokes.poke()
    await asyncio.gather(*waiting[1:])
    assert pokes._waiting == {}


async def test_a_poke_since_the_last_look_is_not_waited_for() -> None:
    pokes, clock = Pokes(), Sleepy()
    noted = pokes.count
    pokes.poke()
    await pokes.wait(noted, clock, 5)
    assert clock.slept == []


async def test_the_clock_ends_a_wait() -> None:
    pokes, clock = Pokes(), Sleepy()
    waiting = asyncio.ensure_future(pokes.wait(pokes.count, clock, 5))
    await settle()
    clock.awake.set()
    await waiting
    assert pokes._waiting == {}
