"""``format("slate-collection")``: collections read, streamed and written by Spark."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async import spark as slate_spark
from tests.integration.processes import ChildProcess
from tests.spark.collection_driver import copy_updates

pytestmark = pytest.mark.timeout(600)
SCHEMA = pa.schema([pa.field("customer", pa.string(), nullable=False), pa.field("total", pa.int64())])
COLLECTION = "slate-collection"


def updates(*rows: tuple[str, int | None, int, int]) -> pa.RecordBatch:
    """``(customer, total, time, diff)``."""
    customers, totals, times, diffs = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(customers), pa.array(totals, pa.int64()), pa.array(times, pa.uint64()), pa.array(diffs, pa.int64())],
        names=["customer", "total", "_time", "_diff"],
    )


async def make(path: Path, batches: list[tuple[pa.RecordBatch, int]], **kind: Any) -> None:
    """A collection ``orders`` with these updates up to each upper."""
    async with slate.open_collections(path) as lake:
        reader = await lake.create("orders", data=SCHEMA, **kind)
        await reader.expire()
        async with lake.collection("orders").writer() as writer:
            for batch, upper in batches:
                await writer.append(batch, upper=upper)


async def snapshot(path: Path, as_of: int) -> list[dict[str, Any]]:
    async with slate.open_collections(path) as lake, lake.collection("orders").reader() as reader:
        async with await reader.snapshot(as_of) as found:
            return sorted((await found.to_arrow()).to_pylist(), key=str)


def read(spark: SparkSession, path: Path, **options: Any) -> Any:
    reader = spark.read.format(COLLECTION).option("collection", "orders")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def rows(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


ORDERS = [
    (updates(("ann", 5, 0, 1), ("bob", 7, 1, 2), ("ann", None, 1, 1)), 2),
    (updates(("bob", 7, 2, -1), ("cid", 2**62, 3, 3)), 4),
]


def test_contents_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, ORDERS))
    assert rows(read(spark, tmp_path, asOf=1)) == asyncio.run(snapshot(tmp_path, 1))
    assert rows(read(spark, tmp_path)) == asyncio.run(snapshot(tmp_path, 3))


def test_filters_narrow_what_is_read_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, ORDERS))
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    where = "customer >= 'b' AND total IS NOT NULL AND _diff > 0"
    pushed = read(session, tmp_path, pushFilters="true").where(where)
    assert rows(pushed) == rows(read(spark, tmp_path).where(where)) != []


def test_queries_of_a_block_see_one_time(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, ORDERS[:1]))
    with slate_spark.reading_collection(spark, str(tmp_path), "orders") as contents:
        before = rows(contents)
        asyncio.run(make(tmp_path, [(ORDERS[1][0], 4)]))
        assert rows(contents) == before == asyncio.run(snapshot(tmp_path, 1))


def test_what_cannot_be_read_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, ORDERS))
    with pytest.raises(PySparkException, match="orders is definite up to 4, and asOf=4 was not within"):
        read(spark, tmp_path, asOf="4", timeout="0.01").collect()
    with pytest.raises(slate.InvalidError, match="unknown option startKey; there are path"):
        slate_spark.read_collection(spark, str(tmp_path), "orders", startKey="a")
    with pytest.raises(slate.NotFoundError, match="none"):
        with slate_spark.reading_collection(spark, str(tmp_path), "none"):
            pass


def stream(spark: SparkSession, path: Path, **options: Any) -> Any:
    reader = spark.readStream.format(COLLECTION).option("collection", "orders")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def test_a_stream_goes_on_where_its_checkpoint_ends(spark: SparkSession, tmp_path: Path) -> None:
    lake, checkpoint, folder = tmp_path / "lake", tmp_path / "checkpoint", tmp_path / "parquet"
    asyncio.run(make(lake, ORDERS))

    def run(**options: Any) -> list[dict[str, Any]]:
        writer = stream(spark, lake, **options).writeStream.format("parquet").option("path", str(folder))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return rows(spark.read.parquet(str(folder)))

    first = [row for batch, _ in ORDERS for row in batch.to_pylist()]
    assert run(maxTimesPerTrigger=1) == sorted(first, key=str)
    more = updates(("dan", 1, 4, 1), ("ann", 5, 6, -1))
    asyncio.run(make(lake, [(more, 9)]))
    assert run() == sorted(first + more.to_pylist(), key=str)


async def test_a_stream_is_written_exactly_once_though_its_driver_is_killed(
    spark: SparkSession, tmp_path: Path, killed_at: int
) -> None:
    """Once between parts and commit, as far as that can be hit; each micro-batch is one time of both collections."""
    lake, copy, checkpoint = tmp_path / "lake", tmp_path / "copy", tmp_path / "checkpoint"
    times = range(4)
    await make(lake, [(updates(("ann", time, time, 1), ("bob", 0, time, 2)), time + 1) for time in times])
    await make(copy, [], appends="compare")
    arguments = ["-m", "tests.spark.collection_driver", str(lake), str(copy), str(checkpoint)]
    async with ChildProcess(arguments) as child, asyncio.timeout(200):
        part = f"orders/1/pending_batches/main/batch_{killed_at:020}.*.p00000.obj"
        while not list(copy.glob(part)):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
    copy_updates(spark, str(lake), str(copy), str(checkpoint), end=True)  # on this thread: Spark knows formats by it
    for time in times:
        assert await snapshot(copy, time) == await snapshot(lake, time)
    async with slate.open_collections(copy) as opened, opened.collection("orders").writer() as writer:
        assert str(writer.upper) == str(times.stop)


def test_a_frame_is_written_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(make(tmp_path, [], appends="compare"))
    frame = spark.createDataFrame([("ann", 5), ("bob", 7)], "customer string, total long").coalesce(2)

    def write(**options: Any) -> None:
        writer = frame.write.format(COLLECTION).mode("append").option("collection", "orders")
        writer.options(**options).save(str(tmp_path))

    write(time=5, jobId="load")
    write(time=5, jobId="load")
    assert [row["_diff"] for row in asyncio.run(snapshot(tmp_path, 5))] == [1, 1], "the same job is in once"
    with pytest.raises(PySparkException, match="time 5 is in the past of orders, which ends at 6"):
        write(time=5)


async def test_merges_run_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    await make(tmp_path, ORDERS)
    with slate_spark.CollectionMergeExecutor(spark, str(tmp_path), "orders", least_rows=1) as executor:
        async with slate.open_collections(tmp_path) as lake:
            orders = lake.collection("orders")
            async with orders.controller(background=False, executor=executor) as controller:
                for lower in range(4, 12):
                    async with orders.writer() as writer:
                        await writer.append(updates(("eve", lower, lower, 1)), upper=lower + 1)
                    await controller.round()
                    await controller.merge()
    assert len(await snapshot(tmp_path, 11)) == 12
    assert executor.tasks > 0
