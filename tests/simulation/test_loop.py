"""The event loop: virtual time, deterministic order, limits."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from tests.simulation.anyio_order import ordered_cancel_scopes
from tests.simulation.loop import DOMAIN, DeadlockError, Interleaving, OutOfStepsError, OutOfTimeError, SimLoop


def run(make: Callable[[], Coroutine[Any, Any, Any]], seed: int = 0, **options: Any) -> Any:
    """Run a coroutine on a fresh loop."""
    loop = SimLoop(random.Random(seed), **options)
    try:
        with ordered_cancel_scopes():
            return loop.run_until_complete(make())
    finally:
        loop.discarding = True
        loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> tuple[float, list[str]]:
        loop, order = asyncio.get_running_loop(), []

        async def nap(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(nap("late", 86_400), nap("soon", 1), nap("later", 3600))
        return loop.time(), order

    elapsed, order = run(main)
    assert order == ["soon", "later", "late"]
    assert 86_400 <= elapsed < 86_401


def test_asyncio_primitives_work() -> None:
    async def main() -> list[Any]:
        seen: list[Any] = []
        lock, ready, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def producer() -> None:
            for number in range(3):
                await queue.put(number)
            async with condition:
                condition.notify_all()
            ready.set()

        async def consumer() -> None:
            async with condition:
                waiting = asyncio.ensure_future(queue.get())
                seen.append(await waiting)
            seen.extend([await queue.get(), await queue.get()])

        async with asyncio.TaskGroup() as group:
            group.create_task(consumer())
            group.create_task(producer())
            await ready.wait()

        async def wait_locked() -> None:
            async with asyncio.timeout(5), lock:
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await wait_locked()
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(delay, delay)) for delay in (3, 1, 2)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        seen.extend(task.result() for task in done)
        for task in pending:
            task.cancel()
        seen.append(await asyncio.gather(*pending, return_exceptions=True))
        return seen

    seen = run(main)
    assert seen[:4] == [0, 1, 2, 1]
    assert [type(outcome) for outcome in seen[4]] == [asyncio.CancelledError] * 2


def test_anyio_works_and_its_scopes_are_ordered() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def wait_for_ever(name: str) -> None:
            with anyio.CancelScope():
                try:
                    await anyio.sleep_forever()
                finally:
                    order.append(name)

        with anyio.move_on_after(10):
            async with anyio.create_task_group() as group:
                for number in range(12):
                    group.start_soon(wait_for_ever, f"n{number}")
        await anyio.sleep(1)
        return order

    assert len(run(main)) == 12
    assert run(main) == run(main)


def test_sets_of_tasks_and_futures_iterate_in_order_of_creation() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        tasks = {asyncio.ensure_future(asyncio.sleep(0)) for _ in range(7)}
        futures = {loop.create_future() for _ in range(7)}
        numbers = [hash(task) for task in tasks], [hash(future) for future in futures]
        await asyncio.wait(tasks)
        return [number for some in numbers for number in some]

    first = run(main)
    padding = [bytearray(random.randrange(1, 500)) for _ in range(1000)]  # other addresses
    assert run(main) == first
    assert len(set(first)) == 14
    del padding


def interleaving_of(seed: int, interleaving: Interleaving) -> str:
    """The order in which two processes of three tasks each take their steps."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        steps: list[str] = []

        async def step(name: str) -> None:
            for _ in range(3):
                steps.append(name)
                await asyncio.sleep(0)

        tasks = []
        for process in ("x", "y"):
            context = contextvars.copy_context()
            context.run(DOMAIN.set, loop.add_domain(process))
            tasks += [loop.create_task(step(f"{process}{n}"), context=context) for n in range(3)]
        await asyncio.gather(*tasks)
        return " ".join(steps)

    order: str = run(main, seed, interleaving=interleaving)
    return order


def only(order: str, process: str) -> list[str]:
    """The steps of one process."""
    return [step for step in order.split() if step.startswith(process)]


def test_fifo_is_what_asyncio_does() -> None:
    assert interleaving_of(1, Interleaving.FIFO) == " ".join(["x0 x1 x2 y0 y1 y2"] * 3)


def test_processes_interleave_at_random_and_keep_their_own_order() -> None:
    orders = [interleaving_of(seed, Interleaving.DOMAINS) for seed in range(20)]
    assert len(set(orders)) > 10
    for order in orders:
        assert only(order, "x") == ["x0", "x1", "x2"] * 3
        assert only(order, "y") == ["y0", "y1", "y2"] * 3


def test_shuffling_mixes_the_tasks_of_one_process_too() -> None:
    orders = [only(interleaving_of(seed, Interleaving.SHUFFLED), "x") for seed in range(20)]
    assert any(order != ["x0", "x1", "x2"] * 3 for order in orders)
    assert all(sorted(order) == sorted(["x0", "x1", "x2"] * 3) for order in orders)


@pytest.mark.parametrize("interleaving", list(Interleaving))
def test_the_same_seed_gives_the_same_order(interleaving: Interleaving) -> None:
    assert interleaving_of(3, interleaving) == interleaving_of(3, interleaving)


def test_a_deadlock_names_the_waiting_task_and_where_it_waits() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(stuck(), name="the stuck one")

    with pytest.raises(DeadlockError, match=r"world: the stuck one at asyncio/locks\.py:\d+ in Event\.wait"):
        run(main)


def test_a_loop_that_never_waits_ends() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(OutOfStepsError, match="1000 steps"):
        run(main, max_steps=1000)


def test_a_wait_without_end_ends() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    with pytest.raises(OutOfTimeError, match="60 virtual seconds"):
        run(main, max_seconds=60.0)


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        run(main)
