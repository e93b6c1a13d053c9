"""Operands in transactions, namespaces, and under conditions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

import slate_async as slate
from slate_async.merge_operators.values import pack_i64
from slate_async.objectstore.protocol import ObjectStore

SETTINGS = slate.Settings(merge_operator="append", auto_compaction=False)


@pytest.fixture
async def appending(store: ObjectStore) -> AsyncIterator[slate.Db]:
    async with await slate.open(store, settings=SETTINGS) as db:
        yield db


async def test_own_operands_are_read_and_committed(appending: slate.Db) -> None:
    db = appending
    await db.put(b"a", b"1")
    await db.put(b"d", b"1")
    async with db.transaction() as tx:
        tx.merge(b"a", b"2")
        tx.merge(b"a", b"3")
        tx.put(b"b", b"x")
        tx.merge(b"b", b"y")
        tx.delete(b"d")
        tx.merge(b"d", b"z")
        tx.merge(b"e", b"new")
        assert await tx.get(b"a") == b"123"
        assert await tx.get_many([b"e", b"d", b"c", b"a"]) == [b"new", b"z", None, b"123"]
        rows = [(b"a", b"123"), (b"b", b"xy"), (b"d", b"z"), (b"e", b"new")]
        assert [row async for row in tx.scan()] == rows
        assert [row async for row in tx.scan(reverse=True, limit=3)] == rows[:0:-1]
        with pytest.raises(slate.InvalidError, match="written by this transaction"):
            await tx.get_row(b"a")
        assert await db.get(b"a") == b"1"
    assert [row async for row in db.scan()] == rows
    assert [change.op async for change in db.changes(from_seq=2, follow=False)] == [
        "merge", "merge", "put", "merge", "delete", "merge", "merge",
    ]  # fmt: skip


async def test_a_put_replaces_operands_of_its_own(appending: slate.Db) -> None:
    async with appending.transaction() as tx:
        tx.merge(b"a", b"2")
        tx.put(b"a", b"x")
    assert await appending.get(b"a") == b"x"


@pytest.mark.parametrize(("isolation", "conflicts"), [("serializable", False), ("snapshot", True)])
async def test_a_blind_merge_conflicts_as_a_blind_put(
    appending: slate.Db, isolation: slate.Isolation, conflicts: bool
) -> None:
    tx = appending.transaction(isolation=isolation)
    tx.merge(b"a", b"2")
    await appending.merge(b"a", b"1")
    if conflicts:
        with pytest.raises(slate.ConflictError):
            await tx.commit()
    else:
        await tx.commit()
    assert await appending.get(b"a") == (b"1" if conflicts else b"12")


async def test_a_merge_of_a_key_that_was_read_is_a_conflict(appending: slate.Db) -> None:
    tx = appending.transaction()
    tx.merge(b"a", b"2")
    assert await tx.get(b"a") == b"2"
    await appending.merge(b"a", b"1")
    with pytest.raises(slate.ConflictError) as error:
        await tx.commit()
    assert error.value.key == b"a"


async def test_bad_operands_are_refused_at_the_call(store: ObjectStore) -> None:
    async with await slate.open(store, settings=slate.Settings(merge_operator="add_i64")) as db:
        async with db.transaction() as tx:
            with pytest.raises(slate.InvalidError, match="not an operand of add_i64"):
                tx.merge(b"a", b"one")
            tx.merge(b"b", pack_i64(1))
        assert [row async for row in db.scan()] == [(b"b", pack_i64(1))]


async def test_without_an_operator_a_transaction_merges_nothing(db: slate.Db) -> None:
    with pytest.raises(slate.InvalidError, match="has no merge operator"):
        async with db.transaction() as tx:
            tx.merge(b"a", b"1")
    assert await db.get(b"a") is None


async def test_conditions_and_updates_see_what_operands_make(appending: slate.Db) -> None:
    db = appending
    await db.put(b"a", b"1")
    await db.merge(b"a", b"2")
    with pytest.raises(slate.ConflictError):
        await db.put(b"a", b"x", if_absent=True)
    with pytest.raises(slate.ConflictError):
        await db.put(b"a", b"x", if_value=b"2")
    with pytest.raises(slate.ConflictError):
        await db.put(b"a", b"x", if_seq=1)
    await db.put(b"a", b"y", if_value=b"12")
    await db.merge(b"a", b"z")
    assert (await db.update(b"a", lambda value: (value or b"") + b"!")).value == b"yz!"
    await db.merge(b"a", b"?")
    await db.delete(b"a", if_seq=6)
    assert await db.get(b"a") is None


async def test_a_merged_row_says_when_its_value_changes(appending: slate.Db) -> None:
    await appending.put(b"a", b"1")
    await appending.merge(b"a", b"2", ttl=3600)
    row = await appending.get_row(b"a")
    assert row is not None
    assert row.value == b"12"
    assert row.expire_time is not None


async def test_a_namespace_merges_its_own_keys(appending: slate.Db) -> None:
    space = appending.namespace("n")
    await space.merge(b"a", b"1")
    async with space.transaction() as tx:
        tx.merge(b"a", b"2")
        assert await tx.get(b"a") == b"12"
        assert [row async for row in tx.scan()] == [(b"a", b"12")]
    batch = slate.WriteBatch()
    batch.merge(b"a", b"3")
    await space.write(batch)
    assert await space.get(b"a") == b"123"
    assert await appending.get(b"a") is None
    short = appending.namespace("n", default_ttl=60)
    async with short.transaction() as tx:
        tx.merge(b"b", b"1")
        tx.merge(b"c", b"1", ttl=30)
    rows = [await short.get_row(key) for key in (b"b", b"c")]
    assert [round(row.expire_time - row.create_time) for row in rows if row and row.expire_time] == [60, 30]


@pytest.mark.parametrize("seed", range(5))
async def test_transactions_agree_with_a_dict(appending: slate.Db, seed: int) -> None:
    rng, model = random.Random(seed), dict[bytes, bytes]()
    for _ in range(30):
        own = dict(model)
        tx = appending.transaction()
        for _ in range(rng.randrange(1, 8)):
            key = b"%d" % rng.randrange(6)
            match rng.choice(["merge", "merge", "merge", "put", "delete", "get", "scan"]):
                case "merge":
                    operand = b"%d" % rng.randrange(10)
                    tx.merge(key, operand)
                    own[key] = own.get(key, b"") + operand
                case "put":
                    tx.put(key, b"p")
                    own[key] = b"p"
                case "delete":
                    tx.delete(key)
                    own.pop(key, None)
                case "get":
                    assert await tx.get(key) == own.get(key)
                case _:
                    reverse, limit = rng.random() < 0.5, rng.choice([None, 2])
                    found = [row async for row in tx.scan(reverse=reverse, limit=limit)]
                    assert found == sorted(own.items(), reverse=reverse)[:limit]
        if rng.random() < 0.8:
            await tx.commit()
            model = own
        else:
            tx.rollback()
        if rng.random() < 0.2:
            await appending.flush(l0=True)
        if rng.random() < 0.1:
            await appending.compact(full=True)
    assert dict([row async for row in appending.scan()]) == model


async def test_a_batch_with_rows_of_maps_merges_too(appending: slate.Db) -> None:
    people = appending.map("people", key=str, value=bytes, indexes=[slate.Index("first", lambda value: value[:1])])
    await people.put("a", b"x1")
    await appending.merge(b"n", b"1")
    batch = slate.WriteBatch()
    batch.merge(b"n", b"2")
    people.within(batch).put("b", b"y2")
    batch.merge(b"n", b"3")
    await appending.write(batch)
    assert await appending.get(b"n") == b"123"
    assert await people.get("b") == b"y2"
