"""Spark on two cores: the contents of a collection at one time, beside Spark's own Parquet with the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import slate_async as slate
from tests.benchmarks.families.spark import CORES, PARQUET, consume, session
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ = "read of a collection"
TIMES = 50
PARTS = 2 * CORES
"""Tasks of each read, and files of Parquet."""


def updates(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    """Orders of different customers at `TIMES` times."""
    columns = {
        "customer": pa.array([f"customer {number:09}" for number in rng.permutation(rows)]),
        "total": pa.array(rng.integers(0, 10_000, rows)),
        "_time": pa.array(rng.integers(0, TIMES, rows).astype(np.uint64)),
        "_diff": pa.array(np.ones(rows, np.int64)),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


async def make(path: Path, rows: int, seed: int) -> int:
    """The collection, at rest in one batch, and its contents in Parquet; returns the bytes of the batch."""
    batch = updates(np.random.default_rng(seed), rows)
    data = pa.schema([batch.schema.field("customer"), batch.schema.field("total")])
    async with slate.open_collections(path / "live") as lake:
        async with await lake.create("orders", data=data) as reader:
            orders = lake.collection("orders")
            async with orders.writer() as writer, writer.batch(0, upper=TIMES) as appended:
                await appended.add(batch)
            await reader.downgrade_since(TIMES - 1)
        async with orders.controller(background=False) as controller:
            await controller.settle()
        async with orders.reader() as reader, await reader.snapshot(TIMES - 1) as snapshot:
            contents = await snapshot.to_arrow()
    require(contents.num_rows == rows, OURS, "a controller")
    (path / "rows").mkdir()
    each = -(-rows // PARTS)
    for number in range(PARTS):
        piece = contents.slice(number * each, each)
        times = piece.column("_time").cast(pa.int64())
        piece = piece.set_column(piece.schema.get_field_index("_time"), "_time", times)
        pq.write_table(piece, path / "rows" / f"{number}.parquet", compression="zstd", row_group_size=1 << 16)
    return sum(file.stat().st_size for file in (path / "rows").iterdir())


def measure(turn: Turn, spark: SparkSession, path: Path, rows: int, nbytes: int) -> None:
    from slate_async import spark as slate_spark

    target = -(-nbytes // PARTS)
    reads: list[tuple[str, Callable[[], DataFrame]]] = [
        (OURS, lambda: slate_spark.read_collection(spark, str(path / "live"), "orders", partitionBytes=target)),
        (PARQUET, lambda: spark.read.parquet(str(path / "rows"))),
    ]
    for subject, read in reads:  # the first time counts rows, and warms processes and caches
        require(read().count() == rows, subject, "a read")
    for subject, read in turn.in_order(reads):
        with turn.timed(READ, subject, rows):
            consume(read())


async def one_round(turn: Turn) -> None:
    spark = session()
    with folder() as path:
        rows = turn.plan.choose(20_000, 1_000_000, 4_000_000)
        nbytes = await make(Path(path), rows, turn.number)
        await asyncio.to_thread(measure, turn, spark, Path(path), rows, nbytes)


FAMILY = Family(
    "spark-collections",
    "Spark: the contents of a collection",
    (Goal(5, READ, 0.4, (READ, PARQUET)),),
    one_round,
    notes=("Both give all columns to Spark's noop sink. The collection is one merged batch; Parquet has zstd, too.",),
    most_rounds=3,
)
