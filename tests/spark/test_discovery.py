"""The formats by name, in sessions in which nothing was registered."""

from __future__ import annotations

import asyncio
import sys
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


def test_a_python_without_the_engine_is_one_line_of_advice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody said which Python to take, and Spark finds one that has pyspark alone."""
    asyncio.run(put_rows(tmp_path / "db"))
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nPYTHONSAFEPATH=1 exec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    for first in (slate_spark.read, slate_spark.read_changes, lambda session, _: slate_spark.register(session)):
        with pytest.raises(slate.InvalidError, match=r"^Spark's Python workers do not find slate_async: .*\$\(which"):
            first(spark.newSession(), str(tmp_path / "db"))
    whole = tmp_path / "whole"
    whole.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    whole.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(whole))
    assert slate_spark.read(spark.newSession(), str(tmp_path / "db")).count() == 20
