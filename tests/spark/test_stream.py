"""``readStream.format("slate-changes")``: each change once, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import slate_async as slate
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
            [subscription] = [one for one in await admin.checkpoints.list() if one.owner == "feed"]
            assert subscription.name is not None
            assert subscription.name.startswith("spark ")
            assert subscription.expire_time is not None
            assert (await admin.verify()).clean
