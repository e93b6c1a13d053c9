"""What `Db.transact`, updates and conditional writes wait for: one that runs alone, a turn, a pause, durability."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import slate_async as slate
from slate_async.database import transact
from tests.engine import StoreInHand, contents, memory_store, open_db, settle, starts
from tests.unit.database.away import SHORT, back, failed, outages


def number_of(value: bytes | None) -> int:
    return int(value or b"0")


def one_more(value: bytes | None) -> bytes:
    return b"%d" % (number_of(value) + 1)


async def increment(tx: slate.Transaction, key: bytes = b"n") -> int:
    value = number_of(await tx.get(key))
    await asyncio.sleep(0)
    tx.put(key, b"%d" % (value + 1))
    return value + 1


async def test_while_one_runs_alone_transactions_updates_and_conditional_writes_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transact, "ALONE_AFTER", 1)
    async with open_db(memory_store()) as db:
        alone, go_on, runs = asyncio.Event(), asyncio.Event(), 0

        async def loses_once(tx: slate.Transaction) -> None:
            nonlocal runs
            runs += 1
            tx.put(b"n", b"%d" % (number_of(await tx.get(b"n")) + 1))
            if runs == 1:
                await db.put(b"n", b"10", await_durable=False)
            else:
                alone.set()
                await go_on.wait()

        async def writes() -> None:
            async with db.transaction() as tx:
                tx.put(b"n", b"%d" % (number_of(await tx.get(b"n")) + 1))

        (running,) = starts(db.transact(loses_once))
        await alone.wait()
        await db.put(b"plain", b"", await_durable=False)  # waits for nobody
        spoilers = starts(
            db.update(b"n", one_more),
            db.transact(increment),
            db.increment(b"i", token=b"t"),
            db.put(b"n", b"absent", if_value=b"10"),
            db.put(b"m", b"", if_absent=True),
            db.delete(b"plain", if_value=b""),
            writes(),
        )
        await asyncio.sleep(0.02)
        assert await contents(db) == {b"n": b"10", b"plain": b""}
        assert not any(spoiler.done() for spoiler in spoilers)
        go_on.set()
        await running
        done = await asyncio.gather(*spoilers, return_exceptions=True)
        conflicts = [result for result in done if isinstance(result, slate.ConflictError)]
        assert all(conflict.key == b"n" for conflict in conflicts)
        assert not [result for result in done if isinstance(result, BaseException) and result not in conflicts]
        assert runs == 2
        assert {b"m", b"i", b"t", b"n"} == set(await contents(db))


async def test_between_attempts_passes_a_random_part_of_a_pause_that_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_db(memory_store()) as db:
        clock, pauses = db._transact.space.runtime.clock, list[float]()
        sleep = clock.sleep

        async def noted(seconds: float) -> None:
            pauses.append(seconds)
            await sleep(0)

        async def spoiled(tx: slate.Transaction) -> None:
            await tx.get(b"n")
            tx.put(b"n", b"mine")
            await db.put(b"n", b"theirs", await_durable=False)

        with monkeypatch.context() as patched:
            patched.setattr(clock, "sleep", noted)
            with pytest.raises(slate.ConflictError):
                await db.transact(spoiled, retries=40)
        pauses = [pause for pause in pauses if pause]
        most = [min(0.05, 0.001 * 2**attempt) for attempt in range(1, 41)]
        assert len(pauses) == len(set(pauses)) == 40
        assert all(0 < pause < limit for pause, limit in zip(pauses, most, strict=True))
        assert max(pauses) > 0.03
        assert min(pauses[10:]) < 0.02


async def test_each_waits_for_durability_unless_it_is_told_not_to() -> None:
    store = StoreInHand(memory_store())
    async with open_db(store) as db:
        await db.put(b"gone", b"")
        store.hold = True
        await db.delete(b"gone", await_durable=False)
        calls: list[Callable[[bytes, bool], Awaitable[object]]] = [
            lambda key, wait: db.transact(lambda tx: increment(tx, key), await_durable=wait),
            lambda key, wait: db.transact(lambda tx: tx.get(b"gone"), await_durable=wait),
            lambda key, wait: db.update(key, one_more, await_durable=wait),
            lambda key, wait: db.update(b"gone", lambda value: None, await_durable=wait),
            lambda key, wait: db.increment(key, await_durable=wait),
            lambda key, wait: db.increment(key, token=b"t" + key, await_durable=wait),
            lambda key, wait: db.put(key, b"", if_absent=True, await_durable=wait),
        ]
        async with asyncio.timeout(20):
            for number, call in enumerate(calls):
                await call(b"at once %d" % number, False)
        waiting = starts(*(call(b"waits %d" % number, True) for number, call in enumerate(calls)))
        await settle(100)
        assert [number for number, call in enumerate(waiting) if call.done()] == []
        assert await db.get(b"waits 0") == b"1"
        store.release()
        await asyncio.gather(*waiting)
        assert await db.get(b"waits 0", durable=True) == b"1"


async def test_one_that_waits_for_its_turn_through_an_outage_begins_anew() -> None:
    store = outages()
    async with open_db(store, **SHORT) as db:
        await db.put(b"n", b"1")
        turn = await db._transact.space.turns.take(b"n")
        assert turn is not None
        (waiting,) = starts(db.transact(increment))
        await settle()
        store.down = True
        (sent,) = starts(db.put(b"n", b"5"))
        assert await failed(sent) == "unknown"
        store.down = False
        await back(db)
        await db.put(b"n", b"7")
        db._transact.space.turns.give(turn)
        assert await waiting == 8
        assert await db.get(b"n") == b"8"
        assert db.metrics()["transactions.open"] == 0
