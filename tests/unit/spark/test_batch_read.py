"""A batch read without Spark: what tasks do in their processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.spark import batch_read
from slate_async.spark.batch_read import LARGE_ROWS, BatchReader, joined
from slate_async.spark.plan import KeyPartition
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.typed_rows import LAST_MS, ROW
from tests.engine import KINDS

LIFETIME_S = 3_600.0


def aged(partition: KeyPartition, seconds: float) -> KeyPartition:
    """As if it had been planned earlier."""
    lease = partition.plan.lease
    assert lease is not None
    earlier = replace(lease, made_ms=lease.made_ms - int(1000 * seconds))
    return KeyPartition(replace(partition.plan, lease=earlier), partition.start, partition.end)


async def test_tasks_lengthen_the_checkpoint_they_read(tmp_path: Path) -> None:
    """However short they are: once in a quarter of its life, the first one for all."""
    async with slate.open(tmp_path, settings=KINDS[0].settings(sst_bytes=2_000, block_bytes=500)) as db:
        for number in range(300):
            await db.put(b"%04d" % number, bytes(20), await_durable=False)
        await db.flush(l0=True)
    options = {"path": str(tmp_path), "checkpointLifetime": f"{LIFETIME_S}", "partitionBytes": "2000"}
    reader = BatchReader(ReadOptions.of(options), ROW)
    partitions = [partition for partition in reader.partitions() if isinstance(partition, KeyPartition)]
    assert len(partitions) > 1
    async with slate.open_admin(tmp_path) as admin:

        async def expiry() -> float:
            (info,) = await admin.checkpoints.list()
            assert info.expire_time is not None
            return info.expire_time

        made = await expiry()
        assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) == 300
        assert await expiry() == made
        (info,) = await admin.checkpoints.list()
        await admin.checkpoints.refresh(info.id, LIFETIME_S / 2)
        list(reader.read(aged(partitions[0], LIFETIME_S / 2)))
        lengthened = await expiry()
        assert lengthened >= made
        list(reader.read(aged(partitions[1], LIFETIME_S / 2)))
        assert await expiry() == lengthened


async def test_what_cannot_be_planned_leaves_no_checkpoint(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db:
        await db.put(b"key", b"value")
        reader = BatchReader(ReadOptions.of({"path": str(tmp_path), "atSeq": "2"}), ROW)
        with pytest.raises(slate.InvalidError, match="2"):
            reader.partitions()
        assert [checkpoint for checkpoint in await db.checkpoints.list() if checkpoint.owner == "user"] == []


async def test_times_beyond_those_of_spark_are_its_last_one(tmp_path: Path) -> None:
    """A row that expires after the year 294247 is a row like any other."""
    async with slate.open(tmp_path) as db:
        for key, ttl in ((b"a", None), (b"b", 60.0), (b"c", 1e15)):
            await db.put(key, b"value", ttl=ttl)
    reader = BatchReader(ReadOptions.of({"path": str(tmp_path)}), ROW)
    [batch] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    created = batch.column("create_time").cast(pa.int64()).to_pylist()
    assert batch.column("expire_time").cast(pa.int64()).to_pylist() == [None, created[1] + 60_000_000, LAST_MS * 1000]


async def batches(sizes: list[int]) -> AsyncIterator[pa.RecordBatch]:
    for size in sizes:
        yield pa.record_batch([pa.array(range(size), pa.int64())], names=["number"])


async def test_small_batches_become_large_ones() -> None:
    assert [batch.num_rows async for batch in joined(batches([10, 20, 30, 100, 5]), 60)] == [60, 100, 5]
    assert [batch async for batch in joined(batches([]), 60)] == []


async def test_batches_stay_small_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_read, "BATCH_BYTES", 8 * 250)
    assert [batch.num_rows async for batch in joined(batches([100, 100, 100]), 1_000)] == [200, 100]


async def test_large_batches_are_not_copied_to_be_joined() -> None:
    sizes = [10, LARGE_ROWS, 10, 20, LARGE_ROWS + 1]
    assert [batch.num_rows async for batch in joined(batches(sizes), 1 << 20)] == [10, LARGE_ROWS, 30, LARGE_ROWS + 1]
