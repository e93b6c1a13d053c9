"""Range deletes in transactions: own ones in every read, conflicts with what others write and read, one commit."""

from __future__ import annotations

import random
from typing import Any

import pytest

import slate_async as slate
from slate_async import sync
from slate_async.types import ABOVE_ALL_KEYS
from tests.engine import CONTIGUOUS_SST, contents, memory_store, open_db

ISOLATIONS: list[Any] = ["serializable", "snapshot"]
KEYS = [b"%c" % letter for letter in b"abcdefghijkl"]


async def fill(db: slate.Db, keys: list[bytes] = KEYS) -> None:
    for key in keys:
        await db.put(key, b"old " + key, await_durable=False)


async def keys_of(scan: slate.TransactionScan) -> list[bytes]:
    return [key async for key, _ in scan]


async def conflict(tx: slate.Transaction) -> slate.ConflictError:
    with pytest.raises(slate.ConflictError) as caught:
        await tx.commit()
    return caught.value


@pytest.mark.parametrize("flushed", [False, True])
async def test_own_range_deletes_are_seen_by_every_read(flushed: bool) -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        if flushed:
            await db.flush(l0=True)
        tx = db.transaction()
        tx.put(b"b", b"1")
        tx.put(b"k", b"1")
        tx.delete_range(b"b", b"d")
        tx.delete_range(b"f", b"h")
        tx.delete_prefix(b"g")
        tx.put(b"c", b"2")
        tx.put(b"ff", b"2")
        seen = [b"a", b"c", b"d", b"e", b"ff", b"h", b"i", b"j", b"k", b"l"]
        assert await keys_of(tx.scan()) == seen
        assert await keys_of(tx.scan(reverse=True)) == seen[::-1]
        for limit in range(12):
            assert await keys_of(tx.scan(limit=limit)) == seen[:limit]
            assert await keys_of(tx.scan(limit=limit, reverse=True)) == seen[::-1][:limit]
        assert await keys_of(tx.scan(b"b", b"c")) == []
        assert await keys_of(tx.scan(b"b", b"cc", reverse=True)) == [b"c"]
        assert [await tx.get(key) for key in (b"a", b"b", b"c", b"g", b"k")] == [b"old a", None, b"2", None, b"1"]
        assert await tx.get_many([b"g", b"c", b"b", b"a"]) == [None, b"2", None, b"old a"]
        with pytest.raises(slate.InvalidError, match="written by this transaction"):
            await tx.get_row(b"g")
        assert await contents(db) == {key: b"old " + key for key in KEYS}
        handle = await tx.commit()
        assert list(await contents(db)) == seen
        ops = [(change.op, change.key, change.value) async for change in db.changes(from_seq=12, follow=False)]
        assert ops == [
            ("delete_range", b"b", b"d"),
            ("delete_range", b"f", b"h"),
            ("put", b"k", b"1"),
            ("put", b"c", b"2"),
            ("put", b"ff", b"2"),
        ]
        assert handle.seq == 12 + len(ops)


@pytest.mark.parametrize("seed", range(12))
async def test_any_steps_agree_with_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    async with open_db(memory_store(), merge_operator="append") as db:
        model: dict[bytes, bytes] = {}
        for _ in range(12):
            for key in rng.sample(KEYS, 4):
                await db.put(key, b"p", await_durable=False)
                model[key] = b"p"
            if rng.random() < 0.3:
                await db.flush(l0=True)
            async with db.transaction(await_durable=False) as tx:
                own = dict(model)
                for _ in range(rng.randrange(1, 12)):
                    step(rng, tx, own)
                    start, end = bounds(rng)
                    expected = {key: own[key] for key in sorted(own) if (start or b"") <= key and within(key, end)}
                    assert dict([row async for row in tx.scan(start, end)]) == expected
                    backwards = [row async for row in tx.scan(start, end, reverse=True, limit=3)]
                    assert backwards == list(expected.items())[::-1][:3]
                    keys = rng.sample(KEYS, 3)
                    assert await tx.get_many(keys) == [own.get(key) for key in keys]
                    assert await tx.get(keys[0]) == own.get(keys[0])
            model = own
            assert await contents(db) == model
        await db.compact(full=True)
        assert await contents(db) == model


def within(key: bytes, end: bytes | None) -> bool:
    return end is None or key < end


def bounds(rng: random.Random) -> tuple[bytes | None, bytes | None]:
    start, end = sorted(rng.sample(KEYS, 2))
    return None if rng.random() < 0.1 else start, None if rng.random() < 0.1 else end


def step(rng: random.Random, tx: slate.Transaction, own: dict[bytes, bytes]) -> None:
    key = rng.choice(KEYS)
    match rng.randrange(5):
        case 0:
            tx.put(key, b"t")
            own[key] = b"t"
        case 1:
            tx.delete(key)
            own.pop(key, None)
        case 2:
            tx.merge(key, b"m")
            own[key] = own.get(key, b"") + b"m"
        case 3:
            tx.delete_prefix(key)
            own.pop(key, None)
        case _:
            start, end = bounds(rng)
            tx.delete_range(start, end)
            for key in [key for key in own if (start or b"") <= key and within(key, end)]:
                del own[key]


async def test_what_others_read_of_a_range_is_a_conflict_for_them() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        for read in (b"d", b"dd", b"f"):
            point, span, beside = db.transaction(), db.transaction(), db.transaction()
            await point.get(read)
            assert await keys_of(span.scan(read, read + b"\xff")) in ([read], [])
            await beside.get(b"g")
            await keys_of(beside.scan(b"a", b"c"))
            for tx in (point, span, beside):
                tx.put(b"~", b"")
            async with db.transaction() as deleting:
                deleting.delete_range(b"c", b"g")
                deleting.put(b"k", b"")
            assert (await conflict(point)).key == read
            await conflict(span)
            await beside.commit()


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_blind_range_delete_conflicts_as_a_blind_put(isolation: slate.Isolation) -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        for key, met in ((b"b", False), (b"c", True), (b"new", False), (b"e\xff", True), (b"f", False)):
            tx = db.transaction(isolation=isolation)
            tx.delete_range(b"c", b"f")
            await db.put(key, b"meanwhile")
            if met and isolation == "snapshot":
                assert (await conflict(tx)).key == key
                assert await db.get(key) == b"meanwhile"
            else:
                await tx.commit()
                assert (await db.get(key) is None) == met
        first, second = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
        first.delete_range(b"a", b"c")
        second.delete_range(b"b", b"d")
        await first.commit()
        if isolation == "snapshot":
            await conflict(second)
        else:
            await second.commit()


async def test_what_it_read_before_it_deleted_it_is_a_conflict_and_what_it_deleted_is_not() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        tx = db.transaction()
        assert await tx.get(b"d") == b"old d"
        tx.delete_range(b"c", b"f")
        await db.put(b"d", b"new")
        assert (await conflict(tx)).key == b"d"
        for key, met in ((b"b", True), (b"d", False), (b"g", True), (b"i", False)):
            tx = db.transaction()
            tx.delete_range(b"c", b"f")
            await keys_of(tx.scan(b"a", b"h"))
            assert await tx.get(b"e") is None
            await db.put(key, b"new")
            if met:
                assert (await conflict(tx)).key == key
            else:
                await tx.commit()


async def test_a_transact_that_deletes_a_range_runs_again() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        ran = 0

        async def move(tx: slate.Transaction) -> int:
            nonlocal ran
            ran += 1
            found = await keys_of(tx.scan(b"c", b"f"))
            if ran == 1:
                await db.put(b"cc", b"late")
            tx.delete_range(b"c", b"f")
            for key in found:
                tx.put(b"moved " + key, b"")
            return len(found)

        assert await db.transact(move) == 4
        assert ran == 2
        assert await db.get(b"moved cc") == b""
        assert await db.get(b"cc") is None


async def test_ranges_of_a_transaction_are_joined_and_bounded() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        tx = db.transaction()
        tx.delete_range(b"b", b"d")
        tx.delete_range(b"c", b"e")
        tx.delete_range(b"e", b"f")
        tx.delete_range(b"k", None)
        assert await keys_of(tx.scan()) == [b"a", b"f", b"g", b"h", b"i", b"j"]
        handle = await tx.commit()
        assert handle.seq == 14, "two rows"
        await db.put(ABOVE_ALL_KEYS[1:], b"highest")
        async with db.transaction() as tx:
            tx.delete_range(None, None)
            assert await keys_of(tx.scan()) == []
        assert await contents(db) == {}
        for start, end in ((b"b", b"a"), (b"b", b"b"), ("a", b"b")):
            tx = db.transaction()
            with pytest.raises(slate.InvalidError):
                tx.delete_range(start, end)  # type: ignore[arg-type]
            with pytest.raises(slate.InvalidError):
                tx.delete_prefix(None)  # type: ignore[arg-type]
            assert isinstance(await tx.commit(), slate.WriteHandle)
        assert db.snapshot().seq == 16


async def test_the_refusals_are_those_of_the_database() -> None:
    async with open_db(memory_store(), CONTIGUOUS_SST) as db:
        await fill(db)
        tx = db.transaction()
        tx.put(b"a", b"never")
        tx.delete_range(b"b", b"c")
        with pytest.raises(slate.InvalidError, match="write-ahead log") as refused:
            await tx.commit()
        assert refused.value.outcome == "not_applied"
        assert await contents(db) == {key: b"old " + key for key in KEYS}
        assert db.metrics()["transactions.open"] == 0
    async with open_db(memory_store()) as db:
        tx = db.transaction()
        tx.delete_range(b"b", b"c")
        tx.rollback()
        with pytest.raises(slate.ClosedError):
            tx.delete_range(b"b", b"c")


async def test_a_namespace_deletes_ranges_of_its_own_keys() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        space, other = db.namespace("one"), db.namespace("two")
        for each in (space, other):
            await each.put(b"a", b"")
            await each.put(b"b", b"")
        async with space.transaction() as tx:
            tx.delete_range(b"b", None)
            tx.put(b"c", b"")
            assert await keys_of(tx.scan(reverse=True)) == [b"c", b"a"]
            assert await tx.get(b"b") is None
        assert list(await contents(space)) == [b"a", b"c"]
        async with space.transaction() as tx:
            tx.delete_prefix(b"a")
            tx.delete_range(None, b"b")
        assert list(await contents(space)) == [b"c"]
        assert list(await contents(other)) == [b"a", b"b"]
        assert len(await contents(db)) == len(KEYS) + 3


def test_threads_have_them_too() -> None:
    with sync.open(memory_store()) as db:
        for key in KEYS:
            db.put(key, b"", await_durable=False)
        with db.transaction() as tx:
            tx.delete_range(b"b", b"k")
            tx.delete_prefix(b"k")
            assert [key for key, _ in tx.scan()] == [b"a", b"l"]
        assert [key for key, _ in db.scan()] == [b"a", b"l"]
        space = db.namespace("n")
        space.put(b"a", b"")
        with space.transaction() as tx:
            tx.delete_range(None, None)
            tx.put(b"b", b"")
        assert [key for key, _ in space.scan()] == [b"b"]
        assert space.clear().seq > 0
        assert [key for key, _ in space.scan()] == []
        assert [key for key, _ in db.scan()] == [b"a", b"l"]
