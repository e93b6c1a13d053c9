"""Reads as jobs use them: values decoded, a checkpoint for a block, clones, filters pushed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS

pytestmark = pytest.mark.timeout(300)
PEOPLE = {b"%04d" % number: {"name": f"n{number}", "age": number % 90} for number in range(400)}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def put_all(path: Path, rows: dict[bytes, bytes]) -> None:
    settings = KINDS[0].settings(sst_bytes=2_000, block_bytes=500)
    async with slate.open(path, settings=settings) as db:
        batch = slate.WriteBatch()
        for key, value in rows.items():
            batch.put(key, value)
        await db.write(batch)
        await db.flush(l0=True)


async def checkpoints(path: Path) -> list[slate.CheckpointInfo]:
    async with slate.open_admin(path) as admin:
        return await admin.checkpoints.list()


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "db"
    run(put_all(path, {key: json.dumps(person).encode() for key, person in PEOPLE.items()}))
    return path


def found(rows: list[Any]) -> dict[bytes, dict[str, Any]]:
    return {bytes(row.key): {"name": row.name, "age": row.age} for row in rows}


def test_json_becomes_columns(spark: SparkSession, people: Path) -> None:
    df = slate_spark.decode_json(slate_spark.read(spark, str(people)), "name string, age int")
    assert df.columns == ["key", "seq", "create_time", "expire_time", "name", "age"]
    assert found(df.collect()) == PEOPLE


def test_json_that_is_none_fails_or_is_null(spark: SparkSession, tmp_path: Path) -> None:
    run(put_all(tmp_path, {b"a": b'{"age": 7}', b"b": b"\xff{"}))
    df = slate_spark.read(spark, str(tmp_path))
    decoded = slate_spark.decode_json(df, "name string, age int")
    with pytest.raises((PySparkException, Py4JJavaError), match=r"the value of key 'b' \(X'62'\) is not JSON"):
        decoded.collect()
    assert found(decoded.filter("key = X'61'").collect()) == {b"a": {"name": None, "age": 7}}
    with pytest.raises((PySparkException, Py4JJavaError), match="the value of a row is not JSON"):
        slate_spark.decode_json(df.select("value"), "name string, age int").collect()
    with pytest.raises(slate.InvalidError, match="key would be there twice, as a column and as a member"):
        slate_spark.decode_json(df, "key string, name string")
    rows = slate_spark.decode_json(df, "name string, age int", on_error="null").collect()
    assert found(rows) == {b"a": {"name": None, "age": 7}, b"b": {"name": None, "age": None}}


def test_json_is_one_object_and_nothing_else(spark: SparkSession) -> None:
    good = [b'{"age": 1}', b' {"age": 1, "more": {"x": [1]}}\n', b'{"name": "n"}', b"{}"]
    bad = [
        b"", b" ", b"null", b"7", b"[1]", b'{"age": 1} garbage', b'{"age": 1}{"age": 2}', b'{"age": 1},{"age": 2}',
        b'{"age": 1}} garbage', b'{"age": 1}]} garbage', b'{"age": 1}],"w":[{"age": 2}', b'{"age": 1.5}',
        b'{"age": "1"}', b'{"name": "\xff"}', b"{'age': 1}", b'[{"age": 1}]',
    ]  # fmt: skip
    df = spark.createDataFrame([(bytearray(text), text in good) for text in good + bad], "value binary, good boolean")
    rows = slate_spark.decode_json(df, "name string, age int", on_error="null").collect()
    assert [(row.name, row.age) for row in rows if row.good] == [(None, 1), (None, 1), ("n", None), (None, None)]
    assert {(row.name, row.age) for row in rows if not row.good} == {(None, None)}
    assert slate_spark.decode_json(df.filter("good"), "name string, age int").count() == len(good)
    for text in bad:
        one = df.filter(col("value") == bytearray(text)).filter("not good")
        with pytest.raises((PySparkException, Py4JJavaError), match="is not JSON of the schema"):
            slate_spark.decode_json(one, "name string, age int").collect()


def test_arrow_streams_become_rows(spark: SparkSession, tmp_path: Path) -> None:
    def stream(ages: list[int]) -> bytes:
        table = pa.table({"age": pa.array(ages, pa.int64()), "name": [f"n{age}" for age in ages]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    run(put_all(tmp_path, {b"a": stream([1, 2]), b"b": stream([]), b"c": stream([3])}))
    df = slate_spark.decode_arrow(slate_spark.read(spark, str(tmp_path)), "name string, age int")
    rows = [(bytes(row.key), row.name, row.age) for row in df.collect()]
    assert sorted(rows) == [(b"a", "n1", 1), (b"a", "n2", 2), (b"c", "n3", 3)]
    assert dict(df.dtypes)["age"] == "int"


def test_a_value_that_is_no_arrow_stream_is_named(spark: SparkSession, tmp_path: Path) -> None:
    run(put_all(tmp_path, {b"bad": b"no stream"}))
    df = slate_spark.decode_arrow(slate_spark.read(spark, str(tmp_path)), "name string")
    with pytest.raises(PySparkException, match=r"InvalidError: the value of key b'bad' is not an Arrow stream"):
        df.collect()


def test_the_error_of_a_function_names_the_keys_it_was_given(spark: SparkSession, people: Path) -> None:
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError("its own")

    df = slate_spark.decode_with(slate_spark.read(spark, str(people)), broken, "key binary")
    with pytest.raises(PySparkException, match=r"its own\nin the rows from key b'0000' to key b'0\d\d\d'"):
        df.collect()


def test_a_function_makes_columns(spark: SparkSession, people: Path) -> None:
    def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
        lengths = pc.binary_length(batch.column("value"))
        return pa.record_batch([lengths, batch.column("key")], names=["size", "key"])

    df = slate_spark.decode_with(slate_spark.read(spark, str(people)), sizes, "key binary, size long")
    assert {bytes(row.key): row.size for row in df.collect()} == {
        key: len(json.dumps(person)) for key, person in PEOPLE.items()
    }


def test_a_block_has_one_read_point_and_leaves_no_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    run(put_all(tmp_path, {b"a": b"1"}))
    with slate_spark.reading(spark, str(tmp_path)) as df:
        assert df.count() == 1
        run(put_all(tmp_path, {b"b": b"2"}))
        assert df.count() == df.filter(df.key >= bytearray(b"a")).count() == 1
        assert len(run(checkpoints(tmp_path))) == 1
    assert run(checkpoints(tmp_path)) == []
    with pytest.raises(ZeroDivisionError), slate_spark.reading(spark, str(tmp_path)) as df:
        assert df.count() / 0
    assert run(checkpoints(tmp_path)) == []


def test_clones_read_their_parents(spark: SparkSession, people: Path, tmp_path: Path) -> None:
    async def clone() -> None:
        async with slate.open_admin(people) as admin:
            await admin.clone(str(tmp_path / "clone"))
        await put_all(tmp_path / "clone", {b"more": b'{"name": "m", "age": 1}'})

    run(clone())
    df = slate_spark.read(spark, str(tmp_path / "clone"), partitionBytes=4_000)
    assert df.rdd.getNumPartitions() > 1
    rows = slate_spark.decode_json(df, "name string, age int").collect()
    assert found(rows) == {**PEOPLE, b"more": {"name": "m", "age": 1}}


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def test_pushed_filters_read_fewer_partitions(spark: SparkSession, people: Path, pushdown: None) -> None:
    def fresh() -> Any:
        return slate_spark.read(spark, str(people), pushFilters=True, partitionBytes=1_000)

    key = bytearray(b"0100")
    few = fresh().filter((col("key") >= key) & (col("key") < bytearray(b"0110")))
    assert few.count() == 10
    assert few.rdd.getNumPartitions() < fresh().rdd.getNumPartitions() / 2
    for condition, count in (
        (col("key") == key, 1),
        (col("key").isin(key, bytearray(b"0300")), 2),
        ((col("key") < key) | (col("key") > bytearray(b"0398")), 101),
    ):
        assert fresh().filter(condition).count() == count


def test_a_frame_with_pushed_filters_answers_one_query_only(spark: SparkSession, people: Path, pushdown: None) -> None:
    """Spark's own behaviour, which docs/guide/spark.md warns of. The day this fails, the option can be the default."""
    df = slate_spark.read(spark, str(people), pushFilters=True, partitionBytes=1_000)
    assert df.filter(df.key < bytearray(b"0010")).count() == 10
    assert df.count() < len(PEOPLE)
    plain = slate_spark.read(spark, str(people), partitionBytes=1_000)
    assert plain.filter(plain.key < bytearray(b"0010")).count() == 10
    assert plain.count() == len(PEOPLE)


def test_pushed_filters_must_be_allowed(spark: SparkSession, people: Path) -> None:
    df = slate_spark.read(spark, str(people), pushFilters=True)
    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        df.filter(df.key < bytearray(b"0010")).count()
