"""A client of a Spark Connect server: loads, reads, looks up, and streams, with nothing registered.

    connect_client.py PORT FOLDER

Lines: what each call gave, and ``done``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slate_async import spark as slate_spark
from slate_async import sync
from slate_async.errors import InvalidError
from tests.integration.writer import say

ROWS = 1_000
COLLECTION = "slate-collection"
DATA = pa.schema([("customer", pa.string()), ("total", pa.int64())])
SAID = ("does not tell which query counts the batches", "are counted by query one, and this one comes from query two")


def batches(spark: SparkSession, folder: str) -> None:
    """``foreachBatch`` runs beside the server, which does not tell of which query."""
    path, source = f"{folder}/batches", f"{folder}/arrived"
    spark.createDataFrame([("a", "1")], "key string, value string").write.parquet(source)

    def load(name: str | None) -> Callable[[DataFrame, int], None]:
        def run(df: DataFrame, number: int) -> None:
            slate_spark.bulk_load(df, path, batch=("orders", number) if name is None else ("orders", number, name))

        return run

    for checkpoint, name in (("c", None), ("c", "one"), ("other", "two")):
        rows = spark.readStream.schema("key string, value string").parquet(source)
        writer = rows.writeStream.foreachBatch(load(name)).option("checkpointLocation", f"{folder}/{checkpoint}")
        try:
            said = writer.trigger(availableNow=True).start().awaitTermination(200)
        except PySparkException as error:
            found = [text for text in SAID if text in str(error)]
            say(f"refused {found}")
        else:
            say(f"loaded {said}")
    with sync.open_admin(path) as admin:
        say(f"batches {[(job.job_id, job.state) for job in admin.ingests.list()]}")


def collections(spark: SparkSession, path: str) -> None:
    """A collection read at a time, and streamed and written into another one."""
    with sync.open_collections(path) as lake:
        for name in ("orders", "copy"):
            lake.create(name, data=DATA, appends="compare").expire()
        with lake.collection("orders").writer() as writer:
            writer.append([(("ann", 5), 0, 1), (("bob", 7), 1, 2), (("ann", 5), 2, -1)], upper=3)
    with slate_spark.reading_collection(spark, path, "orders", asOf=1) as orders:
        say(f"at a time {sorted(tuple(row) for row in orders.collect())}")
    updates = spark.readStream.format(COLLECTION).option("collection", "orders").load(path).drop("_time")
    copy = updates.writeStream.format(COLLECTION).option("collection", "copy")
    query = copy.option("checkpointLocation", f"{path}/checkpoint").trigger(availableNow=True).start(path)
    query.awaitTermination(200)
    frame = spark.createDataFrame([("eve", 9)], "customer string, total long").write.format(COLLECTION).mode("append")
    frame.option("collection", "copy").option("time", "5").save(path)
    with sync.open_collections(path) as lake, lake.collection("copy").reader() as reader:
        say(f"copied {sorted(reader.snapshot(5).rows())}")
    try:
        slate_spark.CollectionMergeExecutor(spark, path, "orders")
    except InvalidError as error:
        say(f"refused {'a SparkSession of the driver itself' in str(error)}")


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
    with sync.open_admin(copy) as admin:
        apps = [job.app_id for job in admin.ingests.list()]
    say(f"counted by its id {apps == [query.id]}")
    batches(spark, folder)
    collections(spark, f"{folder}/lake")
    slate_spark.register(spark)
    say(f"registered {slate_spark.read(spark, copy, prefix='0009').count()}")
    say("done")


if __name__ == "__main__":
    main()
