"""Parquet and back, and what is counted of a database on Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS

T = TypeVar("T")
pytestmark = pytest.mark.timeout(300)
SETTINGS = KINDS[0].settings(sst_bytes=4_000, block_bytes=500)
KEYS = [b"%04d" % number for number in range(300)]


def value_of(key: bytes) -> bytes:
    return json.dumps({"name": key.decode(), "team": int(key) % 3}).encode()


def with_db(path: Path | str, work: Callable[[slate.Db], Awaitable[T]]) -> T:
    async def run() -> T:
        async with slate.open(str(path), settings=SETTINGS) as db:
            return await work(db)

    return asyncio.run(run())


async def fill(db: slate.Db) -> None:
    """Old versions, deletes and rows that expire, in SSTs and in the log."""
    for number in range(3):
        batch = slate.WriteBatch()
        for key in KEYS[number * 50 :]:
            batch.put(key, value_of(key), ttl=3_600.0 if int(key) % 2 else None)
        for key in KEYS[::10]:
            batch.delete(key)
        await db.write(batch)
        if number < 2:
            await db.flush(l0=True)


async def stored(db: slate.Db) -> list[tuple[bytes, bytes, float | None]]:
    return [(row.key, row.value, row.expire_time) async for row in db.scan().rows()]


async def checkpoints(db: slate.Db) -> list[slate.CheckpointInfo]:
    return [info for info in await db.checkpoints.list() if info.owner == "user"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("export") / "db")
    with_db(path, fill)
    return path


def test_a_database_comes_back_equal(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    report = slate_spark.export_parquet(spark, filled, str(tmp_path / "files"), partitionBytes=4_000)
    before = with_db(filled, stored)
    assert report.rows == len(before) == 270
    files = sorted((tmp_path / "files").glob("*.parquet"))
    assert len(files) > 1
    keys = [key for file in files for key in pq.read_table(file, columns=["key"]).column("key").to_pylist()]
    assert keys == [key for key, _, _ in before]
    info = slate_spark.import_parquet(spark, str(tmp_path / "files"), str(tmp_path / "copy"))  # makes it
    assert (info.state, info.rows) == ("applied", 270)
    assert with_db(tmp_path / "copy", stored) == before
    assert with_db(filled, checkpoints) == []
    assert slate_spark.export_parquet(spark, filled, str(tmp_path / "none"), startKey="b", endKey="b").rows == 0


def test_an_import_keeps_deletes_and_refuses_what_it_would_lose(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("put", "a", "1", 1), ("put", "b", "1", 2), ("delete", "a", None, 3), ("put", "b", "2", 4)]
    spark.createDataFrame(rows, "op string, key string, value string, seq long").write.parquet(f"{tmp_path}/changes")
    with_db(tmp_path / "db", lambda db: db.put(b"a", b"before"))
    info = slate_spark.import_parquet(spark, f"{tmp_path}/changes", f"file:{tmp_path}/db", mode="exclusive")
    assert (info.rows, info.deletes) == (1, 1)
    assert with_db(tmp_path / "db", stored) == [(b"b", b"2", None)]
    spark.createDataFrame([("a", "1", 7)], "key string, value string, age int").write.parquet(f"{tmp_path}/more")
    with pytest.raises(slate.InvalidError, match="column age would be lost"):
        slate_spark.import_parquet(spark, f"{tmp_path}/more", str(tmp_path / "db"))


def test_user_columns_become_folders(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    def columns(df: Any) -> Any:
        return slate_spark.decode_json(df, "name string, team int").select("name", "team")

    report = slate_spark.export_parquet(spark, filled, str(tmp_path / "t"), decode=columns, partition_by=["team"])
    assert {folder.name for folder in (tmp_path / "t").glob("team=*")} == {"team=0", "team=1", "team=2"}
    names = {row.name: row.team for row in spark.read.parquet(str(tmp_path / "t")).collect()}
    assert names == {key.decode(): int(key) % 3 for key in KEYS if int(key) % 10}
    assert report.rows == len(names)


def test_statistics_add_up_over_ranges(spark: SparkSession, filled: str, tmp_path: Path) -> None:
    df = slate_spark.statistics(spark, filled, partitionBytes=4_000)
    rows = df.collect()
    assert len(rows) > 1
    assert [row.start for row in rows[1:]] == [row.end for row in rows[:-1]]
    whole = with_db(filled, lambda db: db.row_statistics())
    assert slate_spark.totals(df) == {
        name: list(value) if isinstance(value := getattr(whole, name), tuple) else value
        for name in slate_spark.totals(df)
    }
    assert whole.live == 270
    assert whole.versions > whole.keys
    assert with_db(filled, checkpoints) == []
    part = slate_spark.statistics(spark, filled, startKey="0100", endKey="0200")
    assert slate_spark.totals(part)["live"] == 90
    empty = slate_spark.statistics(spark, filled, startKey="~")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert [row[0] for row in empty.select(F.try_divide("tombstones", "versions")).collect()] == [None]
