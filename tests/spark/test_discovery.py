"""The formats by name, in sessions in which nothing was registered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async import spark as slate_spark

pytestmark = pytest.mark.timeout(300)


async def put_rows(path: Path) -> None:
    async with slate.open(path) as db:
        for number in range(20):
            await db.put(b"%02d" % number, b"%d" % number, await_durable=False)


def test_spark_finds_the_formats(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(put_rows(tmp_path / "db"))
    fresh, source, copy = spark.newSession(), str(tmp_path / "db"), str(tmp_path / "copy")
    rows = fresh.read.format("slate").load(source).select("key", "value")
    rows.coalesce(1).write.format("slate").mode("append").save(copy)
    changes = fresh.read.format("slate-changes").option("startingSeq", "beginning").load(copy)
    assert [row.op for row in changes.collect()] == ["put"] * 20


def test_options_and_registration_of_a_format_that_spark_found(spark: SparkSession, tmp_path: Path) -> None:
    """They are those of a registered one; to register it in addition is no error."""
    asyncio.run(put_rows(tmp_path / "db"))
    fresh, path = spark.newSession(), str(tmp_path / "db")
    with pytest.raises(PySparkException, match=r"slate_async\.errors\.InvalidError: unknown option startkeys"):
        fresh.read.format("slate").option("startKeys", "0").load(path)
    fresh.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    rows = fresh.read.format("slate").option("pushFilters", "true").load(path)
    assert rows.where("key >= CAST('15' AS binary)").count() == 5
    fresh.conf.unset("spark.sql.python.filterPushdown.enabled")
    slate_spark.register(fresh)
    assert fresh.read.format("slate").option("columns", "key").load(path).columns == ["key"]
