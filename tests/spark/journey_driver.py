"""A driver that streams one database into a second one and that into a third, until it is killed:

    journey_driver.py FOLDER

The databases are ``source``, ``second`` and ``third`` in the folder. Lines: ``jvm PID`` · ``started``.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slate_async import spark as slate_spark
from tests.integration.writer import say
from tests.spark.streamer import CONF

ROWS = 2_000
"""Of a micro-batch."""
THIRD_APP = "journey"


def copy_to_second(spark: SparkSession, folder: Path, **trigger: bool) -> StreamingQuery:
    """By the sink: its batches are numbered by the query's id."""
    changes = _changes(spark, folder / "source").drop("create_time").repartitionByRange(2, "key")
    writer = changes.writeStream.format("slate").option("orderColumn", "seq")
    writer = writer.option("checkpointLocation", str(folder / "to second"))
    return (writer.trigger(**trigger) if trigger else writer).start(str(folder / "second"))


def copy_to_third(spark: SparkSession, folder: Path, **trigger: bool) -> StreamingQuery:
    """By ``foreachBatch``, under an app id."""
    writer = _changes(spark, folder / "second").writeStream.foreachBatch(partial(_load, str(folder / "third")))
    writer = writer.option("checkpointLocation", str(folder / "to third"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def _changes(spark: SparkSession, path: Path) -> DataFrame:
    return slate_spark.read_changes(spark, str(path), maxRowsPerTrigger=ROWS)


def _load(path: str, changes: DataFrame, number: int) -> None:
    slate_spark.bulk_load(changes, path, op="op", expire="expire_time", order="seq", batch=(THIRD_APP, number))


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("journey")
    for name, value in {**CONF, "spark.sql.streaming.minBatchesToRetain": "10000"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    slate_spark.register(spark)
    say(f"jvm {spark.sparkContext._gateway.proc.pid}")
    folder = Path(sys.argv[1])
    copy_to_second(spark, folder)
    copy_to_third(spark, folder)
    say("started")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
