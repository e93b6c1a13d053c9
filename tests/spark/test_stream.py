"""``format("slate-changes")``: each change once, whichever process is killed; in a batch, those between two numbers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.spark.stream_source import CHANGE
from tests.engine import KINDS
from tests.integration.processes import ChildProcess
from tests.spark.streamer import changes, start

pytestmark = pytest.mark.timeout(600)
Told = list[tuple[int, str, bytes, bytes | None]]


async def write(db: slate.Db, rng: random.Random, rows: int) -> None:
    for _ in range(rows // 10):
        batch = slate.WriteBatch()
        for _ in range(9):
            batch.put(b"%03d" % rng.randrange(200), rng.randbytes(20), ttl=rng.choice((None, 3_600.0)))
        batch.delete(b"%03d" % rng.randrange(200))
        await db.write(batch)
    await db.flush(l0=True)


async def history(db: slate.Db) -> Told:
    async with db.changes(from_seq=0, follow=False, initial="error") as feed:
        return [(change.seq, change.op, change.key, change.value) async for change in feed]


def streamed(spark: SparkSession, folder: Path) -> Told:
    rows = spark.read.schema(StructType(CHANGE.fields)).parquet(str(folder)).collect()
    return sorted((row.seq, row.op, bytes(row.key), row.value and bytes(row.value)) for row in rows)


async def micro_batches(checkpoint: Path, count: int) -> None:
    """Wait until so many were committed by Spark."""
    async with asyncio.timeout(300):
        while True:
            if (checkpoint / "commits" / str(count - 1)).exists():
                return
            await asyncio.sleep(0.02)


async def test_a_killed_stream_goes_on_and_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The driver is killed while it streams; meanwhile all is compacted and collected; another driver goes on."""
    path, checkpoint, folder = tmp_path / "db", tmp_path / "checkpoint", tmp_path / "parquet"
    rng = random.Random(11)
    settings = KINDS[0].settings(retention_ms=3_600_000, gc_min_age_ms=0, version_keep_ms=0)
    async with slate.open(path, settings=settings) as db:
        await write(db, rng, 1_500)
        async with ChildProcess(["-m", "tests.spark.streamer", str(path), str(checkpoint), str(folder)]) as child:
            await micro_batches(checkpoint, 2)
            await write(db, rng, 600)
            os.kill(child.pid, signal.SIGKILL)
        await db.compact(full=True)
        await write(db, rng, 500)
        async with slate.open_gc(path, settings=settings, periodic=False) as collector:
            await collector.collect()

        def go_on() -> None:
            query = start(changes(spark, str(path)), str(checkpoint), str(folder), availableNow=True)
            query.awaitTermination()

        await asyncio.to_thread(go_on)
        assert streamed(spark, folder) == await history(db)
        async with slate.open_admin(path) as admin:
            [subscription] = [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"]
            assert subscription.name is not None
            assert subscription.name.startswith("spark ")
            assert subscription.expire_time is not None
            assert (await admin.verify()).clean


async def only_subscription(path: Path) -> slate.CheckpointInfo:
    """Wait until no checkpoint is left but one subscription's, and the writer's own."""
    async with slate.open_admin(path) as admin, asyncio.timeout(60):
        while True:
            kept = [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner != "writer"]
            if [checkpoint.owner for checkpoint in kept] == ["feed"]:
                return kept[0]
            await asyncio.sleep(0.1)


async def test_a_stopped_query_gives_back_what_it_has_consumed(spark: SparkSession, tmp_path: Path) -> None:
    """Spark terminates the process of its planner: that ends in order, and the subscription lives its whole life."""
    path, rng = tmp_path / "db", random.Random(12)
    async with slate.open(path) as db:
        await write(db, rng, 900)
        query = start(changes(spark, str(path)), str(tmp_path / "checkpoint"), str(tmp_path / "parquet"))
        await micro_batches(tmp_path / "checkpoint", 3)
        last = query.lastProgress
        assert last is not None
        [source] = last.sources
        assert json.loads(source.latestOffset) == {"seq": db.status().last_seq}
        assert json.loads(source.endOffset)["database_id"] == db.status().database_id
        began = time.time()
        await asyncio.to_thread(query.stop)
        subscription = await only_subscription(path)
        assert subscription.expire_time is not None
        assert subscription.expire_time > began + 7 * 86_400
        async with slate.open_reader(path) as reader:
            async with reader.changes(subscription=subscription.name, follow=False) as feed:
                assert feed.acknowledged >= 300, "of which Spark knew that they were done"


async def test_a_query_that_has_seen_nothing_keeps_its_place_as_long_as_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "db"
    async with slate.open(path) as db:
        query = start(changes(spark, str(path)), str(tmp_path / "checkpoint"), str(tmp_path / "parquet"))
        await asyncio.to_thread(query.processAllAvailable)
        async with slate.open_admin(path) as admin:
            [running] = [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"]
        await asyncio.to_thread(query.stop)
        stopped = await only_subscription(path)
        for subscription in (running, stopped):
            assert subscription.expire_time is not None
            assert subscription.expire_time > time.time() + 6 * 86_400
        await db.put(b"k", b"v")

    def go_on() -> None:
        checkpoint, folder = str(tmp_path / "checkpoint"), str(tmp_path / "parquet")
        start(changes(spark, str(path)), checkpoint, folder, availableNow=True).awaitTermination()

    await asyncio.to_thread(go_on)
    assert [key for _, _, key, _ in streamed(spark, tmp_path / "parquet")] == [b"k"]


async def test_a_stream_comes_back_to_its_own_database_only(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint, folder = tmp_path / "db", tmp_path / "checkpoint", tmp_path / "parquet"
    ids = []

    def run() -> None:
        query = start(changes(spark, str(path)), str(checkpoint), str(folder), availableNow=True)
        query.awaitTermination()

    for _ in range(2):
        async with slate.open(path) as db:
            await db.put(b"k", b"v")
            ids.append(db.status().database_id)
        if len(ids) == 1:
            await asyncio.to_thread(run)
            await only_subscription(path)  # the planner's process has written its last
            shutil.rmtree(path)
    with pytest.raises(StreamingQueryException, match=f"of database {ids[0]}, and .* is database {ids[1]}"):
        await asyncio.to_thread(run)
    assert len(streamed(spark, folder)) == 1


async def test_changes_are_read_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(13)
    async with slate.open(tmp_path, settings=KINDS[0].settings(retention_ms=3_600_000)) as db:
        await write(db, rng, 300)
        await db.compact(full=True)
        await write(db, rng, 100)
        whole = await history(db)

        def told(**options: object) -> Told:
            read = spark.read.format("slate-changes").options(partitionBytes=10_000, **options)  # type: ignore[arg-type]
            rows = read.load(str(tmp_path)).collect()
            return sorted((row.seq, row.op, bytes(row.key), row.value and bytes(row.value)) for row in rows)

        assert await asyncio.to_thread(told) == whole
        part = await asyncio.to_thread(partial(told, startingSeq=100, endingSeq=350))
        assert part == [row for row in whole if 100 < row[0] <= 350]
        assert await asyncio.to_thread(partial(told, startingSeq=400)) == []
        with pytest.raises(PySparkException, match="endingSeq=401: the newest sequence number that is durable is 400"):
            await asyncio.to_thread(partial(told, endingSeq=401))


async def test_a_static_frame_is_fresh_in_each_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Made once, before the query; Spark plans it once, too."""
    path, source, folder = tmp_path / "db", tmp_path / "in", tmp_path / "out"
    async with slate.open(path) as db:
        await db.put(b"price", b"1")
        prices = slate_spark.read(spark, str(path)).selectExpr("key", "cast(value as string) as price")

        def run(number: int) -> set[tuple[int, str]]:
            orders = spark.createDataFrame([(number, b"price")], "id long, key binary")
            orders.coalesce(1).write.mode("append").parquet(str(source))
            stream = spark.readStream.schema("id long, key binary").parquet(str(source))
            start(stream.join(prices, "key"), str(tmp_path / "log"), str(folder), availableNow=True).awaitTermination()
            return {(row.id, row.price) for row in spark.read.parquet(str(folder)).collect()}

        assert await asyncio.to_thread(run, 1) == {(1, "1")}
        await db.put(b"price", b"2")
        assert await asyncio.to_thread(run, 2) == {(1, "1"), (2, "2")}
