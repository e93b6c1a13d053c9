"""Operands written to a database: what reads, snapshots, batches and openings make of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import slate_async as slate
from slate_async.merge_operators import registry
from slate_async.merge_operators.guarded import MergeError
from slate_async.merge_operators.values import pack_i64, unpack_i64
from slate_async.objectstore.protocol import ObjectStore

SMALL: dict[str, Any] = {"merge_operator": "add_i64", "auto_compaction": False}


def counters(**settings: Any) -> slate.Settings:
    return slate.Settings(**{**SMALL, **settings})


async def test_a_read_adds_up_what_was_written(store: ObjectStore) -> None:
    async with await slate.open(store, settings=counters()) as db:
        for number in (1, 2, 39):
            await db.merge(b"visits", pack_i64(number))
        assert await db.get(b"visits") == pack_i64(42)
        await db.put(b"visits", pack_i64(100))
        await db.merge(b"visits", pack_i64(-1))
        assert await db.get_many([b"visits", b"other"]) == [pack_i64(99), None]
        await db.delete(b"visits")
        assert await db.get(b"visits") is None
        await db.merge(b"visits", pack_i64(7))
        row = await db.get_row(b"visits")
        assert row is not None
        assert (row.value, row.seq) == (pack_i64(7), 7)


@pytest.mark.parametrize("wal_enabled", [True, False])
@pytest.mark.parametrize("seed", range(6))
async def test_every_read_agrees_with_a_dict(store: ObjectStore, seed: int, wal_enabled: bool) -> None:
    rng = random.Random(seed)
    model: dict[bytes, int] = {}
    then: tuple[slate.Snapshot, dict[bytes, int]] | None = None
    settings = counters(
        wal_enabled=wal_enabled,
        sst_bytes=rng.choice([150, 1 << 20]),
        compaction_style=rng.choice(["leveled", "size_tiered"]),
        level_base_bytes=500,
        min_merge_width=2,
        retention_ms=rng.choice([0, 3_600_000]),
    )
    db = await slate.open(store, settings=settings)
    for _ in range(60):
        key = b"%d" % rng.randrange(8)
        match rng.choice(["merge"] * 6 + ["put", "delete", "range", "batch", "flush", "compact", "snapshot", "open"]):
            case "merge":
                model[key] = model.get(key, 0) + 1
                await db.merge(key, pack_i64(1), await_durable=False)
            case "put":
                model[key] = 10
                await db.put(key, pack_i64(10), await_durable=False)
            case "delete":
                model.pop(key, None)
                await db.delete(key, await_durable=False)
            case "range" if wal_enabled:
                end = b"%d" % rng.randrange(int(key) + 1, 9)
                for hidden in [other for other in model if key <= other < end]:
                    del model[hidden]
                await db.delete_range(key, end, await_durable=False)
            case "batch":
                batch = slate.WriteBatch()
                for other in (b"0", b"1", key):
                    batch.merge(other, pack_i64(5))
                    model[other] = model.get(other, 0) + 5
                await db.write(batch, await_durable=False)
            case "flush":
                await db.flush(l0=True)
            case "compact":
                await db.compact(**rng.choice([{"full": True}, {}, {"level": 0}, {"start": key, "end": key + b"~"}]))
            case "snapshot" if then is None:
                then = db.snapshot(), dict(model)
            case "open":
                if then is not None:
                    then[0].close()
                    then = None
                await db.close()
                db = await slate.open(store, settings=settings)
        await check(db, model)
        if then is not None:
            await check(*then)
    if then is not None:
        then[0].close()
    await db.close()
    async with await slate.open_reader(store) as reader:
        await check(reader, model)


async def check(db: slate.Readable, model: dict[bytes, int]) -> None:
    wanted = sorted((key, pack_i64(number)) for key, number in model.items())
    keys = [b"%d" % number for number in range(8)]
    assert [row async for row in db.scan()] == wanted
    assert [row async for row in db.scan(reverse=True)] == wanted[::-1]
    found = await db.get_many(keys)
    assert found == [await db.get(key) for key in keys]
    assert {key: unpack_i64(value) for key, value in zip(keys, found, strict=True) if value is not None} == model


async def test_the_operator_stays_as_it_was_chosen(store: ObjectStore) -> None:
    async with await slate.open(store, settings=counters()) as db:
        await db.merge(b"a", pack_i64(1))
    async with await slate.open(store) as db:
        assert await db.get(b"a") == pack_i64(1)
    with pytest.raises(slate.InvalidError, match="merge_operator is fixed when a database is created"):
        await slate.open(store, settings=counters(merge_operator="max"))


async def test_an_unknown_operator_makes_no_database(store: ObjectStore) -> None:
    with pytest.raises(slate.ConfigError, match="'longest', which this process does not have"):
        await slate.open(store, settings=counters(merge_operator="longest"))
    assert [info.key async for info in store.list("")] == []


async def test_without_an_operator_nothing_is_merged(store: ObjectStore) -> None:
    async with await slate.open(store) as db:
        batch = slate.WriteBatch()
        batch.merge(b"a", pack_i64(1))
        for refused in (lambda: db.merge(b"a", pack_i64(1)), lambda: db.write(batch)):
            with pytest.raises(slate.InvalidError, match="has no merge operator") as error:
                await refused()
            assert error.value.outcome == "not_applied"
        assert await db.get(b"a") is None


async def test_a_bad_operand_is_refused_at_the_call(store: ObjectStore) -> None:
    async with await slate.open(store, settings=counters()) as db:
        batch = slate.WriteBatch()
        batch.merge(b"a", pack_i64(1))
        batch.merge(b"b", b"one")
        for refused in (lambda: db.merge(b"b", b"one"), lambda: db.write(batch)):
            with pytest.raises(slate.InvalidError, match="not an operand of add_i64") as error:
                await refused()
            assert error.value.outcome == "not_applied"
        assert await db.get_many([b"a", b"b"]) == [None, None]


async def test_a_bad_value_costs_its_own_key_alone(store: ObjectStore) -> None:
    async with await slate.open(store, settings=counters()) as db:
        await db.put(b"a", b"one")
        await db.merge(b"a", pack_i64(1))
        await db.merge(b"b", pack_i64(1))
        await db.flush(l0=True)
        await db.compact(full=True)
        with pytest.raises(MergeError, match="b'a' cannot be merged by add_i64"):
            await db.get(b"a")
        assert await db.get(b"b") == pack_i64(1)
        await db.delete(b"a")
        assert [key async for key, _ in db.scan()] == [b"b"]


class Counting:
    """As ``append``, and how often it was called."""

    name = "test_counting"

    def __init__(self) -> None:
        self.applied = 0

    def check(self, operand: bytes) -> None:
        """Any bytes."""

    def fold(self, operands: Sequence[bytes]) -> None:
        """There is none."""

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        self.applied += 1
        return b"".join([base or b"", *operands])


async def test_a_get_over_many_operands_calls_the_operator_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    counting = Counting()
    slate.register_merge_operator(counting)
    async with await slate.open(store, settings=counters(merge_operator="test_counting")) as db:
        await db.put(b"a", b"0")
        for number in range(300):
            await db.merge(b"a", b"1", await_durable=False)
            if number == 150:
                await db.flush(l0=True)
        await db.put(b"b", b"x")
        counting.applied = 0
        assert await db.get(b"a") == b"0" + b"1" * 300
        assert counting.applied == 1
        assert await db.get_many([b"a", b"b"]) == [b"0" + b"1" * 300, b"x"]
        assert counting.applied == 2
        assert [key async for key, _ in db.scan()] == [b"a", b"b"]
        assert counting.applied == 3
