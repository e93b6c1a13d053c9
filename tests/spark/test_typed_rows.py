"""Rows with columns of their user's, written and read as they are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark

pytestmark = pytest.mark.timeout(300)
PEOPLE = "tenant string, number int, name string, age int, tags array<string>, born date"
TYPED = {"keyType": "tuple", "keyColumns": "tenant,number"}


def people(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).select(
        F.concat(F.lit("t"), (F.col("id") % 3).cast("string")).alias("tenant"),
        (F.col("id") - 20).cast("int").alias("number"),
        F.when(F.col("id") % 5 != 0, F.concat(F.lit('n "'), F.col("id").cast("string"))).alias("name"),
        (F.col("id") % 90).cast("int").alias("age"),
        F.array(F.lit("a"), F.lit(None).cast("string")).alias("tags"),
        F.date_add(F.lit("2000-01-01").cast("date"), F.col("id").cast("int")).alias("born"),
    )


def stored(path: Path) -> dict[bytes, bytes]:
    async def rows() -> dict[bytes, bytes]:
        async with slate.open_reader(path, pin=False) as reader:
            return {key: value async for key, value in reader.scan()}

    return asyncio.run(rows())


def put(path: Path, rows: dict[bytes, bytes]) -> None:
    async def write() -> None:
        async with slate.open(path) as db:
            for key, value in rows.items():
                await db.put(key, value, await_durable=False)

    asyncio.run(write())


def same(one: DataFrame, other: DataFrame) -> bool:
    return one.exceptAll(other.select(one.columns)).count() == 0 and one.count() == other.count()


@pytest.mark.parametrize("form", ["json", "msgpack", "arrow"])
def test_a_frame_comes_back_as_it_was_written(spark: SparkSession, tmp_path: Path, form: str) -> None:
    df = people(spark, 300)
    save = df.repartitionByRange(3, "tenant", "number").write.format("slate").mode("append")
    save.options(**TYPED, valueFormat=form, ingestMode="exclusive").save(str(tmp_path))
    rows = stored(tmp_path)
    assert len(rows) == 300
    assert slate.keys.unpack(min(rows)) == ("t0", -20)
    if form == "json":
        first = json.loads(rows[slate.keys.pack("t1", -19)])
        assert first == {"name": 'n "1', "age": 1, "tags": ["a", None], "born": "2000-01-02"}
    read = slate_spark.read(spark, str(tmp_path), schema=PEOPLE, valueFormat=form, partitionBytes=2_000, **TYPED)
    assert read.schema.simpleString() == df.schema.simpleString()
    assert same(read, df)
    few = slate_spark.read(
        spark, str(tmp_path), schema=PEOPLE, columns=["age", "number", "tenant"], valueFormat=form, **TYPED
    )
    assert few.columns == ["age", "number", "tenant"]
    assert same(few, df.select("age", "number", "tenant"))
    keyed = df.select(
        slate_spark.encode_key("tenant", "number").alias("key"),
        slate_spark.encode_value("name", "age", "tags", "born", value_format=form).alias("value"),  # type: ignore[arg-type]
    )
    if form != "arrow":  # whose bytes tell of types in detail
        assert {bytes(row.key): bytes(row.value) for row in keyed.collect()} == rows


def test_a_view_has_the_columns_it_says(spark: SparkSession, tmp_path: Path) -> None:
    put(
        tmp_path,
        {b"user:%d" % number: json.dumps({"name": f"n{number}", "age": number}).encode() for number in range(9)},
    )
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW typed_people (key string, age int, seq bigint) USING slate"
        f" OPTIONS (path '{tmp_path}', keyType 'string', valueFormat 'json')"
    )
    rows = spark.sql("SELECT key, age FROM typed_people WHERE age > 6 ORDER BY seq").collect()
    assert [(row.key, row.age) for row in rows] == [("user:7", 7), ("user:8", 8)]
    plain = spark.read.format("slate").schema("value binary, key binary").load(str(tmp_path)).collect()
    assert {bytes(row.key): bytes(row.value) for row in plain} == stored(tmp_path)
    times = slate_spark.read(spark, str(tmp_path), columns=["expire_time", "key"], keyType="string").collect()
    assert {(row.key, row.expire_time) for row in times} == {(f"user:{number}", None) for number in range(9)}


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("key binary, name string", {}, "a row has no column name; option valueFormat says"),
        (
            "key string, value binary",
            {},
            "column key is string, and binary by option keyType=binary: give option keyType=string",
        ),
        ("key binary, value string", {}, "column value is string; it is binary"),
        ("key binary, seq string", {}, "column seq is string; of a row it is bigint"),
        ("number int, name string", {**TYPED, "valueFormat": "json"}, "it lacks tenant"),
        ("key binary, more map<string,int>", {"valueFormat": "json"}, "column more is map<string,int>"),
        (None, {"valueFormat": "json"}, "valueFormat need a schema"),
        (None, {"keyColumns": "a"}, "give option keyType=tuple"),
        (None, {"columns": "key,nothing"}, "there is no column nothing"),
        ("key string", {"keyType": "string", "pushFilters": True}, "pushFilters compares keys"),
    ],
)
def test_what_no_row_can_be_is_refused_before_anything_is_read(
    spark: SparkSession, schema: str | None, options: dict[str, Any], said: str
) -> None:
    names = options.pop("columns", None) if "columns" in options else None
    with pytest.raises(slate.InvalidError, match=said):
        slate_spark.read(spark, "/nowhere", schema=schema, columns=names and names.split(","), **options)


def test_rows_that_are_not_as_they_were_said_to_be_are_named(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, {b"\xff": b'{"age": 1}', b"good": b'{"age": "old"}'})
    for schema, options, said in (
        ("key string", {"keyType": "string"}, r"InvalidError: key b'\\xff' is no UTF-8"),
        ("age int", {"valueFormat": "json"}, "InvalidError: the value of key b'good' is not JSON of the schema"),
        ("a int", {"keyType": "tuple", "keyColumns": "a"}, "InvalidError: key b'good' has not the parts a int32"),
    ):
        with pytest.raises(PySparkException, match=said):
            slate_spark.read(spark, str(tmp_path), schema=schema, **options).collect()
    df = spark.createDataFrame([("a", float("nan"))], "key string, share double")
    save = df.write.format("slate").mode("append").option("valueFormat", "json")
    with pytest.raises(PySparkException, match="InvalidError: column share holds NaN"):
        save.option("ingestMode", "exclusive").save(str(tmp_path))
    with pytest.raises(PySparkException, match="drop them"):
        df.withColumn("seq", F.lit(1)).write.format("slate").mode("append").option("valueFormat", "json").save("/no")
