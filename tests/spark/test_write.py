"""``df.write.format("slate")`` and ``df.writeStream.format("slate")``."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.spark.test_load import SETTINGS, contents, jobs, load, made, small

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
    save(some(spark, 10, "2").drop("id"), tmp_path, jobId="load", onKnown="skip")  # done already
    with pytest.raises(PySparkException, match="job 'load' is applied, with 3,000 rows, and these are others"):
        save(some(spark, 3_000, "2").repartitionByRange(2, "key"), tmp_path, orderColumn="id", jobId="load")
    save(frame.repartitionByRange(3, "key"), tmp_path, orderColumn="id", jobId="load")
    sorted_rows = slate_spark.arrange(some(spark, 10, "3"), op=F.lit("delete"), partitions=1)
    save(sorted_rows, tmp_path, sortMode="none")
    assert (await contents(tmp_path) == expected[10:]) is True
    assert {job.state for job in await jobs(tmp_path)} == {"applied"}


async def test_appending_makes_a_database(spark: SparkSession, tmp_path: Path) -> None:
    small(spark, [("b", "2"), ("a", "1")]).write.format("slate").mode("append").save(str(tmp_path))
    assert await contents(tmp_path) == [(b"a", b"1"), (b"b", b"2")]


async def test_a_frame_takes_the_place_of_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    """Read from the very database that it replaces; then nothing takes its place."""
    await made(tmp_path)
    save(some(spark, 3_000, "1").repartitionByRange(2, "key"), tmp_path, orderColumn="id")
    there = slate_spark.read(spark, str(tmp_path)).filter("cast(key as string) between '01000' and '01999'")
    fewer = there.select("key", F.lit("2").alias("value")).repartitionByRange(2, "key")
    save(fewer, tmp_path, "overwrite", jobId="fewer")
    expected = [(b"%05d" % number, b"2") for number in range(1_000, 2_000)]
    assert (await contents(tmp_path) == expected) is True
    save(fewer, tmp_path, "overwrite", jobId="fewer")  # done already
    assert (await contents(tmp_path) == expected) is True
    save(small(spark, []), tmp_path, "overwrite")
    assert await contents(tmp_path) == []
    assert {job.state for job in await jobs(tmp_path)} == {"applied"}


async def test_without_a_writer_nothing_needs_a_flag(spark: SparkSession, tmp_path: Path) -> None:
    """A load into a new path, then saves in place of it and beside it, twice each; nobody has the database open."""
    frame = some(spark, 300, "1").drop("id")
    for _ in range(2):
        assert (await load(frame, tmp_path)).state == "applied"
    for value in ("2", "3"):
        some(spark, 100, value).drop("id").repartitionByRange(2, "key").write.format("slate").mode("overwrite").save(
            str(tmp_path)
        )
        small(spark, [("z", value)]).write.format("slate").mode("append").save(str(tmp_path))
    expected = [*((b"%05d" % number, b"3") for number in range(100)), (b"z", b"3")]
    assert (await contents(tmp_path) == expected) is True
    assert {job.state for job in await jobs(tmp_path)} == {"applied"}


async def test_a_save_that_raised_is_never_applied_later(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path)
    rows = small(spark, [("a", "never")]).write.format("slate").options(ingestMode="ingest", timeout="0.1")
    for mode in ("overwrite", "append"):
        with pytest.raises(PySparkException, match="was aborted, and none of its rows is there"):
            rows.mode(mode).save(str(tmp_path))
    with pytest.raises(slate.UnavailableError, match="was aborted, and none of its rows is there") as error:
        await load(small(spark, [("a", "never")]), tmp_path, mode="ingest", timeout=0.1)
    assert error.value.outcome == "not_applied"
    assert {job.state for job in await jobs(tmp_path)} == {"aborted"}
    await made(tmp_path, b"after")
    assert [key for key, _ in await contents(tmp_path)] == [b"after", b"before"]


async def test_an_exclusive_overwrite_waits_for_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """What its caller named is applied first, in order."""
    await made(tmp_path)
    for number in range(2):
        await load(small(spark, [("n", str(number))]), tmp_path, job_id=f"named {number}", wait=False, mode="ingest")
    save(small(spark, [("a", "1")]), tmp_path, "overwrite")
    assert await contents(tmp_path) == [(b"a", b"1")]
    named = [job for job in await jobs(tmp_path) if job.job_id.startswith("named")]
    assert [(job.job_id, job.state) for job in named] == [("named 1", "applied"), ("named 0", "applied")]
    assert named[0].seq > named[1].seq


async def test_a_load_replaces_beside_a_live_writer(spark: SparkSession, tmp_path: Path) -> None:
    """What the writer puts first while the tasks work stays; everything older is deleted, also in the feed."""
    async with slate.open(tmp_path, settings=SETTINGS) as db:
        for number in range(500):
            await db.put(b"%05d" % number, b"old", await_durable=False)
        await db.put(b"old", b"old")
        feed = db.changes(from_seq=db.status().last_seq)
        df = some(spark, 400, "new").filter(F.expr("assert_true(id >= 0) is null"))
        loading = asyncio.create_task(load(df, tmp_path, order="id", replace=True, partitions=3, job_id="nightly"))
        await until_registered(tmp_path)
        await db.put(b"first put meanwhile", b"stays")
        await db.put(b"old", b"put again, and replaced")
        info = await loading
        await db.put(b"later", b"stays")
        rows = [row async for row in db.scan()]
        kept = [(b"%05d" % number, b"new") for number in range(400)]
        assert (rows == [*kept, (b"first put meanwhile", b"stays"), (b"later", b"stays")]) is True
        changes = [change async for change in limited(feed, 2 + info.rows + info.deletes)]
    deleted = [change.key for change in changes if change.op == "delete"]
    assert deleted == [*(b"%05d" % number for number in range(400, 500)), b"old"]
    assert {change.seq for change in changes[2:]} == {info.seq}


async def test_to_replace_exclusively_takes_all_or_nothing(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path)
    rows = small(spark, [("a", "1")])

    def put_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asyncio.run(made(tmp_path))
        yield from batches

    with pytest.raises(slate.ConflictError, match="replaces all rows as of"):
        await load(rows.mapInArrow(put_meanwhile, rows.schema), tmp_path, replace=True, mode="exclusive")
    assert await contents(tmp_path) == [(b"before", b"1")]
    assert [job.state for job in await jobs(tmp_path)] == ["aborted"]
    assert (await load(rows, tmp_path, replace=True, mode="exclusive")).state == "applied"
    assert await contents(tmp_path) == [(b"a", b"1")]


async def until_registered(path: Path) -> None:
    while True:
        if any(job.state == "registered" for job in await jobs(path)):
            return
        await asyncio.sleep(0.01)


async def limited(feed: AsyncIterator[slate.Change], count: int) -> AsyncIterator[slate.Change]:
    async for change in feed:
        yield change
        count -= 1
        if not count:
            return


async def test_what_cannot_be_written_is_said(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path)
    with pytest.raises(PySparkException, match=r"overlapping keys: partition by ranges .*: repartitionByRange before"):
        save(some(spark, 100, "1").repartition(2), tmp_path, orderColumn="id")
    assert await contents(tmp_path) == [(b"before", b"1")]
    assert [job.state for job in await jobs(tmp_path)] == ["aborted"]


@pytest.mark.parametrize("app_id", [None, "copy"])
async def test_a_stream_comes_in_once_whatever_is_repeated(
    app_id: str | None, spark: SparkSession, tmp_path: Path
) -> None:
    """Two batches; then Spark forgets that the last one was committed, and replays it; then a third one; then comes
    another query. Spark counts the rows twice that it reads twice, to find ranges."""
    path, source, log = tmp_path / "db", tmp_path / "in", tmp_path / "log"
    named = {} if app_id is None else {"appId": app_id}
    await made(path)

    def arrive(number: int) -> None:
        small(spark, [(f"{number}", "x"), ("last", f"{number}")]).write.mode("append").parquet(str(source))

    def run(*, spread: bool = True) -> int:
        stream = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(source))
        writer = (rows.repartitionByRange(2, "key") if spread else rows.coalesce(1)).writeStream.format("slate")
        writer = writer.option("checkpointLocation", str(log)).options(**named)
        query = writer.option("ingestMode", "exclusive").trigger(availableNow=True).start(str(path))
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    arrive(0)
    assert run() == 2 * 2
    arrive(1)
    run()
    before = await jobs(path)
    query_id = json.loads((log / "metadata").read_text())["id"]
    stem = query_id if app_id is None else f"{app_id}/{query_id}"
    assert [(job.job_id, job.state) for job in before] == [(f"{stem}/1", "applied"), (f"{stem}/0", "applied")]
    assert {job.app_id for job in before} == {app_id or query_id}
    for kept in (log / "commits").glob("*1*"):
        kept.unlink()
    run()
    assert await jobs(path) == before
    arrive(2)
    assert run(spread=False) == 2
    assert (await jobs(path))[0].batch_id == 2
    assert await contents(path) == [(b"0", b"x"), (b"1", b"x"), (b"2", b"x"), (b"before", b"1"), (b"last", b"2")]
    async with slate.open(path) as db:
        await db.put(b"last", b"1")
    shutil.rmtree(log)  # the next query begins at batch 0 again
    if app_id is None:
        run()
        assert len({job.app_id for job in await jobs(path)}) == 2
    else:
        with pytest.raises(StreamingQueryException, match=f"are counted by query {query_id}, and this one comes from"):
            run()
    async with slate.open_reader(path) as reader:
        assert await reader.get(b"last") == (b"2" if app_id is None else b"1")


async def test_a_complete_result_takes_the_place_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """Counts of words, all of them in every batch; the last batch is replayed."""
    path, source, log = tmp_path / "db", tmp_path / "in", tmp_path / "log"
    await made(path)

    def run(*words: str) -> None:
        small(spark, [(word,) for word in words], "word string").write.mode("append").parquet(str(source))
        lines = spark.readStream.schema("word string").parquet(str(source))
        counts = lines.groupBy("word").count().filter("count < 3")
        columns = counts.select(F.col("word").alias("key"), F.col("count").cast("string").alias("value"))
        writer = columns.repartitionByRange(2, "key").writeStream.format("slate").outputMode("complete")
        writer = writer.option("checkpointLocation", str(log))
        writer.option("ingestMode", "exclusive").trigger(availableNow=True).start(str(path)).awaitTermination()

    run("a", "b", "b")
    assert await contents(path) == [(b"a", b"1"), (b"b", b"2")]
    run("b", "c")
    assert await contents(path) == [(b"a", b"1"), (b"c", b"1")]
    for kept in (log / "commits").glob("*1*"):
        kept.unlink()
    run()
    assert await contents(path) == [(b"a", b"1"), (b"c", b"1")]


async def test_a_query_that_goes_on_at_another_path_fails_and_makes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"

    def run(name: str, *, rows: bool = True, **options: str) -> None:
        small(spark, [(name, "x")]).write.mode("append").parquet(str(source))
        lines = spark.readStream.schema("key string, value string").parquet(str(source))
        writer = lines.filter(F.lit(rows)).coalesce(1).writeStream.format("slate").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "log")).option("ingestMode", "exclusive")
        writer.trigger(availableNow=True).start(str(tmp_path / name)).awaitTermination()

    run("db", rows=False)  # an empty first batch notes its number
    run("db")
    with pytest.raises(StreamingQueryException, match=r"batch 2 of query .* firstBatch=2"):
        run("other")
    assert not (tmp_path / "other").exists()
    run("db")
    assert await contents(tmp_path / "db") == [(b"db", b"x"), (b"other", b"x")]
