"""A driver that streams the updates of a collection into another one, a time in each micro-batch, until it is killed:

collection_driver.py LAKE COPY CHECKPOINT
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from slate_async import spark as slate_spark
from tests.spark.streamer import CONF

FORMAT = "slate-collection"


def copy_updates(spark: SparkSession, lake: str, copy: str, checkpoint: str, *, end: bool) -> None:
    """``end``: until what is there now is copied; else for ever."""
    reader = spark.readStream.format(FORMAT).option("collection", "orders").option("maxTimesPerTrigger", "1")
    writer = reader.load(lake).drop("_time").writeStream.format(FORMAT).option("collection", "orders")
    writer = writer.option("checkpointLocation", checkpoint)
    (writer.trigger(availableNow=True) if end else writer).start(copy).awaitTermination()


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    lake, copy, checkpoint = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").appName("collection test")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    slate_spark.register(spark)
    copy_updates(spark, lake, copy, checkpoint, end=False)


if __name__ == "__main__":
    main()
