"""A data set's whole way: loaded, overwritten, joined, looked up, streamed through two databases while driver and JVM
are killed, exported, imported. It is judged by the number of rows, by contents that many rows share, and by the change
feeds: a micro-batch that came in twice leaves equal rows.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS
from tests.integration.processes import ChildProcess
from tests.slices import sample, slice_seed
from tests.spark import exactly_once
from tests.spark.journey_driver import copy_to_second, copy_to_third
from tests.spark.journey_rows import (
    NAMES,
    SCHEMA,
    Contents,
    Rows,
    airports,
    chance_number,
    changed,
    collected,
    flights,
    judged,
    stored,
    table,
    versions,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.timeout(1_800)
LIMIT_S = 300.0
TYPES = {"keyType": "string", "valueFormat": "json"}
SETTINGS = KINDS[0].settings(retention_ms=3_600_000, gc_min_age_ms=0, version_keep_ms=0)
VICTIMS = ("driver", "jvm", "driver")
"""What is killed, one after the other; another driver goes on each time."""
PLACES = ("source", "second", "third", "files", "imported")
KEPT_DELETED = 50
"""Keys that the live writer has deleted and not put again, about."""


def values(df: DataFrame) -> DataFrame:
    return df.select("key", slate_spark.encode_value(*NAMES).alias("value"), "version")


def load(spark: SparkSession, path: Path, rows: Rows, rng: random.Random) -> Rows:
    """What is in the database: loaded in one way, refused, and overwritten in another."""
    first = versions(rows, rng)
    frame = values(spark.createDataFrame(first.table))
    with pytest.raises(slate.InvalidError, match="comes after"):
        slate_spark.bulk_load(frame.drop("version"), str(path))
    info = slate_spark.bulk_load(frame, str(path), order="version")
    assert (info.state, info.rows) == ("applied", len(rows))
    with slate_spark.reading(spark, str(path), schema=SCHEMA, **TYPES) as loaded:
        wrong = judged(with_keys(rows), collected(loaded))
    assert wrong is None, wrong
    second = versions(changed(rows, rng), rng)
    writer = spark.createDataFrame(second.table).repartitionByRange("key").write.format("slate").mode("overwrite")
    writer.options(**TYPES, orderColumn="version").save(str(path))
    return second.rows


def look(spark: SparkSession, path: Path, rows: Rows, checkpoint: str, rng: random.Random) -> None:
    """Join it with another frame, by a scan and by looking single keys up, some of them twice and some in vain."""
    groups = {kind: number % 3 for number, kind in enumerate(sorted({str(contents[2]) for contents in rows.values()}))}
    grouped = spark.createDataFrame(list(groups.items()), "kind string, group_number int")
    with slate_spark.reading(spark, str(path), schema=SCHEMA, columns=["kind"], **TYPES) as kinds:
        found = collected(kinds.join(grouped, "kind").groupBy("group_number").count())
    assert found == Counter(Counter(groups[str(contents[2])] for contents in rows.values()).items())
    keys = rng.sample(sorted(rows), 500)
    keys += [*keys[:100], *(f"none {number}" for number in range(50))]
    asked = spark.createDataFrame([(key,) for key in keys], "key string").repartition(2)
    columns = SCHEMA.partition(", ")[2]
    there = slate_spark.lookup(asked, str(path), columns=columns, valueFormat="json", checkpoint=checkpoint)
    nothing = (None,) * len(NAMES)
    wrong = judged(Counter((key, *rows.get(key, nothing)) for key in keys), collected(there))
    assert wrong is None, wrong


class LiveWriter:
    """Changes every second key of the source until it is stopped: puts, deletes, and puts of what was deleted. ``rows``
    is what is in the source then."""

    def __init__(self, db: slate.Db, rows: Rows, rng: random.Random) -> None:
        self._db, self.rows, self._rng = db, rows, rng
        self._live, self._deleted = sorted(rows)[::2], list[str]()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Wait until its last write is durable."""
        self._stop.set()
        await self._task

    async def _write(self) -> None:
        while not self._stop.is_set():
            batch = slate.WriteBatch()
            for _ in range(4):
                key = self._rng.choice(self._live)
                place, area, kind, _ = self.rows[key]
                self._put(batch, key, (place, area, kind, chance_number(self._rng)))
            deleted = self._taken(self._live)
            self._deleted.append(deleted)
            del self.rows[deleted]
            batch.delete(deleted.encode())
            if len(self._deleted) > KEPT_DELETED:
                again = self._taken(self._deleted)
                self._live.append(again)
                self._put(batch, again, (None, None, "again", chance_number(self._rng)))
            await self._db.write(batch)
            await asyncio.sleep(0.05)

    def _taken(self, keys: list[str]) -> str:
        number = self._rng.randrange(len(keys))
        keys[number], keys[-1] = keys[-1], keys[number]
        return keys.pop()

    def _put(self, batch: slate.WriteBatch, key: str, contents: Contents) -> None:
        self.rows[key] = contents
        batch.put(key.encode(), stored(contents))


def chosen(rows: Rows, rng: random.Random) -> dict[str, Contents | None]:
    """Changes of keys that the live writer leaves alone: puts, and deletes, which have no contents."""
    others = sorted(rows)[1::2]
    puts = {key: (*rows[key][:3], chance_number(rng)) for key in rng.sample(others, len(others) // 4)}
    return {**puts, **dict.fromkeys(rng.sample(others, len(others) // 8))}


def load_changes(spark: SparkSession, path: Path, changes: dict[str, Contents | None]) -> None:
    """Beside the live writer."""
    nothing = (None,) * len(NAMES)
    rows = table((key, contents or nothing) for key, contents in changes.items())
    ops = pa.array(["delete" if contents is None else "put" for contents in changes.values()])
    frame = spark.createDataFrame(rows.append_column("op", ops))
    value = F.when(F.col("op") == "put", slate_spark.encode_value(*NAMES))
    info = slate_spark.bulk_load(frame, str(path), key="key", value=value, op="op", job_id="changes")
    assert info.state == "applied"


def progress(folder: Path) -> int:
    """How often Spark has written down where a micro-batch ends, or that it is done."""
    return sum(len(list(folder.glob(f"to */{log}/[0-9]*"))) for log in ("offsets", "commits"))


async def kill_amid(folder: Path, victim: str, events: int) -> None:
    """Start a driver, and kill it or its JVM when it has got so far."""
    command = ["-m", "tests.spark.journey_driver", str(folder)]
    async with ChildProcess(command, env={"SLATE_HEARTBEAT_INTERVAL_MS": "1000"}) as driver:
        jvm = int((await driver.wait_for_line("jvm ", timeout=LIMIT_S)).split()[1])
        await driver.wait_for_line("started", timeout=LIMIT_S)
        enough = progress(folder) + events
        async with asyncio.timeout(LIMIT_S):
            while progress(folder) < enough:
                assert driver.returncode is None, driver.stderr_tail()
                await asyncio.sleep(0.01)
        os.kill(driver.pid if victim == "driver" else jvm, signal.SIGKILL)
        status = await driver.wait(timeout=LIMIT_S)  # until the JVM and its processes have ended, too
        assert (status == -signal.SIGKILL) == (victim == "driver"), driver.stderr_tail()


async def until_left(path: Path, wanted: Sequence[str]) -> None:
    """Wait until no checkpoints are left but those, beside the writer's."""
    async with slate.open_admin(path) as admin, asyncio.timeout(60):
        while True:
            kept = [info for info in await admin.checkpoints.list() if info.owner != "writer"]
            if sorted(str(info.name).split(" ")[0] for info in kept) == list(wanted):
                return
            await asyncio.sleep(0.1)


async def check_left(path: Path, wanted: Sequence[str]) -> None:
    """Nothing is wrong or on its way, and no checkpoint is there but those whose names begin so; a stream has given
    back all that it has read."""
    await until_left(path, wanted)
    async with slate.open_admin(path) as admin, slate.open_reader(path) as reader:
        assert (await admin.verify()).clean
        jobs = await admin.ingests.list()
        assert [job for job in jobs if job.state in ("registered", "pending")] == []
        for info in await admin.checkpoints.list():
            if info.name is not None and info.name.startswith("spark "):
                async with reader.changes(subscription=info.name, follow=False) as feed:
                    assert feed.acknowledged == reader.status().last_seq
                assert info.expire_time is not None


async def raw(path: Path) -> list[tuple[bytes, bytes]]:
    async with slate.open_reader(path) as reader:
        return [row async for row in reader.scan()]


async def check_once(source: Path, checkpoint: Path, target: Path, subscription: str | None = None) -> None:
    """Each micro-batch came in once, in order."""
    ends = exactly_once.offsets(checkpoint)
    expected = await exactly_once.streamed(str(source), ends, subscription=subscription)
    wrong = exactly_once.judged(expected, await exactly_once.applied(str(target)))
    assert wrong is None, wrong


@pytest.fixture
def long_logs(spark: SparkSession) -> Iterator[None]:
    """Checkpoints of queries keep all their micro-batches."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10000")
    yield
    spark.conf.unset("spark.sql.streaming.minBatchesToRetain")


async def travel(spark: SparkSession, folder: Path, given: Rows, victims: Sequence[str]) -> None:
    rng = random.Random(slice_seed())
    source, second, third, files, imported = (folder / name for name in PLACES)
    rows = await asyncio.to_thread(load, spark, source, given, rng)
    async with slate.open_admin(source) as admin:
        checkpoint = await admin.checkpoints.create(lifetime=600, name="looked up")
        await asyncio.to_thread(look, spark, source, rows, "looked up", rng)
        await admin.checkpoints.delete(checkpoint.id)
    for path in (second, third):
        async with slate.open(path):
            pass
        await exactly_once.keep(str(path))
    async with slate.open(source, settings=SETTINGS) as db:
        changes = chosen(rows, rng)
        writer = LiveWriter(db, rows, rng)
        loading = asyncio.create_task(asyncio.to_thread(load_changes, spark, source, changes))
        for victim in victims:
            await kill_amid(folder, victim, rng.randint(2, 5))
            await db.compact(full=True)
            async with slate.open_gc(source, settings=SETTINGS, periodic=False) as collector:
                await collector.collect()
        await loading
        await writer.stop()
    rows = {key: contents for key, contents in {**writer.rows, **changes}.items() if contents is not None}
    for copy in (copy_to_second, copy_to_third):
        query = await asyncio.to_thread(copy, spark, folder, availableNow=True)
        await asyncio.to_thread(query.awaitTermination)
    await asyncio.to_thread(leave_and_return, spark, third, files, imported)
    await judge(spark, folder, rows)


def leave_and_return(spark: SparkSession, path: Path, files: Path, imported: Path) -> None:
    exported = slate_spark.export_parquet(spark, str(path), str(files))
    info = slate_spark.import_parquet(spark, str(files), str(imported))
    assert (info.state, info.rows) == ("applied", exported.rows)


async def judge(spark: SparkSession, folder: Path, rows: Rows) -> None:
    """All places hold ``rows``, each once; and each change went its way once."""
    source, second, third, files, imported = (folder / name for name in PLACES)
    there = await raw(source)
    for path in (second, third, imported):
        assert len(await raw(path)) == len(there)
        assert await raw(path) == there

    def differs() -> str | None:
        with slate_spark.reading(spark, str(imported), schema=SCHEMA, **TYPES) as frame:
            wrong = judged(with_keys(rows), collected(frame))
        with slate_spark.reading(spark, str(imported), schema=SCHEMA, columns=NAMES, **TYPES) as frame:
            return wrong or judged(without_keys(rows), collected(frame))

    wrong = await asyncio.to_thread(differs)
    assert wrong is None, wrong
    written = await asyncio.to_thread(lambda: collected(spark.read.parquet(str(files)).select("key", "value")))
    assert judged(Counter(there), written) is None
    await check_once(source, folder / "to second", second)
    await check_once(second, folder / "to third", third, exactly_once.SUBSCRIPTION)
    await check_left(source, ["spark"])
    await check_left(second, ["exactly", "spark"])
    await check_left(third, ["exactly"])
    await check_left(imported, [])


@pytest.mark.usefixtures("long_logs")
async def test_a_data_set_goes_its_whole_way(spark: SparkSession, tmp_path: Path, full: bool) -> None:
    await travel(spark, tmp_path, airports(), VICTIMS if full else sample(VICTIMS, 1, "victim"))


@pytest.mark.slow
@pytest.mark.usefixtures("long_logs")
async def test_a_larger_data_set_goes_its_whole_way(spark: SparkSession, tmp_path: Path) -> None:
    await travel(spark, tmp_path, flights(), VICTIMS)


def test_a_lost_and_a_doubled_row_are_seen() -> None:
    rows: Rows = {"a": ("x", None, None, 1), "b": ("x", None, None, 1), "c": ("y", None, None, None)}
    for expected in (with_keys(rows), without_keys(rows)):
        assert judged(expected, expected.copy()) is None
        doubled, lost = expected.copy(), expected.copy()
        first, *_, last = expected
        doubled[first] += 1
        lost[last] -= 1
        assert judged(expected, doubled) == "4 rows, not 3"
        assert judged(expected, lost) == "2 rows, not 3"
        doubled[last] -= 1
        assert "and instead 1 rows" in str(judged(expected, doubled))
