"""Joins that read single rows, and what the planner is told of sizes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS

pytestmark = pytest.mark.timeout(300)
SETTINGS = KINDS[0].settings(sst_bytes=4_000, block_bytes=500)
JSON = {"columns": "name string, age int", "valueFormat": "json"}


async def put_all(path: Path, rows: dict[bytes, bytes]) -> None:
    async with slate.open(path, settings=SETTINGS) as db:
        for key, value in rows.items():
            await db.put(key, value, await_durable=False)
        await db.flush(l0=True)
        await db.put(b"logged", b'{"age": 7}')


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookup") / "db"
    rows = {b"%04d" % number: b'{"name": "n%d", "age": %d}' % (number, number % 90) for number in range(500)}
    asyncio.run(put_all(path, {**rows, slate.encode_key("t", 1): b'{"name": "tuple"}'}))
    return path


def test_rows_get_what_their_keys_have(spark: SparkSession, people: Path) -> None:
    ids = [*(f"{number:04}" for number in range(490, 510)), "0490", "", "x" * 70_000, None, "logged"]
    df = spark.createDataFrame(list(enumerate(ids)), "at int, id string").repartition(3)
    found = slate_spark.lookup(df, str(people), key="id", **JSON)  # type: ignore[arg-type]
    assert found.dtypes == [("at", "int"), ("id", "string"), ("name", "string"), ("age", "int")]
    rows = {row.at: (row.name, row.age) for row in found.collect()}
    assert rows == {
        at: (f"n{int(key)}", int(key) % 90) if key and key.isdigit() and int(key) < 500 else (None, None)
        for at, key in enumerate(ids[:-1])
    } | {len(ids) - 1: (None, 7)}
    inner = slate_spark.lookup(df, str(people), key=F.col("id").cast("binary"), how="inner")
    assert sorted(row.at for row in inner.collect()) == [*range(10), 20, 24]
    assert bytes(inner.filter("at = 24").collect()[0].value) == b'{"age": 7}'
    several = df.limit(1).select(F.lit("t").alias("tenant"), F.lit(1).alias("number"))
    assert slate_spark.lookup(several, str(people), key=["tenant", "number"], **JSON).collect()[0].name == "tuple"  # type: ignore[arg-type]


def test_it_sees_the_database_as_it_was_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(put_all(tmp_path, {b"a": b"1"}))
    df = spark.createDataFrame([("a",), ("b",)], "key string").coalesce(1)
    found = slate_spark.lookup(df, str(tmp_path))
    asyncio.run(put_all(tmp_path, {b"a": b"2", b"b": b"2"}))
    assert [row.value for row in found.orderBy("key").collect()] == [b"1", None]
    again = slate_spark.lookup(df, str(tmp_path)).orderBy("key").collect()
    assert [bytes(row.value) for row in again] == [b"2", b"2"]


def test_what_a_lookup_cannot_mean_is_refused(spark: SparkSession, people: Path) -> None:
    df = spark.createDataFrame([("a", 1)], "key string, number int")
    for more, said in (
        ({"columns": "number int", "valueFormat": "json"}, "number would be there twice"),
        ({"columns": "name string"}, "a row has no column name"),
        ({"columns": "seq long"}, "adds what values hold, not seq"),
        ({"key": "number"}, "the key is int; it must be binary, or a string"),
        ({"how": "outer"}, "how is one of 'left', 'inner'"),
        ({"prefix": "a"}, "a lookup has the keys of its rows"),
    ):
        with pytest.raises(slate.InvalidError, match=said):
            slate_spark.lookup(df, str(people), **more)  # type: ignore[arg-type]
    one = df.select(F.lit("0001").alias("key"))
    wrong = slate_spark.lookup(one, str(people), columns="name int", valueFormat="json")
    with pytest.raises(PySparkException, match="InvalidError: the value of key b'0001' is not JSON of the schema"):
        wrong.collect()


def test_small_frames_are_broadcast(spark: SparkSession, people: Path) -> None:
    whole = slate_spark.size(str(people))
    part = slate_spark.size(str(people), startKey="0000", endKey="0100")
    assert 0 < part < whole < 100_000
    with pytest.raises(slate.InvalidError):
        slate_spark.size(str(people / "nothing"))
    other = spark.range(1).select(F.lit("0001").cast("binary").alias("key"))

    def joined() -> str:
        with slate_spark.reading(spark, str(people)) as rows:
            return rows.join(other, "key")._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[no-any-return, operator]

    assert "rightHint" in joined() or "leftHint" in joined() or "strategy=broadcast" in joined()
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", str(whole - 1))
    try:
        assert "strategy=broadcast" not in joined()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
