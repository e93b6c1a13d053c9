"""Compaction on Spark: the same output as here, the same errors, and a driver that dies is followed by another."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.spark import SparkExecutor
from slate_async.storage.manifest.state import SstRef
from tests.engine import Kind

pytestmark = pytest.mark.timeout(300)
SETTINGS = {"sst_bytes": 40_000, "block_bytes": 2_000, "compaction_parallelism": 2}
HEADER_BYTES, FOOTER_BYTES = 80, 104
ROOT = Path(__file__).resolve().parents[2]


async def fill(path: Path, kind: Kind, flushes: int = 3, *, seed: int = 1) -> dict[bytes, bytes]:
    """Flush after flush, with deletes and expiring rows; what is there in the end."""
    rng = random.Random(seed)
    async with slate.open(path, settings=kind.settings(**SETTINGS)) as db:
        for _ in range(flushes):
            batch = slate.WriteBatch()
            for key in rng.sample(range(3_000), 1_500):
                if rng.random() < 0.1:
                    batch.delete(b"%05d" % key)
                else:
                    batch.put(b"%05d" % key, rng.randbytes(60), ttl=rng.choice((None, 3_600.0)))
            await db.write(batch)
            await db.flush(l0=True)
        return {key: value async for key, value in db.scan()}


async def rows(path: Path) -> dict[bytes, bytes]:
    async with slate.open_reader(path) as reader:
        return {key: value async for key, value in reader.scan()}


class Twice:
    """An executor that runs each range on Spark and here, and compares."""

    def __init__(self, on_spark: SparkExecutor, admin: slate.Admin, path: Path) -> None:
        self._on_spark = on_spark
        self._admin = admin
        self._path = path
        self.ranges = 0

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        there, here = await self._on_spark.run(task, progress), await self._admin.merge_range(task)
        assert there.counts == here.counts
        assert [self._data(sst) for sst in there.ssts] == [self._data(sst) for sst in here.ssts]
        self.ranges += 1
        return there

    def _data(self, sst: SstRef) -> bytes:
        """Everything between the two places that say which epoch made it when: header and footer."""
        stored = (self._path / f"{sst.location}.obj").read_bytes()
        return stored[HEADER_BYTES : sst.size - FOOTER_BYTES]


async def test_ranges_are_merged_there_as_here(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    before = await fill(tmp_path, kind)
    with SparkExecutor(spark, str(tmp_path)) as on_spark:
        async with slate.open_admin(tmp_path) as admin:
            twice = Twice(on_spark, admin, tmp_path)
            settings = kind.settings(**SETTINGS)
            async with slate.open_compactor(
                tmp_path, settings=settings, executor=twice, auto_compaction=False
            ) as compactor:
                assert await compactor.compact(full=True) == 1
            assert twice.ranges > 1
            assert (await admin.verify()).clean
    assert await rows(tmp_path) == before


class Slow:
    """A task that takes a Spark process an hour to read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.sleep, (3600,)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while True:
            if true():
                return
            await asyncio.sleep(0.05)


async def test_a_cancelled_range_ends_its_job_and_one_that_waits_never_begins(
    spark: SparkSession, tmp_path: Path
) -> None:
    jobs = spark.sparkContext.statusTracker()
    slow = cast(RangeTask, Slow())
    with SparkExecutor(spark, str(tmp_path), parallelism=1) as on_spark:
        ranges = [asyncio.create_task(on_spark.run(slow)) for _ in range(2)]
        await until(lambda: bool(jobs.getActiveJobsIds()))
        for task in ranges:
            task.cancel()
        await asyncio.wait(ranges)
        await until(lambda: not jobs.getActiveJobsIds())
        await asyncio.sleep(0.3)
        assert not jobs.getActiveJobsIds()
