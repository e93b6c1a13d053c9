"""Operands in what else a database has: checkpoints, clones, mirrors, time travel, snapshots, ingests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.merge_operators.values import pack_i64
from tests.engine import KINDS, Kind, contents, memory_store, on, open_db, open_reader, runtime


def one(number: int) -> bytes:
    return pack_i64(number)


SETTINGS = slate.Settings(merge_operator="add_i64", auto_compaction=False)


async def test_clones_mirrors_and_checkpoints_merge_as_the_database_does(tmp_path: Path) -> None:
    async with await slate.open(tmp_path / "a", settings=SETTINGS) as db:
        await db.put(b"stored", one(1))
        await db.merge(b"stored", one(2))
        await db.flush(l0=True)
        await db.merge(b"stored", one(3))
        await db.merge(b"logged", one(4))
        checkpoint = await db.checkpoints.create(name="then")
        await db.merge(b"stored", one(100))
    then = {b"stored": one(6), b"logged": one(4)}
    async with await slate.open_admin(tmp_path / "a") as admin:
        await admin.clone(tmp_path / "clone", checkpoint=checkpoint.id)
        await admin.mirror("then", tmp_path / "mirror")
        assert not (await admin.verify()).findings
    async with await slate.open_reader(tmp_path / "a", checkpoint="then") as reader:
        assert await contents(reader) == then
    for copy in ("clone", "mirror"):
        async with await slate.open(tmp_path / copy) as db:
            assert await contents(db) == then, copy
            await db.merge(b"logged", one(1))
            assert await db.increment(b"stored") == 7
            await db.compact(full=True)
            assert await contents(db) == {b"stored": one(7), b"logged": one(5)}, copy
        async with await slate.open_admin(tmp_path / copy) as admin:
            assert not (await admin.verify()).findings
    async with await slate.open(tmp_path / "a") as db:
        assert await contents(db) == {b"stored": one(106), b"logged": one(4)}


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_snapshots_and_time_travel_see_what_was_merged_by_then(kind: Kind) -> None:
    async with open_db(memory_store(), kind, merge_operator="add_i64", retention_ms=3_600_000) as db:
        snapshots = []
        for number in range(1, 7):
            await db.merge(b"n", one(number))
            snapshots.append(db.snapshot())
            if number % 2:
                await db.flush(l0=True)
            if number == 4:
                await db.compact(full=True)
        sums = [one(number * (number + 1) // 2) for number in range(1, 7)]
        for _ in range(2):
            assert [await snapshot.get(b"n") for snapshot in snapshots] == sums
            assert [await db.as_of(seq=seq).get(b"n") for seq in range(1, 7)] == sums
            await db.compact(full=True)
        for snapshot in snapshots:
            snapshot.close()


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_an_ingest_comes_above_earlier_operands_and_below_later_ones(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind, merge_operator="add_i64") as db:
        await db.merge(b"n", one(5))
        await db.merge(b"gone", one(5))
        async with on(runtime()).open_ingest(store, job_id="load", name="memory://test") as job:
            await job.write([pa.table({"key": [b"gone", b"n"], "value": [None, one(100)], "op": ["delete", "put"]})])
            await job.commit(wait=False)
        while db.status().pending_ingests or not db.status().last_seq > 2:
            await db.confirm()
        await db.merge(b"n", one(1))
        await db.merge(b"gone", one(2))
        expected = {b"n": one(101), b"gone": one(2)}
        for _ in range(2):
            assert await contents(db) == expected
            assert {key: await db.get(key) for key in expected} == expected
            async with open_reader(store) as reader:
                assert await contents(reader) == expected
            await db.compact(full=True)
