"""``spark.read.format("slate")``: the rows of a database, whatever lies in its log, its L0 and its runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import slate_async as slate
from slate_async import spark as slate_spark
from tests.engine import KINDS, Kind

pytestmark = pytest.mark.timeout(300)
KEYS = 3_000


@dataclass(frozen=True)
class Filled:
    """A database and what it holds; ``then`` is an earlier sequence number, ``rows_then`` what it held at it."""

    path: str
    rows: list[slate.Row]
    then: int
    rows_then: list[slate.Row]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def fill(path: Path, kind: Kind) -> Filled:
    """Runs, L0 and log, with overwritten, deleted and expiring rows; keys of all bytes."""
    rng = random.Random(7)
    keys = sorted({rng.randbytes(rng.randint(1, 12)) for _ in range(KEYS)})
    settings = kind.settings(sst_bytes=100_000, block_bytes=4_000, retention_ms=3_600_000)
    async with slate.open(path, settings=settings) as db:
        then, rows_then = 0, []
        for number in range(4):
            batch = slate.WriteBatch()
            for key in rng.sample(keys, KEYS // 2):
                if rng.random() < 0.1:
                    batch.delete(key)
                else:
                    batch.put(key, rng.randbytes(rng.randint(0, 200)), ttl=rng.choice((None, None, 3_600.0)))
            handle = await db.write(batch)
            if number < 3:
                await db.flush(l0=True)
            if number == 1:
                then, rows_then = handle.seq, [row async for row in db.scan().rows()]
                async with slate.open_compactor(path, settings=settings) as compactor:
                    await compactor.compact(full=True)
        return Filled(str(path), [row async for row in db.scan().rows()], then, rows_then)


@pytest.fixture(scope="module")
def filled(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return run(fill(tmp_path_factory.mktemp("spark") / "db", kind))


def collected(df: DataFrame) -> list[slate.Row]:
    """The rows of ``df`` by key."""
    rows = [
        slate.Row(
            bytes(row.key),
            bytes(row.value),
            row.seq,
            _seconds(row.create_time),
            row.expire_time and _seconds(row.expire_time),
        )
        for row in df.collect()
    ]
    return sorted(rows)


def _seconds(moment: datetime) -> float:
    return moment.astimezone(UTC).timestamp()


async def checkpoints(path: str) -> list[slate.CheckpointInfo]:
    async with slate.open_admin(path) as admin:
        return await admin.checkpoints.list()


def test_everything_is_read_once_from_even_partitions(spark: SparkSession, filled: Filled) -> None:
    df = slate_spark.read(spark, filled.path, partitionBytes=60_000)
    assert collected(df) == filled.rows
    sizes = df.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert len(sizes) > 3
    assert max(sizes) < len(filled.rows) / 2


def test_a_part_of_the_columns_in_sparks_own_words(spark: SparkSession, filled: Filled) -> None:
    """Also of a path as Spark writes it."""
    chosen = spark.read.format("slate").schema("key binary, value binary").load(f"file:{filled.path}")
    found = sorted((bytes(row.key), bytes(row.value)) for row in chosen.collect())
    assert found == [(row.key, row.value) for row in filled.rows]


def test_ranges_prefixes_and_keys_alone(spark: SparkSession, filled: Filled) -> None:
    low, high = filled.rows[100].key, filled.rows[200].key
    read = slate_spark.read(spark, filled.path, keyEncoding="hex", startKey=low.hex(), endKey=high.hex())
    assert collected(read) == filled.rows[100:200]
    prefix = filled.rows[50].key[:1]
    read = slate_spark.read(spark, filled.path, keyEncoding="hex", prefix=prefix.hex(), columns=["key"])
    assert read.columns == ["key"]
    keys = [row.key for row in filled.rows if row.key.startswith(prefix)]
    assert sorted(bytes(row.key) for row in read.collect()) == keys
    assert slate_spark.read(spark, filled.path, startKey="b", endKey="b").count() == 0


def test_earlier_states(spark: SparkSession, filled: Filled) -> None:
    assert collected(slate_spark.read(spark, filled.path, atSeq=filled.then, partitionBytes=60_000)) == filled.rows_then


def test_a_checkpoint_by_id_or_name_stays_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    async def put(value: bytes) -> str:
        async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
            if any(info.name == "nightly" for info in await db.checkpoints.list()):
                await db.checkpoints.delete("nightly")
            await db.put(b"k", value)
            made = await db.checkpoints.create(name="nightly")
            await db.put(b"k", b"later")
            return str(made.id)

    def values(**options: str) -> list[bytes]:
        return [row.value for row in collected(slate_spark.read(spark, str(tmp_path), **options))]

    made = run(put(b"monday"))
    assert values(checkpoint=made) == values(checkpoint="nightly") == [b"monday"]
    run(put(b"tuesday"))
    assert values(checkpoint="nightly") == [b"tuesday"]  # in processes that had the other one open
    assert values() == [b"later"]


def test_the_queries_of_a_frame_have_one_read_point(spark: SparkSession, tmp_path: Path) -> None:
    async def put(key: bytes) -> None:
        async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
            await db.put(key, b"v")

    run(put(b"a"))
    df = slate_spark.read(spark, str(tmp_path))
    assert df.count() == 1
    run(put(b"b"))
    assert df.count() == df.filter(df.key >= bytearray(b"a")).count() == 1
    assert slate_spark.read(spark, str(tmp_path)).count() == 2


def test_a_job_makes_a_checkpoint_of_limited_life(spark: SparkSession, filled: Filled) -> None:
    before = {info.id for info in run(checkpoints(filled.path))}
    slate_spark.read(spark, filled.path, checkpointLifetime=120).count()
    (made,) = [info for info in run(checkpoints(filled.path)) if info.id not in before]
    assert made.expire_time is not None
    assert 60 < made.expire_time - made.create_time <= 120


def test_one_frame_asked_twice_answers_twice(spark: SparkSession, filled: Filled) -> None:
    """What pushed filters get wrong: see docs/guide/spark.md."""
    df = slate_spark.read(spark, filled.path)
    middle = filled.rows[len(filled.rows) // 2].key
    below = sum(row.key < middle for row in filled.rows)
    assert df.filter(df.key < bytearray(middle)).count() == below
    assert df.count() == len(filled.rows)
    assert df.filter(df.key >= bytearray(middle)).count() == len(filled.rows) - below


WRONG = [
    ({"partitionByte": "1"}, "unknown option partition[bB]yte"),
    ({"partitionBytes": "0"}, "option partitionBytes='0': a number of bytes"),
    ({"keyEncoding": "hex", "prefix": "xyz"}, "option prefix='xyz'"),
    ({"atTime": "2026-01-31T12:00:00"}, "needs its time zone"),
    ({"atSeq": "1", "atTime": "1"}, "one of the options atSeq and atTime"),
]


@pytest.mark.parametrize(
    ("options", "said"), [*WRONG, ({"atSeq": "999999999"}, "999999999"), ({"checkpoint": "nobody"}, "nobody")]
)
def test_bad_options_are_named(spark: SparkSession, filled: Filled, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.read.format("slate").options(**options).load(filled.path).count()


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_bad_options_of_a_call_are_an_error_of_ours(spark: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said):
        slate_spark.read(spark, "/nowhere", **options)


def test_what_is_no_database_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no database"):
        slate_spark.read(spark, str(tmp_path / "nothing")).count()
    with pytest.raises(PySparkException, match="path is missing"):
        spark.read.format("slate").load().count()


def test_a_read_goes_on_while_the_database_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction and collection run between planning and reading; the job's checkpoint keeps what it reads."""

    @asynccontextmanager
    async def writer() -> AsyncIterator[slate.Db]:
        async with slate.open(
            tmp_path, settings=KINDS[0].settings(sst_bytes=20_000, gc_min_age_ms=0, version_keep_ms=0)
        ) as db:
            yield db

    async def put_all(value: bytes) -> None:
        async with writer() as db:
            for start in range(0, 2_000, 100):
                batch = slate.WriteBatch()
                for number in range(start, start + 100):
                    batch.put(b"%05d" % number, value)
                await db.write(batch)
            await db.flush(l0=True)

    async def sweep() -> None:
        async with slate.open_compactor(
            tmp_path, settings=slate.Settings(gc_min_age_ms=0, version_keep_ms=0)
        ) as compactor:
            await compactor.compact(full=True)
        async with slate.open_gc(tmp_path, settings=slate.Settings(gc_min_age_ms=0, version_keep_ms=0)) as collector:
            await collector.collect()

    run(put_all(b"old" * 10))
    df = slate_spark.read(spark, str(tmp_path), partitionBytes=10_000)
    rows = _partition_by_partition(df)
    assert next(rows).value == b"old" * 10  # planned, and begun
    run(put_all(b"new" * 10))
    run(sweep())
    assert {bytes(row.value) for row in rows} == {b"old" * 10}
    assert {row.value for row in collected(slate_spark.read(spark, str(tmp_path)))} == {b"new" * 10}


def _partition_by_partition(df: DataFrame) -> Iterator[Any]:
    return df.toLocalIterator()
