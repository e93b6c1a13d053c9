"""CompletionQueue: many waiters are completed in order, in several turns of the loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from slate_async.engine.write.commit_group import CommitGroup
from slate_async.engine.write.completions import COMPLETIONS_PER_TURN, CompletionQueue
from tests.engine import StoreInHand, memory_store, open_db, settle, until


@pytest.mark.parametrize("others", [0, 1, COMPLETIONS_PER_TURN])
async def test_in_order_a_bounded_number_each_turn_those_of_a_later_group_behind(others: int) -> None:
    woken: list[int] = []
    done: list[int] = []
    completions = CompletionQueue(lambda: done.append(len(woken)))
    first, second = CommitGroup(), CommitGroup()

    async def wait(group: CommitGroup, number: int) -> None:
        await group.wait()
        woken.append(number)

    count = 2 * COMPLETIONS_PER_TURN + 10
    tasks = [asyncio.create_task(wait(first, number)) for number in range(count)]
    tasks += [asyncio.create_task(wait(second, count + number)) for number in range(others)]
    await asyncio.sleep(0)
    tasks[COMPLETIONS_PER_TURN].cancel()
    first.resolve(completions)
    second.resolve(completions)
    assert first.durable
    assert second.durable
    seen = [0]
    while completions.busy:
        await asyncio.sleep(0)
        seen.append(len(woken))
    assert max(later - earlier for earlier, later in pairwise(seen)) <= COMPLETIONS_PER_TURN
    assert woken == [number for number in range(count + others) if number != COMPLETIONS_PER_TURN]
    assert done == [len(woken)]


async def test_nobody_waits() -> None:
    done: list[int] = []
    completions = CompletionQueue(lambda: done.append(1))
    group = CommitGroup()
    group.resolve(completions)
    assert (completions.busy, done) == (False, [])
    await group.wait()


@pytest.mark.parametrize("tasks", [1, COMPLETIONS_PER_TURN, 3 * COMPLETIONS_PER_TURN + 1])
async def test_tasks_that_write_again_once_completed_share_one_object(tasks: int) -> None:
    store = StoreInHand(memory_store())
    async with open_db(store, flush_interval_ms=60_000) as db:
        store.puts.clear()
        store.hold = True

        async def work(number: int) -> None:
            for _ in range(3):
                await db.put(b"%d" % number, b"")

        working = asyncio.gather(*map(work, range(tasks)))
        for flushes in (1, 2, 3):
            await until(lambda: bool(store.held), "a flush")
            await settle()
            assert len(store.puts) == flushes
            assert db.metrics()["log.rows"] == (flushes - 1) * tasks
            store.release(*store.held)
        await working
        store.release()
