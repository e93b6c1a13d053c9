"""Anomalies that transactions are known by, each with what lies between: nothing, a flush, a compaction.

As SlateDB and FoundationDB document theirs, and in the names that Adya gave them: G0 to G2, and the read-only anomaly
of Fekete and others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

import slate_async as slate
from tests.engine import contents, memory_store, open_db

Between: TypeAlias = Callable[[slate.Db], Awaitable[object]]
both = pytest.mark.parametrize("isolation", ["serializable", "snapshot"])


async def nothing(_: slate.Db) -> None:
    pass


async def a_flush(db: slate.Db) -> None:
    await db.flush(l0=True)


async def a_compaction(db: slate.Db) -> None:
    await db.flush(l0=True)
    await db.compact(full=True)


@pytest.fixture(params=[nothing, a_flush, a_compaction])
def between(request: pytest.FixtureRequest) -> Between:
    """What happens while the transactions are open."""
    chosen: Between = request.param
    return chosen


async def commits(tx: slate.Transaction) -> bool:
    """Whether ``tx`` commits; else it is a conflict, and nothing of it is applied."""
    try:
        await tx.commit()
    except slate.ConflictError as error:
        refused = error
    else:
        return True
    assert (refused.outcome, refused.reason) == ("not_applied", "written")
    return False


async def number(tx: slate.Transaction, key: bytes) -> int:
    return int(await tx.get(key) or b"0")


@both
async def test_writes_of_two_are_not_mixed(db: slate.Db, isolation: Any, between: Between) -> None:  # G0
    first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
    for key in (b"a", b"b"):
        first.put(key, b"1")
        second.put(key, b"2")
    assert await commits(first)
    await between(db)
    assert await commits(second) == (isolation == "serializable")  # blind writes come one after the other
    winner = b"2" if isolation == "serializable" else b"1"
    assert await contents(db) == {b"a": winner, b"b": winner}


@both
async def test_what_was_given_up_or_is_not_committed_is_never_read(
    db: slate.Db, isolation: Any, between: Between
) -> None:  # G1a, G1b
    writing = db.transaction(isolation=isolation)
    writing.put(b"a", b"never")
    reading = db.transaction(isolation=isolation)
    assert await reading.get(b"a") is None
    await between(db)
    writing.rollback()
    assert await reading.get(b"a") is None
    async with db.transaction(isolation=isolation) as tx:
        tx.put(b"a", b"between")
        tx.put(b"a", b"last")
        assert await db.get(b"a") is None
    assert await reading.get(b"a") is None
    assert await db.get(b"a") == b"last"


@both
async def test_two_do_not_read_what_each_other_writes(db: slate.Db, isolation: Any, between: Between) -> None:  # G1c
    first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
    first.put(b"a", b"1")
    second.put(b"b", b"2")
    assert await first.get(b"b") is None
    assert await second.get(b"a") is None
    await between(db)
    committed = [await commits(first), await commits(second)]
    assert committed == [True, isolation == "snapshot"]


@both
async def test_an_update_is_not_lost(db: slate.Db, isolation: Any, between: Between) -> None:  # P4
    await db.put(b"n", b"10")
    first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
    for tx in (first, second):
        tx.put(b"n", b"%d" % (await number(tx, b"n") + 1))
    assert await commits(second)
    await between(db)
    assert not await commits(first)
    assert await db.get(b"n") == b"11"


@both
async def test_reads_are_of_one_time_whatever_commits_between(
    db: slate.Db, isolation: Any, between: Between
) -> None:  # G-single
    await db.put(b"a", b"50")
    await db.put(b"b", b"50")
    reading = db.transaction(isolation=isolation)
    assert await number(reading, b"a") == 50
    async with db.transaction(isolation=isolation) as tx:
        tx.put(b"a", b"%d" % (await number(tx, b"a") - 20))
        tx.put(b"b", b"%d" % (await number(tx, b"b") + 20))
    await between(db)
    assert await number(reading, b"b") == 50
    assert [row async for row in reading.scan()] == [(b"a", b"50"), (b"b", b"50")]
    assert await reading.get_many([b"b", b"a"]) == [b"50", b"50"]
    assert await commits(reading)  # it wrote nothing


@both
async def test_two_that_each_add_a_row_to_what_both_counted(
    db: slate.Db, isolation: Any, between: Between
) -> None:  # G2
    await db.put(b"booking:1", b"")
    first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
    for name, tx in ((b"2", first), (b"3", second)):
        assert len([row async for row in tx.scan(prefix=b"booking:")]) == 1
        tx.put(b"booking:" + name, b"")
    assert await commits(first)
    await between(db)
    assert await commits(second) == (isolation == "snapshot")


@both
async def test_one_that_only_reads_sees_no_state_that_no_order_has(
    db: slate.Db, isolation: Any, between: Between
) -> None:  # the read-only anomaly
    """A debit is charged for an overdraft, though somebody saw the deposit before it, and no charge."""
    debit = db.transaction(isolation=isolation)
    assert await number(debit, b"checking") + await number(debit, b"savings") == 0
    async with db.transaction(isolation=isolation) as deposit:
        deposit.put(b"savings", b"%d" % (await number(deposit, b"savings") + 20))
    await between(db)
    async with db.transaction(isolation=isolation) as report:
        assert (await number(report, b"checking"), await number(report, b"savings")) == (0, 20)
    debit.put(b"checking", b"-11")  # 10, and 1 for the overdraft
    assert await commits(debit) == (isolation == "snapshot")


@both
async def test_what_was_committed_before_it_began_is_seen(db: slate.Db, isolation: Any, between: Between) -> None:
    for value in range(20):
        async with db.transaction(isolation=isolation) as writing:
            writing.put(b"n", b"%d" % value)
        if value == 10:
            await between(db)
        async with db.transaction(isolation=isolation) as reading:
            assert await number(reading, b"n") == value


@both
async def test_many_that_only_read_never_conflict_nor_spoil_what_others_write(
    db: slate.Db, isolation: Any, between: Between
) -> None:
    async def count() -> None:
        for _ in range(20):
            async with db.transaction(isolation=isolation) as tx:
                tx.put(b"n", b"%d" % (await number(tx, b"n") + 1))
                await asyncio.sleep(0)

    async def read() -> None:
        for _ in range(20):
            async with db.transaction(isolation=isolation) as tx:
                seen = await number(tx, b"n")
                await asyncio.sleep(0)
                assert {int(value) async for _, value in tx.scan()} == ({seen} if seen else set())

    await asyncio.gather(count(), *(read() for _ in range(5)), between(db))
    assert await db.get(b"n") == b"20"
    assert db.metrics()["transactions.conflicts"] == 0


@both
async def test_one_that_outlives_a_takeover_reads_no_more_and_changes_nothing(isolation: Any) -> None:
    store = memory_store()
    async with open_db(store) as old:
        await old.put(b"a", b"1")
        reading, writing = old.transaction(isolation=isolation), old.transaction(isolation=isolation)
        assert await reading.get(b"a") == b"1"
        writing.put(b"a", b"old")
        async with open_db(store) as new:
            async with new.transaction(isolation=isolation) as tx:
                tx.put(b"a", b"%d" % (await number(tx, b"a") + 1))
            with pytest.raises(slate.FencedError):
                await writing.commit()
            with pytest.raises(slate.FencedError):
                await reading.get(b"a")
            assert await contents(new) == {b"a": b"2"}
