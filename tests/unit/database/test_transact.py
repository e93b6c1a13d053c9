"""`Db.transact` and `Db.update`: what is repeated, who waits for whom, and that nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import slate_async as slate
from slate_async.database import transact
from tests.engine import CONTIGUOUS, Kind, ManualClock, contents, memory_store, open_db, starts, until


def number_of(value: bytes | None) -> int:
    return int(value or b"0")


def one_more(value: bytes | None) -> bytes:
    return b"%d" % (number_of(value) + 1)


async def increment(tx: slate.Transaction, key: bytes = b"n") -> int:
    value = number_of(await tx.get(key))
    await asyncio.sleep(0)
    tx.put(key, b"%d" % (value + 1))
    return value + 1


# ---- transact


async def test_increments_that_collide_are_all_counted(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        results = await asyncio.gather(*(db.transact(increment) for _ in range(100)))
        assert sorted(results) == list(range(1, 101))
        assert await db.get(b"n") == b"100"
        metrics = db.metrics()
        assert metrics["transactions.retries"] > 0
        assert metrics["transactions.committed"] == 100
        assert metrics["transactions.conflicts"] == metrics["transactions.retries"]


async def test_functions_whose_first_read_is_contended_wait_instead_of_losing() -> None:
    async with open_db(memory_store()) as db:
        await asyncio.gather(*(db.transact(increment, await_durable=False) for _ in range(20)))  # a queue forms
        before = db.metrics()

        async def many() -> None:
            for _ in range(20):
                await db.transact(increment, await_durable=False)

        await asyncio.gather(*(many() for _ in range(20)))
        after = db.metrics()
        assert await db.get(b"n") == b"420"
        assert after["transactions.conflicts"] - before["transactions.conflicts"] < 200


async def test_functions_that_only_read_a_contended_key_do_not_wait_for_one_another() -> None:
    async with open_db(memory_store()) as db:
        running = most = 0

        async def reader(tx: slate.Transaction, number: int) -> None:
            nonlocal running, most
            await tx.get(b"config")
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1
            tx.put(b"own%d" % number, b"")

        turn = await db._transact.space.turns.take(b"config")
        assert turn is not None
        tasks = [asyncio.create_task(db.transact(lambda tx, n=n: reader(tx, n))) for n in range(20)]
        await asyncio.sleep(0.02)
        assert most == 0
        db._transact.space.turns.give(turn)
        await asyncio.gather(*tasks)
        assert most > 10
        assert b"config" not in db._transact.space.turns


async def test_retries_are_bounded_and_the_last_conflict_is_raised() -> None:
    async with open_db(memory_store()) as db:
        runs = 0

        async def spoiled(tx: slate.Transaction) -> None:
            nonlocal runs
            runs += 1
            await tx.get(b"n")
            tx.put(b"n", b"mine")
            await db.put(b"n", b"theirs", await_durable=False)

        for retries in (0, 3):
            runs = 0
            with pytest.raises(slate.ConflictError) as caught:
                await db.transact(spoiled, retries=retries)
            assert (runs, caught.value.key, caught.value.reason) == (retries + 1, b"n", "written")
        assert await db.get(b"n") == b"theirs"
        assert db.metrics()["transactions.open"] == 0


async def test_what_the_function_raises_is_raised_and_nothing_is_applied() -> None:
    async with open_db(memory_store()) as db:

        async def fails(tx: slate.Transaction) -> None:
            tx.put(b"a", b"")
            raise ZeroDivisionError

        async def meets_another_conflict(tx: slate.Transaction) -> None:
            tx.put(b"a", b"")
            await db.put(b"b", b"", if_seq=7)

        with pytest.raises(ZeroDivisionError):
            await db.transact(fails)
        with pytest.raises(slate.ConflictError) as caught:
            await db.transact(meets_another_conflict)
        assert caught.value.reason == "absent"
        assert db.metrics()["transactions.retries"] == 0
        assert await contents(db) == {}


async def test_a_function_may_commit_or_give_up_by_itself() -> None:
    async with open_db(memory_store()) as db:

        async def commits(tx: slate.Transaction) -> str:
            tx.put(b"a", b"1")
            await tx.commit()
            return "committed"

        async def gives_up(tx: slate.Transaction) -> str:
            tx.put(b"a", b"2")
            tx.rollback()
            return "given up"

        assert [await db.transact(commits), await db.transact(gives_up)] == ["committed", "given up"]
        assert await db.get(b"a") == b"1"


async def test_one_that_always_loses_runs_alone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_db(memory_store()) as db:
        over = asyncio.Event()

        async def quick() -> None:
            while not over.is_set():
                with contextlib.suppress(slate.ConflictError):
                    async with db.transaction() as tx:  # which takes no turns
                        await increment(tx)

        async def slow(tx: slate.Transaction) -> int:
            value = number_of(await tx.get(b"n"))
            await asyncio.sleep(0.02)
            tx.put(b"n", b"%d" % (value + 1))
            return value + 1

        others = [asyncio.create_task(quick()) for _ in range(4)]
        async with asyncio.timeout(60):
            await db.transact(slow)
        metrics = db.metrics()
        over.set()
        await asyncio.gather(*others)
        assert metrics["transactions.alone"] >= 1


async def test_what_runs_alone_may_use_updates_and_transactions_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transact, "ALONE_AFTER", 2)
    async with open_db(memory_store()) as db:
        runs = 0

        async def nested(tx: slate.Transaction) -> None:
            nonlocal runs
            runs += 1
            await tx.get(b"n")
            tx.put(b"n", b"x")
            await db.update(b"n" if runs < 3 else b"m", one_more, await_durable=False)
            await db.put(b"o%d" % runs, b"", if_absent=True, await_durable=False)
            await db.transact(lambda tx: increment(tx, b"p"), await_durable=False)

        async with asyncio.timeout(20):
            await db.transact(nested)
        assert runs == 3
        assert await contents(db) == {b"n": b"x", b"m": b"1", b"p": b"3", b"o1": b"", b"o2": b"", b"o3": b""}


async def test_one_that_runs_alone_for_too_long_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transact, "ALONE_AFTER", 1)
    async with open_db(memory_store(), transaction_lifetime_ms=50) as db:
        hangs, spoiled = asyncio.Event(), False

        async def hanging(tx: slate.Transaction) -> None:
            nonlocal spoiled
            await tx.get(b"n")
            tx.put(b"n", b"")
            if not spoiled:
                spoiled = True
                await db.put(b"n", b"spoiled")
                return
            hangs.set()
            await asyncio.sleep(3600)

        (task,) = starts(db.transact(hanging))
        await hangs.wait()
        async with asyncio.timeout(0.04), db.transaction() as tx:  # what only reads waits for nobody
            await tx.get(b"n")
        async with asyncio.timeout(20):
            await db.update(b"m", one_more)
            await db.put(b"o", b"", if_absent=True)
            lost = False

            async def loses(tx: slate.Transaction) -> None:
                nonlocal lost
                await tx.get(b"p")
                tx.put(b"p", b"")
                if not lost:
                    lost = True
                    await db.put(b"p", b"spoiled")

            await db.transact(loses)  # and runs alone, too
            assert db.metrics()["transactions.alone"] == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert db.metrics()["transactions.open"] == 0


async def test_one_that_hangs_with_a_turn_keeps_nobody_waiting() -> None:
    async with open_db(memory_store(), transaction_lifetime_ms=50) as db:
        began = asyncio.Event()

        async def hanging(tx: slate.Transaction) -> None:
            tx.put(b"n", await tx.get(b"n") or b"")
            began.set()
            await asyncio.sleep(3600)

        turn = await db._transact.space.turns.take(b"n")
        assert turn is not None
        (task,) = starts(db.transact(hanging))
        await asyncio.sleep(0.01)
        db._transact.space.turns.give(turn)
        await began.wait()
        async with asyncio.timeout(20):
            await db.update(b"n", one_more)
            assert await db.transact(increment) == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_cancelled_anywhere_it_is_in_or_not_and_keeps_nothing(steps: int) -> None:
    async with open_db(memory_store()) as db:
        others = [asyncio.create_task(db.transact(increment, retries=1_000)) for _ in range(3)]
        victim = asyncio.create_task(db.transact(increment, retries=1_000))
        for _ in range(steps):
            await asyncio.sleep(0)
        victim.cancel()
        done = await asyncio.gather(victim, *others, return_exceptions=True)
        assert sorted(map(str, done[1:]))  # none of these failed
        assert not any(isinstance(result, BaseException) for result in done[1:])
        await db.flush()
        counted = number_of(await db.get(b"n"))
        assert counted in (3, 4)
        assert counted == 4 or isinstance(done[0], asyncio.CancelledError)
        assert await db.transact(increment) == counted + 1
        metrics = db.metrics()
        assert (metrics["transactions.open"], metrics["transactions.tracked_bytes"]) == (0, 0)


async def test_a_conflict_is_raised_by_an_update_that_is_spoiled_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transact, "ATTEMPTS", 3)
    async with open_db(memory_store()) as db:
        monkeypatch.setattr(transact.Transact, "_update_now", lambda *arguments: None)
        read, runs = slate.Transaction.get, 0

        async def spoiled(tx: slate.Transaction, key: bytes) -> bytes | None:
            nonlocal runs
            runs += 1
            found = await read(tx, key)
            await db.put(key, b"spoiled", await_durable=False)
            return found

        monkeypatch.setattr(slate.Transaction, "get", spoiled)
        with pytest.raises(slate.ConflictError) as caught:
            await db.update(b"n", lambda value: b"mine")
        assert (runs, caught.value.reason) == (3, "written")
        assert b"n" not in db._transact.space.turns


# ---- update


async def test_a_thousand_increments_lose_nothing_and_share_flushes(kind: Kind) -> None:
    async with open_db(memory_store(), kind) as db:
        before = db.metrics()["log.flushes"]
        made = await asyncio.gather(*(db.update(b"n", one_more) for _ in range(1_000)))
        assert sorted(number_of(handle.value) for handle in made) == list(range(1, 1_001))
        assert len({handle.seq for handle in made}) == 1_000
        assert await db.get(b"n", durable=True) == b"1000"
        assert db.metrics()["log.flushes"] - before < 100
        assert db.metrics()["transactions.updates"] == 1_000


async def test_updates_of_a_key_that_is_only_in_the_store_wait_for_one_another() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"n", b"5")
        await db.flush(l0=True)
    async with open_db(store) as db:
        first, *_ = await asyncio.gather(*(db.update(b"n", one_more) for _ in range(20)), db.put(b"o", b""))
        assert isinstance(first, slate.UpdateHandle)
        assert first.value == b"6"
        assert await db.get(b"n") == b"25"


async def test_an_update_may_delete_leave_absent_and_expire(db: slate.Db, clock: ManualClock) -> None:
    nothing = await db.update(b"n", lambda value: None)
    assert (nothing.value, await db.get(b"n")) == (None, None)
    assert nothing.is_durable
    assert db.metrics()["db.writes"] == 0
    made = await db.update(b"n", lambda value: bytearray(b"1"), ttl=10)
    assert (made.value, type(made.value)) == (b"1", bytes)
    clock.wall_ms += 10_000
    seen = list[bytes | None]()
    await db.update(b"n", lambda value: seen.append(value) or b"2")
    assert set(seen) == {None}
    assert (await db.update(b"n", lambda value: None)).value is None
    assert await contents(db) == {}
    assert repr(made).startswith("<UpdateHandle seq=1")


async def test_wrong_functions_are_refused_and_nothing_is_applied(db: slate.Db) -> None:
    wrong: Any = b"value"
    text: Any = lambda value: "text"  # noqa: E731

    async def waits(value: bytes | None) -> bytes:
        return b""

    awaited: Any = waits
    with pytest.raises(slate.InvalidError, match="takes a function"):
        await db.update(b"n", wrong)
    with pytest.raises(slate.InvalidError, match="a value is bytes-like"):
        await db.update(b"n", text)
    with pytest.raises(slate.InvalidError, match="without await; use transact"):
        await db.update(b"n", awaited)
    with pytest.raises(ZeroDivisionError):
        await db.update(b"n", lambda value: b"%d" % (1 // 0))
    with pytest.raises(slate.InvalidError, match="retries is a number"):
        await db.transact(increment, retries=-1)
    with pytest.raises(slate.InvalidError, match="isolation is"):
        await db.transact(increment, isolation=wrong)
    with pytest.raises(slate.InvalidError, match="transact takes a function, not bytes"):
        await db.transact(wrong)
    plain: Any = lambda tx: tx.put(b"n", b"1")  # noqa: E731
    with pytest.raises(slate.InvalidError, match="transact takes an `async def`"):
        await db.transact(plain)
    with pytest.raises(slate.InvalidError):
        await db.update(b"", one_more)
    assert await contents(db) == {}
    assert await db.transact(increment) == 1


async def test_updates_wait_for_room_in_order_and_read_what_came_before() -> None:
    async with open_db(
        memory_store(), CONTIGUOUS, max_unflushed_bytes=1 << 16, l0_sst_bytes=1 << 14, max_value_bytes=1 << 15
    ) as db:
        handles = await asyncio.gather(
            *(db.update(b"n", lambda value: (value or b"")[:4] + bytes(9_000)) for _ in range(40)),
            *(db.update(b"m", one_more) for _ in range(40)),
            *(db.put(b"o", bytes(9_000)) for _ in range(40)),
        )
        assert len(handles) == 120
        assert await db.get(b"m") == b"40"
        await until(lambda: db.metrics()["backpressure.stalls"] > 0, "writes that waited")
