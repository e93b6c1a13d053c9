"""Operands and range deletes on Spark: compacted there as here, read merged, streamed as they were written, and refused
by name where they cannot be loaded."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Row, SparkSession

import slate_async as slate
from slate_async.merge_operators import registry
from slate_async.merge_operators.values import AddI64
from slate_async.spark import SparkExecutor
from tests.engine import CONTIGUOUS
from tests.spark.test_compaction import SETTINGS, Twice, rows

pytestmark = pytest.mark.timeout(300)


async def fill(path: Path, **settings: object) -> dict[bytes, bytes]:
    """Flush after flush of puts, operands, deletes and range deletes; what is there in the end."""
    rng = random.Random(3)
    made = CONTIGUOUS.settings(**{**SETTINGS, "merge_operator": "add_i64", **settings})
    async with slate.open(path, settings=made) as db:
        for _ in range(3):
            batch = slate.WriteBatch()
            for key in rng.choices(range(1_000), k=2_000):
                match rng.choice(("merge", "merge", "merge", "put", "delete")):
                    case "merge":
                        batch.merge(b"%05d" % key, slate.pack_i64(key), ttl=rng.choice((None, None, 3_600)))
                    case "put":
                        batch.put(b"%05d" % key, slate.pack_i64(-key))
                    case _:
                        batch.delete(b"%05d" % key)
            await db.write(batch)
            start = rng.randrange(900)
            await db.delete_range(b"%05d" % start, b"%05d" % (start + 50))
            await db.merge(b"%05d" % (start + 10), slate.pack_i64(1))
            await db.flush(l0=True)
        return {key: value async for key, value in db.scan()}


async def test_ranges_with_operands_and_range_deletes_are_merged_there_as_here(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = await fill(tmp_path)
    with SparkExecutor(spark, str(tmp_path)) as on_spark:
        async with slate.open_admin(tmp_path) as admin:
            twice = Twice(on_spark, admin, tmp_path)
            settings = slate.Settings(**{**SETTINGS, "sst_bytes": 8_000})
            async with slate.open_compactor(
                tmp_path, settings=settings, executor=twice, auto_compaction=False
            ) as compactor:
                assert await compactor.compact(full=True) == 1
                assert compactor.status().range_deletes == 0, "used up"
            assert twice.ranges > 1
            assert (await admin.verify()).clean
    assert await rows(tmp_path) == before


class OfTheDriver(AddI64):
    """An operator that tasks of Spark do not have."""

    name = "of_the_driver"


async def test_a_worker_without_the_operator_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._registered, OfTheDriver.name, OfTheDriver())
    before = await fill(tmp_path, merge_operator=OfTheDriver.name)
    with SparkExecutor(spark, str(tmp_path)) as on_spark:
        settings = slate.Settings(**SETTINGS)
        with pytest.raises(slate.SlateError, match="'of_the_driver', which this process does not have"):
            async with slate.open_compactor(
                tmp_path, settings=settings, executor=on_spark, auto_compaction=False
            ) as compactor:
                await compactor.compact(full=True)
    assert await rows(tmp_path) == before
    with pytest.raises(PySparkException, match="'of_the_driver', which this process does not have"):
        await asyncio.to_thread(spark.read.format("slate").load(str(tmp_path)).collect)


async def test_reads_merge_and_changes_come_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    before = await fill(tmp_path, retention_ms=3_600_000)

    def read(source: str, **options: object) -> list[Row]:
        frame = spark.read.format(source).options(partitionBytes=10_000, **options)  # type: ignore[arg-type]
        return frame.load(str(tmp_path)).collect()

    found = await asyncio.to_thread(read, "slate")
    assert {bytes(row.key): bytes(row.value) for row in found} == before
    async with slate.open(tmp_path) as db:
        await db.compact(full=True)  # what follows is read from SSTs, cut by keys, and from the log
        await db.delete_range(b"00500", None)
        await db.merge(b"00600", slate.pack_i64(7))
        whole = [(change.seq, change.op, change.key, change.value) async for change in db.changes(follow=False)]
        told = await asyncio.to_thread(read, "slate-changes")
    assert sorted((row.seq, row.op, bytes(row.key), row.value and bytes(row.value)) for row in told) == whole
    assert [op for _, op, _, _ in whole].count("delete_range") == 4
    assert whole[-2:] == [
        (whole[-1][0] - 1, "delete_range", b"00500", None),
        (whole[-1][0], "merge", b"00600", slate.pack_i64(7)),
    ]


@pytest.mark.parametrize("op", ["merge", "delete_range"])
async def test_a_sink_refuses_what_it_cannot_load(spark: SparkSession, tmp_path: Path, op: str) -> None:
    """In a load and in a stream from one database into another; what was there stays."""
    source, target, folder = tmp_path / "source", tmp_path / "target", tmp_path / "checkpoint"
    async with slate.open(source, settings=slate.Settings(merge_operator="add_i64")) as db:
        await (db.merge(b"a", slate.pack_i64(1)) if op == "merge" else db.delete_range(b"a", b"b"))
    async with slate.open(target) as db:
        await db.put(b"a", b"there")
    message = f"op.*'{op}'"

    def load() -> None:
        frame = spark.read.format("slate-changes").load(str(source)).select("op", "key", "value")
        frame.write.format("slate").mode("append").options(ingestMode="exclusive").save(str(target))

    def stream() -> None:
        changes = spark.readStream.format("slate-changes").load(str(source)).select("op", "key", "value")
        sink = changes.writeStream.format("slate").option("checkpointLocation", str(folder))
        sink.trigger(availableNow=True).start(str(target)).awaitTermination()

    with pytest.raises(PySparkException, match=message):
        load()  # from another thread Spark may not find the format
    with pytest.raises(StreamingQueryException, match=message):
        stream()
    assert await rows(target) == {b"a": b"there"}
