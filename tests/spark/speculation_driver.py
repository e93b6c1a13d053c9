"""A driver on a cluster of two hosts, with speculation on: the first attempt of a task waits, and Spark's copy of it on
the other host overtakes it.

    speculation_driver.py MASTER PATH NOTES

Two loads and a compaction, by what becomes of the attempt that is overtaken (`stalled`, `late`). Each attempt leaves a
file ``NOTES/WORK/PARTITION.ATTEMPT`` with its host. Lines: ``loaded JOB STATE ROWS named COUNT others COUNT`` ·
``compacted COUNT`` · ``done``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.spark import compaction, load
from slate_async.spark.load import ArrowFunction
from tests.integration.writer import say
from tests.spark.cluster import WORKERS
from tests.spark.cluster_driver import CONF

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",  # judges by rows, of which a task that waits has had all
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.task.duration.threshold": "1s",  # for jobs of one task
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
WORKS = ("stalled", "late", "compacted")
ROWS = 8_000
SST_BYTES = 100_000
LIMIT_S = 120.0


def frame(spark: SparkSession, work: str) -> DataFrame:
    """Sorted, in as many ranges as there are workers; values that do not shrink."""
    return spark.range(0, ROWS, 1, WORKERS).select(
        F.format_string(f"{work}%05d", "id").alias("key"), F.sha2(F.col("id").cast("string"), 512).alias("value")
    )


def is_overtaken(notes: Path) -> bool:
    """In a task: note this attempt; whether it is the one to be overtaken."""
    context = TaskContext.get()
    assert context is not None
    attempt = f"{context.partitionId()}.{context.attemptNumber()}"
    (notes / attempt).write_text(os.environ["SPARK_LOCAL_IP"])
    return attempt == "0.0"


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not mark.exists():
        assert time.monotonic() < deadline, f"no {mark} in {LIMIT_S} s"
        time.sleep(0.01)


def stalled(df: DataFrame, notes: Path) -> DataFrame:
    """``df``, of which the last rows do not reach the attempt that is overtaken: Spark ends it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        overtaken = is_overtaken(notes)
        yield from batches
        if overtaken:
            wait_for(notes / "over")

    return df.mapInArrow(run, df.schema)


@contextmanager
def late(module: Any, name: str, notes: Path) -> Iterator[None]:
    """Tasks whose function ``module.name`` makes: the attempt that is overtaken has read its rows, and does its work
    when all is over."""
    make = getattr(module, name)

    def make_late(*what: Any, **how: Any) -> ArrowFunction:
        work: ArrowFunction = make(*what, **how)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if not is_overtaken(notes):
                yield from work(batches)
                return
            rows = list(batches)
            wait_for(notes / "over")
            told = list(work(iter(rows)))
            (notes / "worked").touch()
            yield from told

        return run

    with patch.object(module, name, make_late):
        yield
    (notes / "over").touch()
    wait_for(notes / "worked")


def load_rows(rows: DataFrame, path: str, job: str) -> slate.IngestInfo:
    return slate_spark.bulk_load(rows, path, sort_mode="none", target_sst_bytes=SST_BYTES, mode="exclusive", job_id=job)


async def tell(path: str, info: slate.IngestInfo) -> None:
    """What became of the job, and of the SSTs of its attempts."""
    async with slate.open_admin(path) as admin:
        named = [listed.named for listed in await admin.ingests.objects(info.job_id)]
    say(f"loaded {info.job_id} {info.state} {info.rows} named {sum(named)} others {len(named) - sum(named)}")


async def compact(spark: SparkSession, path: str) -> None:
    """All in one key range."""
    settings = slate.Settings(compaction_parallelism=1)
    with slate_spark.SparkExecutor(spark, path) as executor:
        async with slate.open_compactor(path, settings=settings, executor=executor, auto_compaction=False) as compactor:
            say(f"compacted {await compactor.compact(full=True)}")


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master, path, notes = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    builder = SparkSession.builder.master(master).appName("speculation test")
    for name, value in {**CONF, **SPECULATION}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for work in WORKS:
        (notes / work).mkdir(parents=True)
    info = load_rows(stalled(frame(spark, "stalled"), notes / "stalled"), path, "stalled")
    (notes / "stalled" / "over").touch()
    asyncio.run(tell(path, info))
    with late(load, "_write_there", notes / "late"):
        info = load_rows(frame(spark, "late"), path, "late")
    asyncio.run(tell(path, info))
    with late(compaction, "_merge_there", notes / "compacted"):
        asyncio.run(compact(spark, path))
    spark.stop()
    say("done")


if __name__ == "__main__":
    main()
