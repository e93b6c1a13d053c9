"""A flush folds the operands of its rows, and nobody reads another value for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.write.l0_flusher import L0Flusher
from slate_async.merge_operators.values import AddI64, pack_i64
from tests.engine import CONTIGUOUS, KINDS, Kind, memory_store, open_db
from tests.support.feeds import all_of, taken

SETTINGS: dict[str, Any] = {"merge_operator": "add_i64", "auto_compaction": False}
KIND = pytest.mark.parametrize("kind", KINDS, ids=str)


def stored(db: slate.Db) -> int:
    """Rows of all L0 SSTs."""
    return sum(sst.rows for sst in db._writer.state.manifest.l0)


async def test_what_comes_to_l0_is_one_row_a_key() -> None:
    async with open_db(memory_store(), CONTIGUOUS, **SETTINGS) as db:
        for number in range(300):
            await db.merge(b"%d" % (number % 3), pack_i64(number), await_durable=False)
        await db.merge(b"alone", pack_i64(1))
        await db.flush(l0=True)
        assert stored(db) == 4
        assert await db.get(b"0") == pack_i64(sum(range(0, 300, 3)))
        assert db._writer.state.manifest.history_floor == 300, "the row of a key alone is exact"
        await db.merge(b"0", pack_i64(1))
        await db.flush(l0=True)
        assert stored(db) == 5
        assert await db.get(b"0") == pack_i64(sum(range(0, 300, 3)) + 1)


async def test_operands_are_folded_onto_a_value_that_is_flushed_with_them() -> None:
    async with open_db(memory_store(), CONTIGUOUS, **{**SETTINGS, "merge_operator": "json_merge_patch"}) as db:
        await db.merge(b"b", b'{"x":0}')
        await db.put(b"a", b'{"x":1}')
        await db.merge(b"a", b'{"y":2}')
        await db.merge(b"a", b'{"x":null}')
        await db.merge(b"b", b'{"y":1}')
        await db.flush(l0=True)
        assert stored(db) == 4, "of a, its put and the value above it; patches without a value do not compose"
        assert await db.get(b"a") == b'{"y":2}'
        assert await db.get(b"b") == b'{"x":0,"y":1}'


@pytest.mark.parametrize("why", ["retention", "range delete", "expiry", "operator"])
async def test_operands_stay_where_something_lies_between_them(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SETTINGS, "retention_ms": 3_600_000 if why == "retention" else 0}
    if why == "operator":
        monkeypatch.setattr(AddI64, "fold", lambda self, operands: 1 / 0)
    async with open_db(memory_store(), CONTIGUOUS, **settings) as db:
        for number in (1, 2, 3):
            await db.merge(b"a", pack_i64(number), ttl=60 * number if why == "expiry" else None)
            if why == "range delete" and number == 1:
                await db.delete_range(b"a", b"b")
        await db.flush(l0=True)
        monkeypatch.undo()
        assert stored(db) == (4 if why == "range delete" else 3)
        assert db._writer.state.manifest.history_floor == 0
        assert await db.get(b"a") == pack_i64(5 if why == "range delete" else 6)


@KIND
async def test_who_was_there_before_reads_each_operand(kind: Kind) -> None:
    """A snapshot, a checkpoint, a subscription, a watch: none of them sees a part of a fold, or one twice."""
    store = memory_store()
    async with open_db(store, kind, **SETTINGS) as db:
        await db.merge(b"a", pack_i64(1))
        async with db.snapshot() as snapshot, db.changes(subscription="feed") as feed, db.watch(from_seq=0) as watch:
            kept = await db.checkpoints.create(name="kept")
            assert [change.value for change in await taken(feed, 1)] == [pack_i64(1)]
            await feed.acknowledge(1)
            for number in (2, 4):
                await db.merge(b"a", pack_i64(number))
            async with db.snapshot() as later:
                await db.merge(b"a", pack_i64(8))
                await db.flush(l0=True)
                assert await later.get(b"a") == pack_i64(7)
            assert await snapshot.get(b"a") == pack_i64(1)
            assert [(change.seq, change.value) for change in await taken(feed, 3)] == [
                (2, pack_i64(2)),
                (3, pack_i64(4)),
                (4, pack_i64(8)),
            ]
            assert [(await anext(watch)).value for _ in range(4)] == [pack_i64(number) for number in (1, 2, 4, 8)]
        async with slate.open_reader(store, checkpoint=kept.id) as reader:
            assert await reader.get(b"a") == pack_i64(1)
        await db.flush(l0=True)
        if kind.wal_enabled:
            assert stored(db) == 1
            with pytest.raises(slate.InvalidError, match="from sequence number 4 on"):
                await all_of(db.changes(from_seq=2, follow=False))
        assert [change.seq for change in await all_of(db.changes(from_seq=4, follow=False))] == []
        found = await all_of(db.changes(follow=False))
        total = 0
        for change in found:
            total = slate.unpack_i64(change.value or b"") + (total if change.op == "merge" else 0)
        assert total == 15


@pytest.mark.parametrize("seed", range(6))
async def test_no_read_and_no_feed_finds_another_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the same writes in a database whose flushes fold nothing. Pieces of a flush are small, so that they split
    keys."""
    rng = random.Random(seed)
    monkeypatch.setattr("slate_async.storage.memtable.conversion.SORTED_BYTES", 200)
    steps = [
        (rng.choice(["merge"] * 6 + ["put", "delete", "flush"]), b"%d" % rng.randrange(4), rng.choice([None, None, 60]))
        for _ in range(200)
    ]

    async def play() -> tuple[list[tuple[bytes, bytes]], int]:
        async with open_db(memory_store(), CONTIGUOUS, **SETTINGS) as db:
            for number, (step, key, ttl) in enumerate(steps):
                match step:
                    case "merge":
                        await db.merge(key, pack_i64(number), ttl=ttl, await_durable=False)
                    case "put":
                        await db.put(key, pack_i64(number), ttl=ttl, await_durable=False)
                    case "delete":
                        await db.delete(key, await_durable=False)
                    case _:
                        await db.flush(l0=True)
            await db.flush(l0=True)
            rows = [pair async for pair in db.scan()]
            assert rows == [
                (key, value) for key in sorted({key for _, key, _ in steps}) if (value := await db.get(key))
            ]
            count, floor = stored(db), db._writer.state.manifest.history_floor
            exact = [change.seq for change in await all_of(db.changes(from_seq=floor, follow=False))]
            assert exact == list(range(floor + 1, db._writer.state.manifest.last_seq + 1))
            await db.compact(full=True)
            assert [pair async for pair in db.scan()] == rows
            return rows, count

    rows, folded = await play()
    monkeypatch.setattr(L0Flusher, "_folding", lambda self, entry: None)
    plain_rows, unfolded = await play()
    assert rows == plain_rows
    assert folded < unfolded
