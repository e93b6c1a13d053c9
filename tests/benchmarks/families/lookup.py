"""Spark on two cores: random keys, a thousandth of all, looked up or joined with a full read.

Wall time of whole queries, Spark's cost of a job included, and their processor time. Beside them is what the tasks of a
lookup cost if they do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.families.spark import CORES, consume, session
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import tree_cpu_s
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.rows import KEY_BYTES, VALUE_BYTES
from tests.benchmarks.spark_rows import compact, random_bytes, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOKUP, JOIN, PARQUET, EMPTY = "keys", "a join with a full read", "a join with parquet", "the same tasks, empty"
PROCESSOR = "processor time"
WARM, TIMES = 3, 3
"""How often each query runs before it is measured, and then."""
ONE_OF = 1_000
PART_ROWS = 1_000_000


async def make(folder: Path, count: int, seed: int) -> None:
    """``rows``, sorted Parquet; ``db``, the same in one run; ``keys``, one of `ONE_OF`, shuffled."""
    rng = np.random.default_rng(seed)
    (folder / "rows").mkdir()
    parts: list[pa.Table] = []
    for start in range(0, count, PART_ROWS):
        rows = min(PART_ROWS, count - start)
        part = pa.table({"key": random_bytes(rng, rows, KEY_BYTES), "value": random_bytes(rng, rows, VALUE_BYTES)})
        parts.append(part.take(pc.sort_indices(part["key"])))
        pq.write_table(parts[-1], folder / "rows" / f"{start}.parquet")
    keys = pa.concat_tables([part.select(["key"]) for part in parts])
    chosen = rng.choice(count, -(-count // ONE_OF), replace=False)
    pq.write_table(keys.take(pa.array(chosen)), folder / "keys.parquet")
    await write(str(folder / "db"), parts)
    await compact(str(folder / "db"))


def measure(turn: Turn, spark: SparkSession, folder: Path, count: int) -> None:
    from slate_async import spark as slate_spark

    keys = spark.read.parquet(str(folder / "keys.parquet"))
    path, wanted = str(folder / "db"), -(-count // ONE_OF)
    queries: list[tuple[str, Callable[[], DataFrame]]] = [
        (OURS, lambda: slate_spark.lookup(keys, path, how="inner")),
        (JOIN, lambda: slate_spark.read(spark, path, columns=["key", "value"]).join(keys, "key")),
        (PARQUET, lambda: spark.read.parquet(str(folder / "rows")).join(keys, "key")),
        (EMPTY, lambda: empty(keys)),
    ]
    for subject, query in queries:
        for _ in range(WARM):  # it counts rows, and warms processes and caches
            require(query().count() == wanted, subject, "a join")
    turns = turn.in_order(queries)
    for number in range(TIMES):
        for subject, query in reversed(turns) if number % 2 else turns:
            spent = tree_cpu_s()
            with turn.timed(LOOKUP, subject, wanted):
                consume(query())
            turn.record(PROCESSOR, subject, (tree_cpu_s() - spent) * 1000, "ms")


def empty(keys: DataFrame) -> DataFrame:
    """``keys`` through tasks such as those of a lookup."""
    spread = keys.repartition(CORES, "key").sortWithinPartitions("key")
    return spread.mapInArrow(lambda batches: batches, keys.schema)


async def one_round(turn: Turn) -> None:
    spark = session()
    with folder() as path:
        count = turn.plan.choose(20_000, 1_000_000, 10_000_000)
        await make(Path(path), count, turn.number)
        await asyncio.to_thread(measure, turn, spark, Path(path), count)


FAMILY = Family(
    "lookup",
    "Spark: a thousandth of the keys of a database",
    (Goal(5, LOOKUP, 20, (LOOKUP, JOIN)),),
    one_round,
    notes=("All give keys and values to Spark's noop sink. The database is one run; its keys are random.",),
    most_rounds=2,
)
