"""`slate_spark.bulk_load`: rows of a frame in a database, beside its writer or without one."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.types import MAX_KEY_BYTES
from tests.engine import CONTIGUOUS, abandon

pytestmark = pytest.mark.timeout(300)
SETTINGS = CONTIGUOUS.settings(manifest_poll_interval_ms=20)
ROWS = 4_000
Rows = list[tuple[bytes, bytes]]
NO_TTL = "ttl='soon' is no column; it is a number of seconds"
NOT_IN_TASKS = ("column for key is int", "column for expire_time is double", NO_TTL)
"""What is said before a load has a job."""


async def load(df: DataFrame, path: Path | str, **more: Any) -> slate.IngestInfo:
    """The load on a thread, for the writer it waits for runs on this loop."""
    return await asyncio.to_thread(partial(slate_spark.bulk_load, df, str(path), **more))


async def made(path: Path, key: bytes = b"before") -> None:
    async with slate.open(path, settings=SETTINGS) as db:
        await db.put(key, b"1")


async def contents(path: Path | str) -> Rows:
    async with slate.open_admin(path) as admin:
        assert (await admin.verify()).findings == ()
    async with slate.open_reader(path) as reader:
        return [row async for row in reader.scan()]


async def jobs(path: Path | str) -> list[slate.IngestInfo]:
    async with slate.open_admin(path) as admin:
        return await admin.ingests.list()


async def objects(path: Path | str) -> list[slate.IngestObject]:
    async with slate.open_admin(path) as admin:
        return await admin.ingests.objects()


async def collect(path: Path | str) -> None:
    """Until nothing more is garbage."""
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    async with slate.open_gc(path, settings=settings, periodic=False) as collector:
        for _ in range(3):
            await collector.collect()


def small(spark: SparkSession, rows: list[tuple[Any, ...]], names: str = "key string, value string") -> DataFrame:
    return spark.createDataFrame(rows, names).coalesce(1)


async def test_rows_come_in_beside_a_live_writer(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of all bytes in any order, several versions of one by an order column, deletes, and times to live."""
    rng = random.Random(5)
    keys = sorted({rng.randbytes(rng.randint(1, 4)) for _ in range(ROWS)} | {b"\x00", b"\x7f", b"\x80", b"\xff" * 9})
    rows = [
        (key, rng.randbytes(20), version, rng.random() > 0.1) for key in keys for version in range(rng.randint(1, 2))
    ]
    last = {key: (value, put) for key, value, _, put in rows}
    rng.shuffle(rows)
    df = spark.createDataFrame(rows, "k binary, v binary, version int, put boolean")
    async with slate.open(tmp_path, settings=SETTINGS) as db:
        await db.put(keys[0], b"hidden by the load")
        info = await load(
            df,
            tmp_path,
            key="k",
            value=F.when(F.col("put"), F.col("v")),
            op=F.when(F.col("put"), "put").otherwise("delete"),
            ttl=3_600,
            order="version",
            partitions=3,
            settings=slate.Settings(sst_bytes=20_000),
        )
        there = [(key, value) for key, (value, put) in last.items() if put]
        assert (info.state, info.rows, info.deletes) == ("applied", len(there), len(last) - len(there))
        stored = [row async for row in db.scan().rows()]
        assert ([(row.key, row.value) for row in stored] == sorted(there)) is True
        assert {row.seq for row in stored} == {2}
        lives = {row.expire_time - row.create_time for row in stored if row.expire_time}
        assert min(lives) > 3_000
        assert max(lives) <= 3_600
        assert len(await objects(tmp_path)) >= 6
    assert await contents(tmp_path) == sorted(there)


async def test_without_a_writer_it_waits_or_takes_over(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await made(tmp_path)
    df = small(spark, [("a", "1"), ("b", "2")])
    with pytest.raises(slate.IngestPendingError, match="exclusive"):
        await load(df, tmp_path, job_id="one", mode="ingest", timeout=0.1)
    assert (await load(df, tmp_path, job_id="one", wait=False)).state == "pending"
    assert await contents(tmp_path) == [(b"before", b"1")]
    assert (await load(df, tmp_path, job_id="one", mode="exclusive")).state == "applied"
    other = small(spark, [("a", "another load of the same name")])
    assert (await load(other, tmp_path, job_id="one", on_known="skip")).rows == 2
    with pytest.raises(slate.InvalidError, match="job 'one' is applied, with 2 rows, and these are others"):
        await load(other, tmp_path, job_id="one")
    assert (await load(df, tmp_path, job_id="one")).state == "applied"
    with pytest.raises(slate.InvalidError, match="a batch has a job of its own"):
        await load(df, tmp_path, job_id="two", batch=("app", 7))
    empty = await load(df.limit(0), tmp_path, batch=("app", 7), mode="exclusive")
    assert (empty.state, empty.rows) == ("applied", 0)
    with caplog.at_level("WARNING", "slate_async.spark"):
        assert (await load(other, tmp_path, batch=("app", 6), mode="exclusive")).state == "duplicate"
        assert (await load(other, tmp_path, batch=("app", 7), mode="exclusive")).state == "applied"
    skipped = [record.message for record in caplog.records if "was skipped" in record.message]
    assert [message[:16] for message in skipped] == ["batch 6 of app i", "batch 7 of app i"]
    assert await contents(tmp_path) == [(b"a", b"1"), (b"b", b"2"), (b"before", b"1")]


async def test_a_batch_of_another_query_is_refused(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts anew: to skip the batches it brings would lose their rows. What is refused is left to nobody."""
    for number in (0, 1):
        assert (
            await load(small(spark, [("a", f"{number}")]), tmp_path, batch=("app", number, "q1"))
        ).state == "applied"
    other = small(spark, [("b", "1")])
    for number in (0, 1, 2):
        with pytest.raises(slate.InvalidError, match="counted by query q1, and this one comes from query q2"):
            await load(other, tmp_path, batch=("app", number, "q2"))
    with caplog.at_level("WARNING", "slate_async.spark"):
        assert (await load(other, tmp_path, batch=("app", 1, "q1"))).state == "applied"
    assert [text for text in caplog.messages if "is in" in text] == [
        f"batch 1 of app is in {tmp_path} already and was skipped: it is a replay"
    ]
    with pytest.raises(slate.InvalidError, match="keys are distinct"):
        await load(other.union(other), tmp_path, sort_mode="partition", batch=("app", 2, "q1"))
    ended = [(job.job_id, job.state) for job in await jobs(tmp_path)]
    assert ended[0] == ("app/q1/2", "aborted")
    assert sorted(ended[1:]) == [
        *((f"app/q1/{number}", "applied") for number in (0, 1)),
        *((f"app/q2/{number}", "aborted") for number in (0, 1, 2)),
    ]
    assert (await load(other, tmp_path, batch=("app", 2, "q1"))).state == "applied"
    assert await contents(tmp_path) == [(b"a", b"1"), (b"b", b"1")]


async def test_foreach_batch_with_a_new_checkpoint_fails_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As the guide has it. Spark says which query runs the function; replayed, its batch is skipped."""
    path, source, log = tmp_path / "db", tmp_path / "in", tmp_path / "log"

    def run() -> str:
        rows = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = rows.writeStream.option("checkpointLocation", str(log)).trigger(availableNow=True)
        query = writer.foreachBatch(
            lambda df, number: slate_spark.bulk_load(df, str(path), batch=("orders", number))  # type: ignore[arg-type]
        ).start()
        query.awaitTermination()
        return str(query.id)

    for number in (0, 1):
        small(spark, [(f"{number}", "x")]).write.mode("append").parquet(str(source))
        query_id = await asyncio.to_thread(run)
    before = [(job.job_id, job.state) for job in await jobs(path)]
    assert before == [(f"orders/{query_id}/{number}", "applied") for number in (1, 0)]
    for kept in (log / "commits").glob("*1*"):
        kept.unlink()
    await asyncio.to_thread(run)
    assert [(job.job_id, job.state) for job in await jobs(path)] == before
    shutil.rmtree(log)
    with pytest.raises(StreamingQueryException, match=f"are counted by query {query_id}, and this one comes from"):
        await asyncio.to_thread(run)
    assert [job.state for job in await jobs(path)] == ["aborted", "applied", "applied"]
    assert await contents(path) == [(b"0", b"x"), (b"1", b"x")]


async def test_a_database_is_made_and_progress_reported(spark: SparkSession, tmp_path: Path) -> None:
    df = small(spark, [("a", "1"), ("b", "2")])
    with pytest.raises(slate.InvalidError, match="create=True"):
        await load(df, tmp_path / "db", create=False)
    told: list[slate_spark.LoadProgress] = []
    info = await load(df, tmp_path / "db", partitions=2, progress=told.append)
    assert (info.state, info.rows, info.digest) == ("applied", 2, None)
    assert told[-1].tasks_done == told[-1].tasks_total >= 2
    assert told[-1].failed == 0
    assert (await load(df, tmp_path / "db", mode="exclusive", progress=lambda _: 1 / 0)).seq == 2  # type: ignore[arg-type]
    assert await contents(tmp_path / "db") == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
async def test_a_callback_that_raises_ends_no_load_and_leaves_no_job(
    spark: SparkSession, tmp_path: Path, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """While a writer that died is awaited, while tasks run, and at the end; also of a load that fails."""
    db = await slate.open(tmp_path, settings=SETTINGS.replace(heartbeat_interval_ms=100))
    await abandon(db)
    await asyncio.sleep(0.4)  # it is silent for more than three of its heartbeats
    seen: list[slate_spark.LoadProgress] = []

    def broken(progress: slate_spark.LoadProgress) -> None:
        seen.append(progress)
        raise error

    def at_the_end(progress: slate_spark.LoadProgress) -> None:
        if 0 < progress.tasks_total == progress.tasks_done:
            broken(progress)

    rows = small(spark, [("a", "1"), ("b", "2")])
    assert (await load(rows, tmp_path, progress=broken)).state == "applied"
    assert [bool(progress.waiting) for progress in seen] == [True, False]
    assert "silent; waiting" in str(seen[0].waiting)
    assert (await load(rows, tmp_path, progress=at_the_end)).state == "applied"
    assert len(seen) == 3
    with pytest.raises(slate.InvalidError, match="keys are distinct"):
        await load(rows.union(rows), tmp_path, sort_mode="partition", partitions=None, progress=broken)
    assert sorted(job.state for job in await jobs(tmp_path)) == ["aborted", "applied", "applied"]
    assert await contents(tmp_path) == [(b"a", b"1"), (b"b", b"2")]
    assert caplog.text.count("telling the progress of a load failed") == 4


@pytest.mark.parametrize(
    ("rows", "names", "more", "said"),
    [
        ([("a", "1"), (None, "2")], "key string, value string", {}, "its key is null"),
        ([("", "1")], "key string, value string", {}, "a key has 1 to"),
        ([("a" * (MAX_KEY_BYTES + 1), "1")], "key string, value string", {}, "a key has 1 to"),
        ([("a", None)], "key string, value string", {}, "its value is null"),
        ([("a", "1"), ("a", "2")], "key string, value string", {}, "keys are distinct"),
        ([("b", "1"), ("a", "2")], "key string, value string", {"sort_mode": "none"}, "sort rows by key"),
        ([("a", "1")], "key string, value string", {"ttl": "soon"}, NO_TTL),
        ([(1, "1")], "key int, value string", {}, "column for key is int"),
        ([("a", "1", 1.5)], "key string, value string, e double", {"expire": "e"}, "column for expire_time is double"),
    ],
)
async def test_rows_that_cannot_be_stored_are_named(
    spark: SparkSession, tmp_path: Path, rows: list[Any], names: str, more: Any, said: str
) -> None:
    await made(tmp_path)
    df = small(spark, rows, names)
    with pytest.raises(slate.InvalidError, match=said):
        await load(df, tmp_path, mode="exclusive", **{"sort_mode": "partition", **more})
    assert await contents(tmp_path) == [(b"before", b"1")]
    in_a_task = said not in NOT_IN_TASKS
    assert [job.state for job in await jobs(tmp_path)] == (["aborted"] if in_a_task else [])


async def test_of_one_key_with_very_many_versions_one_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """They come in many batches, to one task."""
    versions = spark.range(0, 30_000, 1, 2).select(F.lit("key").alias("key"), F.hex("id").alias("value"), "id")
    info = await load(versions.orderBy(F.hash("id")), tmp_path, order="id", partitions=2)
    assert info.rows == 1
    assert await contents(tmp_path) == [(b"key", b"%X" % 29_999)]


async def test_ranges_that_overlap_are_reported_and_hold_nothing_up(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path)
    df = spark.createDataFrame([(f"{number:03}", "x") for number in range(100)], "key string, value string")
    with pytest.raises(slate.InvalidError, match="overlapping keys: partition by ranges"):
        await load(df.repartition(2), tmp_path, sort_mode="partition", mode="exclusive")
    assert [job.state for job in await jobs(tmp_path)] == ["aborted"]
    assert await contents(tmp_path) == [(b"before", b"1")]
    assert (await load(df, tmp_path, job_id="load", mode="exclusive")).rows == 100


def failing(df: DataFrame, path: Path, attempts: int) -> DataFrame:
    """``df``, whose tasks fail in so many attempts, once an SST of them is there."""
    before = len(ssts(path))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < attempts:
            for _ in range(2_000):
                if len(ssts(path)) > before:
                    raise RuntimeError("this attempt fails")
                time.sleep(0.01)

    return df.mapInArrow(run, df.schema)


def ssts(path: Path) -> list[Path]:
    return list(path.glob("sst/*.obj"))


@pytest.mark.parametrize("attempts", [1, 9])
async def test_tasks_that_fail_leave_only_garbage(spark: SparkSession, tmp_path: Path, attempts: int) -> None:
    await made(tmp_path)
    rows = spark.range(0, 30_000, 1, 1).select(
        F.format_string("%06d", "id").alias("key"), F.sha2(F.col("id").cast("string"), 512).alias("value")
    )
    df = failing(rows, tmp_path, attempts)
    loading = load(df, tmp_path, sort_mode="none", mode="exclusive", target_sst_bytes=200_000)
    if attempts == 1:
        assert (await loading).rows == 30_000
    else:
        with pytest.raises(PySparkException, match="this attempt fails"):
            await loading
        assert [job.state for job in await jobs(tmp_path)] == ["aborted"]
    left = [listed for listed in await objects(tmp_path) if not listed.named]
    assert left
    assert {unnamed.job_id for unnamed in left} == {job.job_id for job in await jobs(tmp_path)}
    before = await contents(tmp_path)
    assert len(before) == (30_001 if attempts == 1 else 1)
    async with asyncio.timeout(60):  # the worker of a failed attempt may upload one more SST after all this
        while any(not listed.named for listed in await objects(tmp_path)):
            await collect(tmp_path)
    assert await contents(tmp_path) == before


async def test_a_driver_that_fails_ends_no_job_that_has_a_name(spark: SparkSession, tmp_path: Path) -> None:
    """Another one is at work on it, whose commit counts; and after that, asked again, that one's."""
    await made(tmp_path)
    async with slate.open_ingest(tmp_path, job_id="load") as other:
        told = await other.write([pa.table({"key": [b"a"], "value": [b"1"]})])
        with pytest.raises(slate.InvalidError, match="keys are distinct"):
            await load(small(spark, [("a", "1"), ("a", "2")]), tmp_path, job_id="load")
        assert len(told) == 1
        assert (await other.commit(mode="exclusive")).state == "applied"
    with pytest.raises(slate.InvalidError, match="nothing is noted of them that these could be compared with"):
        await load(small(spark, [("a", "2")]), tmp_path, job_id="load")
    again = await load(small(spark, [("a", "2")]), tmp_path, job_id="load", on_known="skip")
    assert (again.state, again.rows) == ("applied", 1)
    assert await contents(tmp_path) == [(b"a", b"1"), (b"before", b"1")]


@pytest.mark.parametrize("replace", [False, True], ids=["adds", "replaces"])
async def test_a_known_job_is_done_if_its_rows_are_the_same(spark: SparkSession, tmp_path: Path, replace: bool) -> None:
    """In other partitions, and with a time to live that counts from now. Else it is an error, also of as many rows."""
    await made(tmp_path)
    versions = [(f"{number % 900:03}", f"{number}", number) for number in range(1_000)]
    names = "key string, value string, version int"
    loading = partial(load, path=tmp_path, order="version", ttl=3_600, job_id="load", replace=replace)
    first = await loading(spark.createDataFrame(versions, names), partitions=3)
    assert (first.state, first.rows, first.deletes) == ("applied", 900, int(replace))
    assert first.ssts >= 3
    assert first.size == sum(stored.size for stored in await objects(tmp_path) if stored.named)
    assert await loading(spark.createDataFrame(versions[::-1], names).repartition(2), partitions=1) == first
    changed = [(*row[:1], "other", *row[2:]) if row[2] == 950 else row for row in versions]
    for others in (changed, versions[:-1], versions[101:]):
        with pytest.raises(slate.InvalidError, match="job 'load' is applied, with 900 rows, and these are others"):
            await loading(spark.createDataFrame(others, names))
    assert await loading(spark.createDataFrame(changed, names), on_known="skip") == first
    assert [row for row in await contents(tmp_path) if row[1] == b"other"] == []


async def test_of_two_drivers_of_one_job_the_second_learns_that_its_rows_are_not_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its tasks had begun before the first one committed."""
    rows, path = small(spark, [("a", "2")]), str(tmp_path)

    def load_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        async def load() -> None:
            async with slate.open_ingest(path, job_id="load") as job:
                await job.write(pa.table({"key": [b"a"], "value": [b"1"]}), digest=True)
                await job.commit(mode="exclusive")

        yield from batches
        asyncio.run(load())

    with pytest.raises(slate.InvalidError, match="is applied, with 1 rows, and these are others"):
        await load(rows.mapInArrow(load_meanwhile, rows.schema), path, sort_mode="none", job_id="load")
    assert await contents(path) == [(b"a", b"1")]


async def test_an_error_of_the_engine_in_a_task_is_raised_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    df = small(spark, [("a", "1")])

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise slate.UnavailableError("the store does not answer")
        yield from batches

    with pytest.raises(slate.UnavailableError, match=r"^the store does not answer$"):
        await load(df.mapInArrow(fail, df.schema), tmp_path, mode="exclusive")
    assert [job.state for job in await jobs(tmp_path)] == ["aborted"]


async def test_loads_at_once_come_in_one_after_another(spark: SparkSession, tmp_path: Path) -> None:
    """Two jobs, and two drivers of a third one."""
    async with slate.open(tmp_path, settings=SETTINGS) as db:
        loads = [("one", "1"), ("two", "2"), ("three", "3"), ("three", "3")]
        infos = await asyncio.gather(
            *[load(small(spark, [("k", value), (job, value)]), tmp_path, job_id=job) for job, value in loads]
        )
        assert {info.state for info in infos} == {"applied"}
        assert infos[2].seq == infos[3].seq
        assert {info.seq for info in infos} == {1, 2, 3}
        newest = max(zip(infos, loads, strict=True), key=lambda one: one[0].seq)
        assert await db.get(b"k") == newest[1][1].encode()
    assert [key for key, _ in await contents(tmp_path)] == [b"k", b"one", b"three", b"two"]


async def test_a_rehearsal_counts_and_checks(spark: SparkSession) -> None:
    rows = spark.range(1_000).select(
        F.format_string("%04d", F.col("id") % 900).alias("key"), F.lit("v").alias("value"), "id"
    )
    plan = slate_spark.plan_load(rows, order="id", partitions=2)
    assert (plan.rows, len(plan.parts)) == (900, 2)
    assert (plan.parts[0].first_key, plan.parts[1].last_key) == (b"0000", b"0899")
    assert plan.most_ssts(plan.nbytes) == 2
    with pytest.raises(slate.InvalidError, match="overlapping keys: partition by ranges"):
        slate_spark.plan_load(rows, sort_mode="partition")


async def test_deletes_and_expiry_need_not_be_named(spark: SparkSession, tmp_path: Path) -> None:
    """As `save` takes them: a frame that was read, or of a change feed, keeps what it has."""
    rows = [("gone", "1", "delete", None), ("old", "1", "put", 1_000), ("stays", "1", "put", None)]
    await made(tmp_path, b"gone")
    frame = small(spark, rows, "key string, value string, op string, expire_time long")
    await load(frame, tmp_path, mode="exclusive")
    assert await contents(tmp_path) == [(b"stays", b"1")]
    await load(frame.drop("op"), tmp_path, mode="exclusive", ttl=3600)
    assert [key for key, _ in await contents(tmp_path)] == [b"gone", b"old", b"stays"]
