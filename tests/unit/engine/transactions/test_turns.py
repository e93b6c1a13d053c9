"""Turns by key, and the gate."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.engine.transactions.turns import Gate, KeyTurns, Turn


async def test_turns_of_a_key_come_in_order_and_leave_nothing() -> None:
    turns, order = KeyTurns(60.0), list[int]()

    async def work(number: int) -> None:
        async with turns.of([b"k"]):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))
    assert b"k" not in turns


async def taken(turns: KeyTurns, key: bytes) -> Turn:
    """The turn, which the caller has."""
    turn = await turns.take(key)
    assert turn is not None
    return turn


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancelled_waiter_keeps_nobody_waiting(steps: int) -> None:
    turns = KeyTurns(60.0)
    turn = await taken(turns, b"k")
    waiting = asyncio.create_task(turns.take(b"k"))
    last = asyncio.create_task(turns.take(b"k"))
    await asyncio.sleep(0)
    if steps >= 3:
        turns.give(turn)
    for _ in range(steps % 3):
        await asyncio.sleep(0)
    waiting.cancel()
    done = (await asyncio.gather(waiting, return_exceptions=True))[0]
    if steps < 3 or done is turn:
        turns.give(turn)
    async with asyncio.timeout(5):
        assert await last is turn
    turns.give(turn)
    assert b"k" not in turns


async def test_a_holder_that_changed_nothing_lets_all_others_go_on() -> None:
    turns = KeyTurns(60.0)
    turn = await taken(turns, b"k")
    waiting = [asyncio.create_task(turns.take(b"k")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.give_up(turn)
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert (done[0], done[2]) == (None, None)
    assert isinstance(done[1], asyncio.CancelledError)
    assert b"k" not in turns
    await taken(turns, b"k")
    turns.give(turn)  # of the holder before, which means nothing now
    turns.give_up(turn)
    assert b"k" in turns


async def test_one_that_hangs_is_not_waited_for_for_ever() -> None:
    turns = KeyTurns(0.02)
    hanging = await taken(turns, b"k")
    async with asyncio.timeout(5):
        assert await asyncio.gather(*(turns.take(b"k") for _ in range(3))) == [None] * 3
    turns.give(hanging)
    assert b"k" not in turns
    turn = await taken(turns, b"k")
    next_one = asyncio.create_task(turns.take(b"k"))
    await asyncio.sleep(0)
    turns.give(turn)
    assert await next_one is turn  # holders that do not hang keep the order
    turns.give(turn)
    assert b"k" not in turns


async def test_two_that_want_the_same_keys_do_not_wait_for_one_another() -> None:
    turns = KeyTurns(60.0)

    async def work(keys: list[bytes]) -> None:
        for _ in range(20):
            async with turns.of(keys):
                await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await asyncio.gather(work([b"a", b"b"]), work([b"b", b"a"]), work([b"b", b"b"]))


async def test_while_one_runs_alone_others_wait_but_not_for_ever() -> None:
    gate, order = Gate(), list[str]()

    async def alone(name: str, most_s: float = 5.0) -> None:
        async with gate.alone(most_s):
            order.append(name)
            await asyncio.sleep(0.02)
            order.append(name)

    async def other() -> None:
        await asyncio.sleep(0)
        assert gate.shut
        await gate.passed()
        order.append("other")

    await asyncio.gather(alone("first"), alone("second"), other())
    assert order == ["first", "first", "second", "second", "other"] or order[:2] == ["first", "first"]
    assert not gate.shut
    async with gate.alone(0.01):
        async with asyncio.timeout(5):
            await gate.passed()
        assert not gate.shut


async def test_one_that_hangs_alone_keeps_nobody_from_running_alone() -> None:
    gate = Gate()
    async with asyncio.timeout(5), gate.alone(0.01):
        async with gate.alone(5):
            assert gate.shut
            await asyncio.sleep(0.02)
            assert gate.shut
        assert not gate.shut
        await gate.passed()
    async with asyncio.timeout(5), gate.alone(5), asyncio.TaskGroup() as group:
        assert gate.shut
        waits = group.create_task(gate.passed())
        await asyncio.sleep(0)
        assert not waits.done()
        gate._let_in(gate._holder)


async def test_the_end_of_one_that_ran_alone_for_too_long_lets_nobody_in_to_the_next() -> None:
    gate, first_ends = Gate(), asyncio.Event()

    async def first() -> None:
        async with gate.alone(0.01):
            await first_ends.wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(first())
        await asyncio.sleep(0)
        async with gate.alone(5):
            first_ends.set()
            await asyncio.sleep(0.01)
            assert gate.shut
