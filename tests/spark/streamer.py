"""A driver that streams the changes of a database into a folder of Parquet files until it is killed:

streamer.py DATABASE CHECKPOINT FOLDER
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slate_async.spark.frames import read_changes

ROWS = 300
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
}


def changes(spark: SparkSession, path: str) -> DataFrame:
    return read_changes(spark, path, maxRowsPerTrigger=ROWS, partitionBytes=10_000)


def start(df: DataFrame, checkpoint: str, folder: str, **trigger: bool) -> StreamingQuery:
    writer = df.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", folder)
    return (writer.trigger(**trigger) if trigger else writer).start()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path, checkpoint, folder = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").appName("streamer")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    start(changes(builder.getOrCreate(), path), checkpoint, folder).awaitTermination()


if __name__ == "__main__":
    main()
