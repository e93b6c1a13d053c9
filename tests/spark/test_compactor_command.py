"""``slate compact --executor spark``: the driver is killed, and another goes on where it stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.spark import SparkExecutor
from slate_async.storage.manifest.state import Compaction
from tests.engine import KINDS
from tests.integration.processes import ChildProcess
from tests.spark.test_compaction import fill, rows

pytestmark = pytest.mark.timeout(600)
SETTINGS = {"sst_bytes": 20_000, "block_bytes": 2_000, "compaction_parallelism": 1}


class Counting:
    """An executor that counts the key ranges it passes on."""

    def __init__(self, executor: SparkExecutor) -> None:
        self._executor = executor
        self.ranges = 0

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        self.ranges += 1
        return await self._executor.run(task, progress)


async def until_some_ranges_are_done(path: Path) -> None:
    """Wait until the registered compaction has noted two of its ranges."""
    async with slate.open_admin(path) as admin, asyncio.timeout(240):
        while True:
            found = (await admin.inspect.manifest()).state.compactions
            if found and len(found[0].finished) >= 2:
                return
            await asyncio.sleep(0.02)


async def left_behind(path: Path) -> Compaction:
    async with slate.open_admin(path) as admin:
        (compaction,) = (await admin.inspect.manifest()).state.compactions
        return compaction


async def test_a_killed_driver_is_followed_by_another(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "db"
    before = await fill(path, KINDS[0])
    settings = tmp_path / "settings.toml"
    settings.write_text("".join(f"{name} = {value}\n" for name, value in SETTINGS.items()))
    command = ["-m", "slate_async.cli", "--path", str(path), "--settings", str(settings), "compact", "--full"]
    driver = ["--executor", "spark", "--master", "local[1]", "--spark-conf", "spark.ui.enabled=false"]
    async with ChildProcess([*command, *driver]) as child:
        await until_some_ranges_are_done(path)
        os.kill(child.pid, signal.SIGKILL)  # not its JVM, which notices

    compaction = await left_behind(path)
    done = {sst.object_id for output in compaction.finished for sst in output.ssts}
    left = len(compaction.bounds) + 1 - len(compaction.finished)
    assert left > 0, "it was killed too late"
    with SparkExecutor(spark, str(path)) as on_spark:
        counting = Counting(on_spark)
        async with slate.open_compactor(path, settings=slate.Settings(**SETTINGS), executor=counting) as compactor:
            await compactor.compact()
            assert compactor.metrics()["compaction.resumed"] == 1
    assert counting.ranges == left
    async with slate.open_admin(path) as admin:
        (run,) = (await admin.inspect.manifest()).state.runs
        assert done <= {sst.object_id for sst in run.ssts}
        assert (await admin.verify()).clean
    assert await rows(path) == before
