"""A driver on a cluster: reads a database, loads more into it, compacts it, reads it again.

    cluster_driver.py MASTER PATH METASTORE

Lines: ``executors COUNT`` · ``read ROWS DIGEST`` · ``loaded STATE ROWS`` · ``compacted COUNT``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.integration.writer import say
from tests.spark.cluster import HOST, WORKERS

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
PARTITION_BYTES = 40_000
LOADED = [(b"new%05d" % number, b"%d" % number) for number in range(1_000)]


def digest(rows: list[tuple[bytes, bytes]]) -> str:
    """Of all keys and values, in the order of the keys."""
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


def read(spark: SparkSession, path: str, metastore: str) -> None:
    df = slate_spark.read(spark, path, metastore=metastore, partitionBytes=PARTITION_BYTES)
    rows = [(bytes(row.key), bytes(row.value)) for row in df.select("key", "value").collect()]
    say(f"read {len(rows)} {digest(rows)}")


def load(spark: SparkSession, path: str, metastore: str) -> None:
    rows = spark.range(0, len(LOADED), 1, WORKERS).select(
        F.format_string("new%05d", "id").alias("key"), F.col("id").cast("string").alias("value")
    )
    info = slate_spark.bulk_load(rows, path, metastore=metastore, mode="exclusive")
    say(f"loaded {info.state} {info.rows}")


async def compact(spark: SparkSession, path: str, metastore: str) -> None:
    settings = slate.Settings(sst_bytes=40_000, block_bytes=2_000, compaction_parallelism=WORKERS)
    with slate_spark.SparkExecutor(spark, path, metastore=metastore) as executor:
        opening = slate.open_compactor(path, metastore=metastore, settings=settings, executor=executor)
        async with opening as compactor:
            say(f"compacted {await compactor.compact(full=True)}")


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master, path, metastore = sys.argv[1:]
    builder = SparkSession.builder.master(master).appName("cluster test")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    read(spark, path, metastore)
    load(spark, path, metastore)
    asyncio.run(compact(spark, path, metastore))
    read(spark, path, metastore)
    known = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    say(f"executors {len(known) - 1}")  # the driver is one of them
    spark.stop()
    say("done")


if __name__ == "__main__":
    main()
