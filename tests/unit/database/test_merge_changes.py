"""What feeds, relays and ingests do with operands."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges.contents import Contents
from slate_async.bridges.envelopes import LogEnvelope, UpsertEnvelope
from slate_async.engine.changes.change import CHANGE_SCHEMA, Change
from slate_async.merge_operators.values import pack_i64
from tests.engine import CONTIGUOUS, KINDS, START_MS, Kind, ManualClock, memory_store, open_db
from tests.support.feeds import all_of, taken

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
NOW = START_MS / 1000


def one(number: int) -> bytes:
    return pack_i64(number)


@KIND
async def test_operands_come_as_they_were_written(kind: Kind) -> None:
    settings = {"merge_operator": "add_i64", "auto_compaction": False, "retention_ms": 3_600_000}
    async with open_db(memory_store(), kind, **settings) as db:
        await db.put(b"a", one(1))
        await db.merge(b"a", one(2))
        await db.merge(b"a", one(3), ttl=60)
        await db.delete(b"a")
        expected = [
            Change("put", b"a", one(1), 1, NOW, None),
            Change("merge", b"a", one(2), 2, NOW, None),
            Change("merge", b"a", one(3), 3, NOW, NOW + 60),
            Change("delete", b"a", None, 4, NOW, None),
        ]
        assert await all_of(db.changes(follow=False)) == expected
        await db.flush(l0=True)
        assert await all_of(db.changes(follow=False)) == expected
        [batch] = [batch async for batch in db.changes(follow=False).batches()]
        assert batch.schema == CHANGE_SCHEMA
        assert batch.column("op").to_pylist() == ["put", "merge", "merge", "delete"]
        assert batch.column("value").to_pylist() == [one(1), one(2), one(3), None]


@KIND
async def test_what_was_compacted_comes_merged_and_what_follows_as_operands(kind: Kind) -> None:
    async with open_db(memory_store(), kind, merge_operator="add_i64", auto_compaction=False) as db:
        for number in range(12):
            await db.merge(b"%d" % (number % 3), one(number))
        await db.compact(full=True)
        await db.merge(b"1", one(100))
        feed = db.changes(follow=False)
        found = [(change.op, change.key, change.value, change.seq) for change in await all_of(feed)]
        assert feed.snapshot_seq == 12
        assert found == [
            ("put", b"0", one(18), 10),
            ("put", b"1", one(22), 11),
            ("put", b"2", one(26), 12),
            ("merge", b"1", one(100), 13),
        ]
        with pytest.raises(slate.InvalidError, match="12"):
            await all_of(db.changes(from_seq=4, follow=False))
        assert [change.seq for change in await all_of(db.changes(from_seq=12, follow=False))] == [13]


async def test_a_snapshot_in_pieces_merges_with_what_the_pieces_before_gave() -> None:
    settings = {"merge_operator": "add_i64", "auto_compaction": False, "l0_compact_ssts": 2}
    clock = ManualClock()
    async with open_db(memory_store(), CONTIGUOUS, clock=clock, **settings) as db:
        for number in range(30):
            await db.put(b"%02d" % number, one(number))
        await db.put(b"large", random.Random(1).randbytes(1 << 20))
        await db.compact(full=True)
        for part in (range(15), range(15, 30)):
            for number in part:
                clock.wall_ms += 1
                await db.merge(b"%02d" % number, one(1000))
            await db.flush(l0=True)
        await db.compact()
        assert db.status().sorted_runs == 2
        expected = [(b"%02d" % number, one(1000 + number)) for number in range(30)]
        for nbytes in (100, 1000, 1 << 20):
            found = await all_of(db.changes(follow=False, sort_memory_bytes=nbytes, sort_spill_bytes=0))
            assert [(change.key, change.value) for change in found if change.key != b"large"] == expected


async def test_an_operand_that_expires_takes_no_row_from_a_snapshot() -> None:
    clock = ManualClock()
    settings = {"merge_operator": "add_i64", "auto_compaction": False}
    async with open_db(memory_store(), CONTIGUOUS, clock=clock, **settings) as db:
        await db.put(b"a", one(1))
        for number in range(30):
            await db.put(b"b%02d" % number, one(number))
        await db.merge(b"a", one(2), ttl=60)
        await db.compact(full=True)
        async with db.changes(from_seq=0, subscription="s") as feed:
            first = await taken(feed, 10)
            assert {change.key for change in first} == {b"b%02d" % number for number in range(10)}
            await feed.acknowledge(feed.seq)
        clock.wall_ms += 61_000
        async with db.changes(subscription="s") as feed:
            rest = await taken(feed, 21)
        assert [(change.key, change.value, change.seq) for change in rest if change.key == b"a"] == [(b"a", one(1), 32)]


def merged(seq: int) -> pa.RecordBatch:
    row = {"op": "merge", "key": b"k", "value": one(1), "seq": seq, "create_time": 0, "expire_time": None}
    return pa.RecordBatch.from_pylist([row], schema=CHANGE_SCHEMA)


def test_relays_log_operands_and_refuse_to_take_them_for_values() -> None:
    [update] = LogEnvelope().updates(merged(7), 0).to_pylist()
    assert (update["op"], update["value"]) == ("merge", one(1))
    with pytest.raises(slate.InvalidError, match=r"takes no operands, and b'k' was merged at sequence number 7"):
        UpsertEnvelope(Contents(1 << 20, "orders")).updates(merged(7), 0)


async def test_an_ingest_takes_no_operands(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/db"
    async with await slate.open(place, settings=slate.Settings(merge_operator="add_i64")) as db:
        await db.merge(b"k", one(2))
        rows = pa.record_batch({"key": [b"k"], "value": [one(1)], "op": ["merge"]})
        async with slate.Environment() as environment, environment.open_ingest(place) as job:
            with pytest.raises(slate.InvalidError, match="op is 'merge', neither 'put' nor 'delete'"):
                await job.write([rows])
        assert await db.get(b"k") == one(2)


async def test_watchers_are_given_operands() -> None:
    async with open_db(memory_store(), CONTIGUOUS, merge_operator="add_i64") as db, db.watch(prefix=b"a") as watch:
        await db.merge(b"a", one(2))
        await db.merge(b"b", one(2))
        await db.put(b"a", one(5))
        async with asyncio.timeout(10):
            found = [await anext(aiter(watch)) for _ in range(2)]
        assert [(change.op, change.value) for change in found] == [("merge", one(2)), ("put", one(5))]
