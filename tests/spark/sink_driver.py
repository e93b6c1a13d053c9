"""A driver on a cluster that streams the changes of a database into another one, until it is killed, or to the end:

    sink_driver.py MASTER SOURCE METASTORE TARGET METASTORE CHECKPOINT [end]

A metastore each. Lines: ``done``, at the end.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from slate_async import spark as slate_spark
from slate_async.spark.frames import read_changes
from tests.integration.writer import say
from tests.spark.cluster import WORKERS
from tests.spark.cluster_driver import CONF

ROWS = 300
"""Of a micro-batch."""
PARTITION_BYTES = 10_000


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master, source, of_source, target, of_target, checkpoint, *end = sys.argv[1:]
    builder = SparkSession.builder.master(master).appName("sink test")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    slate_spark.register(spark)
    limits = {"maxRowsPerTrigger": ROWS, "partitionBytes": PARTITION_BYTES}
    changes = read_changes(spark, source, metastore=of_source, **limits).drop("create_time")
    writer = changes.repartitionByRange(WORKERS, "key").writeStream.format("slate").option("metastore", of_target)
    writer = writer.option("checkpointLocation", checkpoint).option("orderColumn", "seq")
    query = (writer.trigger(availableNow=True) if end else writer).start(target)
    query.awaitTermination()
    spark.stop()
    say("done")


if __name__ == "__main__":
    main()
