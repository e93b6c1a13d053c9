"""A driver that loads rows into a database, and says where it is so that it can be killed there:

    loader.py DATABASE [replace] [unnamed] [save]

``unnamed``: without a job id, for a writer that is to come. ``save``: so, by Spark's own interface, whose commit
runs in a process of its own; it stops nowhere.

Lines: ``committing`` before it commits · ``committed`` before it learns of it. After each it waits for a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async.spark import bulk_load
from tests.integration.writer import say

JOB = "load"
ROWS = 2_000
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}
COMMIT = slate.IngestJob.commit


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).select(F.format_string("%05d", "id").alias("key"), F.lit("loaded").alias("value"))


async def report_and_wait(where: str) -> None:
    """Print ``where``, and go on at a line on standard input."""
    say(where)
    await asyncio.to_thread(sys.stdin.readline)


async def commit(job: slate.IngestJob, *ssts: Any, **how: Any) -> slate.IngestInfo:
    await report_and_wait("committing")
    info = await COMMIT(job, *ssts, **how)
    await report_and_wait("committed")
    return info


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("loader")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if "save" in sys.argv[2:]:
        frame(spark).write.format("slate").mode("append").option("ingestMode", "ingest").save(sys.argv[1])
        return
    with patch.object(slate.IngestJob, "commit", commit):
        unnamed = "unnamed" in sys.argv[2:]
        bulk_load(
            frame(spark),
            sys.argv[1],
            job_id=None if unnamed else JOB,
            mode="ingest" if unnamed else "auto",
            replace="replace" in sys.argv[2:],
        )


if __name__ == "__main__":
    main()
