"""``df.write.format("slate")`` and ``df.writeStream.format("slate")``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.spark.test_load import contents, jobs, made, small

pytestmark = pytest.mark.timeout(300)


def save(df: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    df.write.format("slate").mode(mode).options(ingestMode="exclusive", **options).save(str(path))


def some(spark: SparkSession, count: int, value: str) -> DataFrame:
    """Keys in no order."""
    numbers = spark.range(0, count, 1, 2).orderBy(F.hash("id"))
    return numbers.select(F.format_string("%05d", "id").alias("key"), F.lit(value).alias("value"), "id")


async def test_a_frame_is_appended(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path)
    frame = some(spark, 3_000, "1")
    twice = frame.unionByName(frame.select("key", F.lit("0").alias("value"), F.lit(-1).cast("long").alias("id")))
    save(twice.repartitionByRange(2, "key"), tmp_path, orderColumn="id", jobId="load")
    expected = [*((b"%05d" % number, b"1") for number in range(3_000)), (b"before", b"1")]
    assert (await contents(tmp_path) == expected) is True
    save(some(spark, 10, "2").drop("id"), tmp_path, jobId="load")  # done already
    sorted_rows = slate_spark.arrange(some(spark, 10, "3"), op=F.lit("delete"), partitions=1)
    save(sorted_rows, tmp_path, sortMode="none")
    assert (await contents(tmp_path) == expected[10:]) is True
    assert {job.state for job in await jobs(tmp_path)} == {"admitted"}


async def test_appending_makes_a_database(spark: SparkSession, tmp_path: Path) -> None:
    small(spark, [("b", "2"), ("a", "1")]).write.format("slate").mode("append").save(str(tmp_path))
    assert await contents(tmp_path) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(("mode", "said"), [("overwrite", "not supported"), ("append", "overlapping keys")])
async def test_what_cannot_be_written_is_said(spark: SparkSession, tmp_path: Path, mode: str, said: str) -> None:
    await made(tmp_path)
    with pytest.raises(PySparkException, match=said):
        save(some(spark, 100, "1").repartition(2), tmp_path, mode, orderColumn="id")
    assert await contents(tmp_path) == [(b"before", b"1")]
    assert [job.state for job in await jobs(tmp_path)] in ([], ["withdrawn"])


async def test_a_stream_comes_in_once_whatever_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """Two batches; then Spark forgets that the last one was committed, and replays it; then a third one."""
    path, source, log = tmp_path / "db", tmp_path / "in", tmp_path / "log"
    await made(path)

    def arrive(number: int) -> None:
        small(spark, [(f"{number}", "x"), ("last", f"{number}")]).write.mode("append").parquet(str(source))

    def run() -> None:
        stream = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
        writer = stream.parquet(str(source)).repartitionByRange(2, "key").writeStream.format("slate")
        writer = writer.option("checkpointLocation", str(log)).option("appId", "copy")
        query = writer.option("ingestMode", "exclusive").trigger(availableNow=True).start(str(path))
        query.awaitTermination()

    arrive(0)
    run()
    arrive(1)
    run()
    before = await jobs(path)
    assert [(job.job_id, job.state) for job in before] == [("copy/1", "admitted"), ("copy/0", "admitted")]
    for kept in (log / "commits").glob("*1*"):
        kept.unlink()
    run()
    assert await jobs(path) == before
    arrive(2)
    run()
    assert (await jobs(path))[0].batch_id == 2
    assert await contents(path) == [(b"0", b"x"), (b"1", b"x"), (b"2", b"x"), (b"before", b"1"), (b"last", b"2")]
    shutil.rmtree(log)
    run()  # begins at batch 0 again, which this app has left behind
    assert len(await jobs(path)) == 3
    async with slate.open_reader(path) as reader:
        assert await reader.get(b"last") == b"2"
