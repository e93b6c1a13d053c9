"""A driver that loads rows into a database and is killed before, during or after the commit:

loader.py DATABASE MOMENT DELAY_MS
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async.spark import bulk_load

JOB = "load"
ROWS = 2_000
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).select(F.format_string("%05d", "id").alias("key"), F.lit("loaded").alias("value"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(moment: str, delay_s: float) -> None:
    """Let this process die at that moment of the commit; ``during``: so long after it began."""
    commit = slate.IngestJob.commit

    async def committed(job: slate.IngestJob, *ssts: Any, **how: Any) -> None:
        if moment == "before":
            die()
        if moment == "during":
            asyncio.get_running_loop().call_later(delay_s, die)
        await commit(job, *ssts, **how)
        die()

    slate.IngestJob.commit = committed  # type: ignore[method-assign,assignment]


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path, moment, delay_ms = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").appName("loader")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    killed_at(moment, float(delay_ms) / 1000)
    bulk_load(frame(spark), path, job_id=JOB)


if __name__ == "__main__":
    main()
