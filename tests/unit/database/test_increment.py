"""Increments: atomic, exact, and with a token counted once."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from slate_async.merge_operators.values import pack_i64, unpack_i64
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import Kind, StoreInHand, contents, memory_store, open_db, settle, starts
from tests.unit.database.away import SHORT, back, failed, outages


async def test_it_returns_the_new_number(db: slate.Db) -> None:
    assert await db.increment(b"n") == 1
    assert await db.increment(b"n", 41) == 42
    assert await db.increment(b"n", -50) == -8
    assert await db.get(b"n") == pack_i64(-8)
    await db.put(b"n", pack_i64(2**63 - 1))
    assert await db.increment(b"n") == -(2**63)


async def test_concurrent_ones_lose_nothing(db: slate.Db) -> None:
    found = await asyncio.gather(*(db.increment(b"n") for _ in range(300)))
    assert sorted(found) == list(range(1, 301))


async def test_operands_below_it_count(store: ObjectStore) -> None:
    settings = slate.Settings(merge_operator="add_i64", auto_compaction=False)
    async with await slate.open(store, settings=settings) as db:
        await db.merge(b"n", pack_i64(5))
        assert await db.increment(b"n", 2) == 7
        await db.merge(b"n", pack_i64(1))
        await db.flush(l0=True)
        assert await db.increment(b"n", token=b"t") == 9
        assert await db.get(b"n") == pack_i64(9)


async def test_with_a_token_it_counts_once(db: slate.Db) -> None:
    assert await db.increment(b"n", 5, token=b"t1") == 5
    assert await db.increment(b"n", 2) == 7
    assert await db.increment(b"n", 5, token=b"t1") == 5
    assert await db.get(b"n") == pack_i64(7)
    assert await asyncio.gather(*(db.increment(b"n", token=b"t2") for _ in range(20))) == [8] * 20
    assert await asyncio.gather(*(db.increment(b"n", token=b"u%d" % number) for number in range(20))) == list(
        range(9, 29)
    )


async def test_a_retry_of_a_cancelled_one_counts_once(db: slate.Db) -> None:
    task = asyncio.create_task(db.increment(b"n", token=b"t"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await db.increment(b"n", token=b"t") == 1
    assert await db.get(b"n") == pack_i64(1)


@pytest.mark.parametrize("landed", [True, False])
async def test_a_retry_of_one_whose_outcome_is_unknown_counts_once(kind: Kind, landed: bool) -> None:
    """Number and token are in the same batch, so the log holds both or none."""
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        assert await db.increment(b"n", 5, token=b"t0") == 5
        assert await db.get_many([b"n", b"t1"]) == [
            pack_i64(5),
            None,
        ]  # so that it is in memory where the log holds SSTs
        store.down, store.landing = True, lambda key: landed and key.startswith(("log/", "sst/"))
        (sent,) = starts(db.increment(b"n", 2, token=b"t1"))
        assert await failed(sent) == "unknown"
        store.down = False
        await back(db)
        assert await db.get(b"n") == pack_i64(7 if landed else 5)
        assert [await db.increment(b"n", 2, token=b"t1") for _ in range(2)] == [7, 7]
    async with open_db(store, kind) as db:  # as a client asks the service that comes next
        assert await db.increment(b"n", 2, token=b"t1") == 7
        assert await db.increment(b"n", 2, token=b"t2") == 9
        assert await contents(db) == {b"n": pack_i64(9), b"t0": pack_i64(5), b"t1": pack_i64(7), b"t2": pack_i64(9)}


async def test_a_retry_answers_when_what_it_repeats_is_durable() -> None:
    store = StoreInHand(memory_store())
    async with open_db(store) as db:
        await db.put(b"other", b"")
        store.hold = True
        first, again = starts(db.increment(b"n", token=b"t"), db.increment(b"n", token=b"t"))
        await settle()
        assert await db.get(b"t") == pack_i64(1)
        assert not first.done()
        assert not again.done()
        store.release()
        assert [await first, await again] == [1, 1]


async def test_number_and_token_expire_by_themselves(db: slate.Db) -> None:
    await db.increment(b"n", token=b"t", ttl=60, token_ttl=30)
    rows = [await db.get_row(key) for key in (b"n", b"t")]
    assert [round(row.expire_time - row.create_time) for row in rows if row and row.expire_time] == [60, 30]


@pytest.mark.parametrize("by", [True, 1.5, "1", 2**63, -(2**63) - 1, None])
async def test_what_is_no_number_is_refused(db: slate.Db, by: object) -> None:
    with pytest.raises(slate.InvalidError, match="an int of 64 bits") as error:
        await db.increment(b"n", by)  # type: ignore[arg-type]
    assert error.value.outcome == "not_applied"
    assert await db.get(b"n") is None


async def test_a_value_that_is_no_number_stays(db: slate.Db) -> None:
    await db.put(b"n", b"one")
    for token in (None, b"t"):
        with pytest.raises(slate.InvalidError, match=r"b'n' holds no number: .* has 8 bytes") as error:
            await db.increment(b"n", token=token)
        assert error.value.outcome == "not_applied"
    await db.put(b"t", b"mine")
    with pytest.raises(slate.InvalidError, match="b't' holds no number"):
        await db.increment(b"m", token=b"t")
    with pytest.raises(slate.InvalidError, match="token_ttl goes with token"):
        await db.increment(b"n", token_ttl=5)
    with pytest.raises(slate.InvalidError, match="a key of its own"):
        await db.increment(b"n", token=b"n")
    assert [pair async for pair in db.scan()] == [(b"n", b"one"), (b"t", b"mine")]


async def test_a_namespace_has_its_own(db: slate.Db) -> None:
    space = db.namespace("tenant")
    assert await space.increment(b"n", 3, token=b"t") == 3
    assert await db.increment(b"n", token=b"t") == 1
    assert await space.increment(b"n", 3, token=b"t") == 3
    value = await space.get(b"n")
    assert value is not None
    assert unpack_i64(value) == 3
