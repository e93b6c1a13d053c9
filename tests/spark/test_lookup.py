"""Joins that read single rows, and what the planner is told of sizes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS
from tests.spark.streamer import start

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
    asyncio.run(put_all(path, {**rows, slate.keys.pack("t", 1): b'{"name": "tuple"}'}))
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


def test_rows_go_to_the_tasks_that_read_their_keys(
    spark: SparkSession, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slate_async.spark.key_order.RANGE_BYTES", 1000)
    number = F.col("id").cast("int")
    ids = F.when(
        number % 7 != 0, F.format_string("%04d", number % 600)
    )  # each key some times, a hundred missing, nulls
    df = spark.range(0, 3000, 1, 3).select(number.alias("at"), ids.alias("id"))

    def keys_of_tasks(**how: int) -> list[list[str]]:
        looked_up = slate_spark.lookup(df, str(people), key="id", **JSON, **how)  # type: ignore[arg-type]
        assert looked_up.columns == ["at", "id", "name", "age"]
        rows = looked_up.select(
            "*", F.spark_partition_id().alias("task"), F.monotonically_increasing_id().alias("order")
        )
        tasks: dict[int, list[str]] = {}
        found = {}
        for row in sorted(rows.collect(), key=lambda row: row.order):
            tasks.setdefault(row.task, []).append(row.id)
            found[row.at] = (row.name, row.age)
        assert found == {
            at: (f"n{at % 600}", at % 600 % 90) if at % 7 and at % 600 < 500 else (None, None) for at in range(3000)
        }
        return list(tasks.values())

    for tasks in (keys_of_tasks(), keys_of_tasks(partitions=4)):
        assert len(tasks) in (2, 4)
        keys = [[key for key in ids if key is not None] for ids in tasks]
        assert keys == [sorted(some) for some in keys]
        assert sum(len(set(some)) for some in keys) == len(set().union(*keys)), "a key is looked up by one task"
        assert all(len(some) > 2500 / len(keys) / 2 for some in keys)
        nulls = [sum(key is None for key in ids) for ids in tasks]
        assert sum(nulls) == 429
        assert max(nulls) < 300, "not all in one task"
    stayed = keys_of_tasks(partitions=0)
    assert len(stayed) == 3
    assert len({*stayed[0]} & {*stayed[1]}) > 100


def test_rows_are_told_apart_by_keys_alone(spark: SparkSession, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are equal stay as many as they were; keys may be bytes that are no text."""
    monkeypatch.setattr("slate_async.spark.key_order.RANGE_BYTES", 1000)
    twice = [(b"0001",), (b"0001",), (b"\xff",), (b"0499",), (None,), (None,)]
    df = spark.createDataFrame(twice, "key binary")
    left = slate_spark.lookup(df, str(people), columns="age int", valueFormat="json").collect()
    assert sorted((bytes(row.key or b"-"), row.age or 0) for row in left) == [
        *[(b"-", 0)] * 2,
        *[(b"0001", 1)] * 2,
        (b"0499", 499 % 90),
        (b"\xff", 0),
    ]
    inner = slate_spark.lookup(df, str(people), columns="age int", valueFormat="json", how="inner")
    assert sorted(row.age for row in inner.collect()) == [1, 1, 499 % 90]
    nobody = df.filter("false")
    assert slate_spark.lookup(nobody, str(people), how="inner").collect() == []


async def checkpoints(path: Path) -> list[str | None]:
    async with slate.open_admin(path) as admin:
        return [kept.name for kept in await admin.checkpoints.list() if kept.owner == "user"]


def test_each_micro_batch_of_a_stream_sees_the_database_as_it_is_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a database of several ranges, too: Spark sorts no stream."""
    monkeypatch.setattr("slate_async.spark.key_order.RANGE_BYTES", 1000)
    path, source, folder = tmp_path / "db", tmp_path / "in", tmp_path / "out"
    asyncio.run(put_all(path, {b"%04d" % number: b"1" * 50 for number in range(500)}))
    source.mkdir()
    stream = spark.readStream.schema("id string").parquet(str(source))
    found = slate_spark.lookup(stream, str(path), key="id")

    def run(key: str) -> dict[str, bytes | None]:
        spark.createDataFrame([(key,)], "id string").coalesce(1).write.mode("append").parquet(str(source))
        start(found, str(tmp_path / "log"), str(folder), availableNow=True).awaitTermination()
        rows = spark.read.parquet(str(folder)).collect()
        return {row.id: row.value and bytes(row.value) for row in rows}

    assert run("0007") == {"0007": b"1" * 50}
    asyncio.run(put_all(path, {b"0008": b"2"}))
    assert run("0008") == {"0007": b"1" * 50, "0008": b"2"}
    assert len([name for name in asyncio.run(checkpoints(path)) if name != "spark read"]) == 1
    with pytest.raises(slate.InvalidError, match="rows of a streaming frame stay where they are"):
        slate_spark.lookup(stream, str(path), key="id", partitions=2)


def test_a_function_of_foreach_batch_leaves_the_checkpoint_of_its_last_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, source = tmp_path / "db", tmp_path / "in"
    asyncio.run(put_all(path, {}))
    for number in range(3):
        rows = spark.createDataFrame([(number,)], "number int")
        rows.coalesce(1).write.mode("append").parquet(str(source))
    seen: list[list[bytes | None]] = []

    def each(df: DataFrame, number: int) -> None:
        key = df.select(F.lit("key").alias("key"))
        before = slate_spark.lookup(key, str(path))
        asyncio.run(put_all(path, {b"key": b"%d" % number}))
        after = slate_spark.lookup(key, str(path))
        seen.append([row.value and bytes(row.value) for row in (*before.collect(), *after.collect())])

    stream = spark.readStream.schema("number int").option("maxFilesPerTrigger", 1).parquet(str(source))
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "log"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert seen == [[None, b"0"], [b"0", b"1"], [b"1", b"2"]]
    left = asyncio.run(checkpoints(path))
    assert len(left) == 2, left
    assert all((name or "").endswith(", batch 2") for name in left)


def test_what_a_lookup_cannot_mean_is_refused(spark: SparkSession, people: Path) -> None:
    df = spark.createDataFrame([("a", 1)], "key string, number int")
    for more, said in (
        ({"columns": "number int", "valueFormat": "json"}, "number would be there twice"),
        ({"columns": "name string"}, "a row has no column name"),
        ({"columns": "seq long"}, "adds what values hold, not seq"),
        ({"key": "number"}, "the key is int; it must be binary, or a string"),
        ({"how": "outer"}, "how is one of 'left', 'inner'"),
        ({"prefix": "a"}, "a lookup has the keys of its rows"),
        ({"partitions": -1}, "partitions=-1: a number of tasks, or 0"),
        ({"key": F.lit(1.5)}, "the key is double"),
        ({"key": F.current_date()}, "the key is date"),
    ):
        with pytest.raises(slate.InvalidError, match=said):
            slate_spark.lookup(df, str(people), **more)  # type: ignore[arg-type]
    with pytest.raises(slate.InvalidError, match="a key has one part at least"):
        slate_spark.lookup(df, str(people), key=[])
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
