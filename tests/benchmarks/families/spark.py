"""Spark on two cores: reading, loading and compacting, beside Spark's own Parquet and the engine alone, same rows.

Wall time of whole jobs. Every figure but those of the engine alone has Spark's cost of a job in it, some tenths of a
second.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import slate_async as slate
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import tree_cpu_s
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.spark_rows import SparkRows, compact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET, ALONE, LOCAL = "parquet", "one core, no Spark", "two cores, no Spark"
READ, READ_RUNS, INGEST = "read", "read, four runs", "ingest"
COMPACTION, PROCESSOR = "compaction", "compaction, processor time"
CORES = 2
RANGES = 4
"""Of an ingest, and files of the sort that writes Parquet."""
RANGES_AHEAD = CORES + 1
"""Of a compaction at a time, so that one waits for a core instead of a core for one."""
CONF: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}


def session() -> SparkSession:
    """The process's session, made at first use; it ends with the process."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark: SparkSession = SparkSession.builder.master(f"local[{CORES}]").config(map=CONF).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def consume(df: DataFrame) -> None:
    """Make every row of ``df``, and drop it."""
    df.write.format("noop").mode("overwrite").save()


def measure_reads(turn: Turn, spark: SparkSession, rows: SparkRows) -> None:
    from slate_async import spark as slate_spark

    reads: list[tuple[str, str, Callable[[], DataFrame]]] = [
        (READ, OURS, lambda: slate_spark.read(spark, rows.at("one"))),
        (READ_RUNS, OURS, lambda: slate_spark.read(spark, rows.at("several"))),
        (READ, PARQUET, lambda: spark.read.parquet(rows.at("sorted"))),
    ]
    for _, subject, read in reads:  # the first time counts rows, and warms processes and caches
        require(read().count() == rows.count, subject, "a read")
    for measure, subject, read in turn.in_order(reads):
        with turn.timed(measure, subject, rows.count):
            consume(read())


def measure_ingest(turn: Turn, spark: SparkSession, rows: SparkRows) -> None:
    from slate_async import spark as slate_spark

    source = spark.read.parquet(rows.at("shuffled"))

    def load() -> None:
        slate_spark.bulk_load(source, rows.at("loaded"), mode="exclusive", partitions=RANGES)

    def write_parquet() -> None:
        ordered = source.repartitionByRange(RANGES, "key").sortWithinPartitions("key")
        ordered.write.parquet(rows.at("written"))

    for subject, write in turn.in_order([(OURS, load), (PARQUET, write_parquet)]):
        with turn.timed(INGEST, subject, rows.count):
            write()
    require(slate_spark.read(spark, rows.at("loaded")).count() == rows.count, OURS, "an ingest")


async def measure_compaction(turn: Turn, spark: SparkSession, rows: SparkRows) -> None:
    from slate_async.spark import SparkExecutor

    async def compacted(subject: str, path: str) -> None:
        if subject == OURS:
            with SparkExecutor(spark, path) as executor:
                await compact(path, executor, ranges=RANGES_AHEAD)
        else:
            with processors(1 if subject == ALONE else CORES):
                await compact(path)

    await compacted(OURS, await copied(rows, "warm"))  # Spark's processes for such tasks, as those of a daemon are
    for subject in turn.in_order([OURS, ALONE, LOCAL]):
        path = await copied(rows, f"compacted, {subject}")
        spent = tree_cpu_s()
        with turn.timed(COMPACTION, subject, rows.count):
            await compacted(subject, path)
        turn.record(PROCESSOR, subject, (tree_cpu_s() - spent) / rows.count * 1e6, "µs a row")
        async with slate.open_reader(path) as reader:
            found = sum([batch.num_rows async for batch in reader.scan().batches()])
        require(found == rows.count, subject, "a compaction")


async def copied(rows: SparkRows, name: str) -> str:
    """The path of a fresh copy of the database of several runs."""
    path = rows.at(name)
    await asyncio.to_thread(shutil.copytree, rows.at("several"), path)
    return path


@contextmanager
def processors(count: int) -> Iterator[None]:
    """Keep this process on so many of its processors."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


async def one_round(turn: Turn) -> None:
    spark = session()
    with folder() as path:
        rows = SparkRows(Path(path), turn.plan.choose(20_000, 1_000_000, 4_000_000))
        await rows.make(turn.number)
        await asyncio.to_thread(measure_reads, turn, spark, rows)
        await asyncio.to_thread(measure_ingest, turn, spark, rows)
        await measure_compaction(turn, spark, rows)


FAMILY = Family(
    "spark",
    "Spark, two cores",
    (
        Goal(5, READ, 0.4, (READ, PARQUET)),
        Goal(5, INGEST, 0.6, (INGEST, PARQUET)),
        Goal(5, INGEST, 500_000),
        Goal(5, COMPACTION, 1.5, (COMPACTION, ALONE)),
    ),
    one_round,
    notes=(
        "Reads to Spark's noop sink: ours with number and times, Parquet's without. The four runs overlap.",
        "Ingest: ranges of keys, sorted, from shuffled Parquet; into SSTs and the manifest, or into files of Parquet.",
        "Compaction of four runs on local[2] after one that warms it up; beside it the engine's, on one core and two.",
        "Processor time is of all processes. By itself the engine computes on one thread; a second core helps little.",
    ),
)
