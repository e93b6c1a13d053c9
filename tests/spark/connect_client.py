"""A client of a Spark Connect server: loads, reads, looks up, and streams, with nothing registered.

    connect_client.py PORT FOLDER

Lines: what each call gave, and ``done``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from slate_async import spark as slate_spark
from slate_async import sync
from tests.integration.writer import say

ROWS = 1_000


def main() -> None:
    port, folder = sys.argv[1:]
    path, copy = f"{folder}/db", f"{folder}/copy"
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    seen: list[slate_spark.LoadProgress] = []
    rows = spark.range(ROWS).select(
        F.format_string("%06d", "id").alias("key"), F.to_json(F.struct("id")).alias("value")
    )
    info = slate_spark.bulk_load(rows, path, progress=seen.append)
    say(f"loaded {info.state} {info.rows}")
    say(f"progress {0 < seen[-1].tasks_done <= seen[-1].tasks_total}")

    def broken(progress: slate_spark.LoadProgress) -> None:
        raise ZeroDivisionError

    say(f"loaded {slate_spark.bulk_load(rows.limit(10), f'{folder}/other', progress=broken).state}")
    with sync.open_admin(f"{folder}/other") as admin:
        say(f"left {[job.state for job in admin.ingests.list()]}")
    with slate_spark.reading(spark, path, schema="key string, id long", keyType="string", valueFormat="json") as read:
        say(f"read {read.agg(F.sum('id')).collect()[0][0]}")
    sought = spark.createDataFrame([("000007",), ("none",)], "key string")
    found = slate_spark.lookup(sought, path, columns="id long", valueFormat="json", how="inner").collect()
    say(f"looked up {[(row.key, row.id) for row in found]}")
    changes = spark.readStream.format("slate-changes").load(path).select("op", "key", "value")
    stream = changes.coalesce(1).writeStream.format("slate").option("checkpointLocation", f"{folder}/checkpoint")
    query = stream.trigger(availableNow=True).start(copy)
    say(f"streamed {query.awaitTermination(200)} {spark.read.format('slate').load(copy).count()}")
    slate_spark.register(spark)
    say(f"registered {slate_spark.read(spark, copy, prefix='0009').count()}")
    say("done")


if __name__ == "__main__":
    main()
