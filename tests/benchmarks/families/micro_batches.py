"""Spark on two cores: the changes of one database streamed into another, in micro-batches of 16,000 rows.

Wall time of whole micro-batches, as Spark has it in its progress: planned, read, sorted, committed and applied. Only
those of a warm query count.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import numpy as np

import slate_async as slate
from tests.benchmarks.families.spark import CORES, session
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.rows import KEY_BYTES, VALUE_BYTES
from tests.benchmarks.spark_rows import random_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALONE, BESIDE, RANGES = "one task", "one task, beside live writers", "two ranges of keys"
"""How a query runs: without a live writer, unless it says so."""
P50, P95 = ", p50", ", p95"
BATCH_ROWS = 16_000
WARM = 5
"""Micro-batches of each query that are not counted."""
WRITE_ROWS = 1_000


async def write(path: str, rows: int, seed: int) -> None:
    """A database of so many rows, in write batches of `WRITE_ROWS`."""
    rng = np.random.default_rng(seed)
    async with slate.open(path) as db:
        for start in range(0, rows, WRITE_ROWS):
            count = min(WRITE_ROWS, rows - start)
            batch = slate.WriteBatch()
            keys, values = (random_bytes(rng, count, width).to_pylist() for width in (KEY_BYTES, VALUE_BYTES))
            for key, value in zip(keys, values, strict=True):
                batch.put(key, value)
            await db.write(batch, await_durable=False)


def start(spark: SparkSession, source: str, target: str, way: str, batch_rows: int) -> StreamingQuery:
    """A query that ends with the last change."""
    from slate_async import spark as slate_spark

    slate_spark.register(spark)
    changes = slate_spark.read_changes(spark, source, maxRowsPerTrigger=batch_rows).drop("create_time", "seq")
    spread = changes.repartitionByRange(CORES, "key") if way == RANGES else changes.coalesce(1)
    writer = spread.writeStream.format("slate").option("checkpointLocation", f"{target} checkpoint")
    return writer.trigger(availableNow=True).start(target)


async def measure(turn: Turn, spark: SparkSession, folder: str, way: str, batches: int, batch_rows: int) -> None:
    source, target, rows = f"{folder}/source", f"{folder}/{way}", batches * batch_rows
    async with slate.open(target):
        pass
    async with AsyncExitStack() as writers:
        if way == BESIDE:
            for path in (source, target):
                await writers.enter_async_context(slate.open(path))
        query = start(spark, source, target, way, batch_rows)
        await asyncio.to_thread(query.awaitTermination)
    took = [float(progress.batchDuration) for progress in query.recentProgress if progress.numInputRows]
    async with slate.open_reader(target) as reader:
        found = sum([batch.num_rows async for batch in reader.scan().batches()])
    require(found == rows and len(took) > 0, OURS, "a stream")
    warm = took[min(WARM, len(took) - 1) :]  # few rows may come in fewer micro-batches
    for percentile, share in ((P50, 50), (P95, 95)):
        turn.record(way + percentile, OURS, float(np.percentile(warm, share)), "ms")


async def one_round(turn: Turn) -> None:
    spark = session()
    with folder() as path:
        batches = WARM + turn.plan.choose(2, 10, 25)
        batch_rows = turn.plan.choose(WRITE_ROWS, BATCH_ROWS, BATCH_ROWS)
        await write(f"{path}/source", batches * batch_rows, turn.number)
        for way in turn.in_order([ALONE, BESIDE, RANGES]):
            await measure(turn, spark, path, way, batches, batch_rows)


FAMILY = Family(
    "micro-batches",
    "Spark, two cores: micro-batches of 16,000 rows from database to database",
    (Goal(5, ALONE + P50, 600, most=True), Goal(5, BESIDE + P50, 600, most=True)),
    one_round,
    notes=(
        "Without a live writer the driver becomes one for each commit. A micro-batch waits for a live writer's poll.",
        "Spark reads the changes twice to find ranges of keys.",
    ),
    most_rounds=3,
)
