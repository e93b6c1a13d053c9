"""What a batch read of changes plans, and what its tasks read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.engine.read.bounds import EVERY_KEY
from slate_async.spark import batch_changes
from slate_async.spark.batch_changes import ChangesBatchReader, ChangesOptions, LeasedRange
from slate_async.spark.changes import ARROW_CHANGE
from slate_async.spark.stream_source import SlateChangesSource
from tests.engine import KINDS, Kind
from tests.unit.spark.test_stream_plan import feed_subscriptions, life_s, write

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)


def changes_reader(path: Path, **options: object) -> ChangesBatchReader:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    return ChangesBatchReader(ChangesOptions.of(given))


def parts(reader: ChangesBatchReader) -> Iterator[LeasedRange]:
    for part in reader.partitions():
        assert isinstance(part, LeasedRange)
        yield part


def rows_of(reader: ChangesBatchReader) -> list[dict[str, object]]:
    batches = [batch for part in list(parts(reader)) for batch in reader.read(part)]
    rows = pa.Table.from_batches(batches, schema=ARROW_CHANGE).select(["seq", "op", "key", "value"]).to_pylist()
    return sorted(rows, key=lambda row: row["seq"])


async def feed_rows(db: slate.Db, after: int, until: int) -> list[dict[str, object]]:
    async with db.changes(from_seq=after, until_seq=until, initial="error") as feed:
        return [{"seq": change.seq, "op": change.op, "key": change.key, "value": change.value} async for change in feed]


@KIND
async def test_a_batch_has_the_changes_between_two_numbers(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In SSTs that were compacted, and in the log; both are cut."""
    monkeypatch.setattr(batch_changes, "STEP_ROWS", 10)
    settings = kind.settings(retention_ms=3_600_000, block_bytes=64)
    async with slate.open(tmp_path, settings=settings) as db:
        await write(db, random.Random(1), 40)
        await db.compact(full=True)
        stored = db.status().last_seq
        for number in range(60):
            await db.put(b"%d" % (number % 20), b"later" * 20)
        last = db.status().last_seq
        for after, until in ((0, last), (stored // 2, stored + 30), (7, stored), (stored + 9, last)):
            reader = changes_reader(tmp_path, startingSeq=after, endingSeq=until, partitionBytes=2_000)
            planned = list(parts(reader))
            found = [batch for part in planned for batch in reader.read(part)]
            assert sorted(pa.Table.from_batches(found, schema=ARROW_CHANGE).column("seq").to_pylist()) == list(
                range(after + 1, until + 1)
            )
            assert len(planned) > 1
            assert rows_of(reader) == await feed_rows(db, after, until)
        assert any(part.range.span != EVERY_KEY for part in parts(changes_reader(tmp_path, partitionBytes=2_000)))
        assert rows_of(changes_reader(tmp_path)) == await feed_rows(db, 0, last)


async def test_a_batch_has_the_changes_between_two_times(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, slate.open_reader(tmp_path) as reader:
        for value in (b"1", b"2", b"3", b"4"):
            await db.put(b"k", value)
            await asyncio.sleep(0.005)
        await reader.refresh()
        second, third = reader.seq_to_time(2), reader.seq_to_time(3)
        found = rows_of(changes_reader(tmp_path, startingTime=second, endingTime=third))
        assert [row["seq"] for row in found] == [3]
        assert rows_of(changes_reader(tmp_path, startingSeq="now")) == []
        assert [row["seq"] for row in rows_of(changes_reader(tmp_path, endingTime=second))] == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingSeq": 4}, "option endingSeq=4: the newest sequence number that is durable is 3"),
        ({"startingSeq": 3, "endingSeq": 2}, "begin after sequence number 3, and end with 2"),
        ({"startingSeq": 4}, "begin after sequence number 4, and end with 3"),
        ({"endingTime": 9e9}, "is in the future"),
    ],
)
async def test_what_is_not_there_is_said_and_nothing_stays(
    options: dict[str, object], said: str, tmp_path: Path
) -> None:
    async with slate.open(tmp_path) as db:
        for _ in range(3):
            await db.put(b"k", b"v")
        with pytest.raises(slate.InvalidError, match=said):
            changes_reader(tmp_path, **options).partitions()
        assert await feed_subscriptions(tmp_path) == []


async def test_what_was_compacted_is_an_error_that_names_the_lowest_number(tmp_path: Path) -> None:
    async with slate.open(tmp_path, settings=KINDS[0].settings(retention_ms=0)) as db:
        await write(db, random.Random(1), 20)
        await db.compact(full=True)
        with pytest.raises(slate.InvalidError, match="changes are kept from sequence number"):
            changes_reader(tmp_path, startingSeq=3).partitions()
        assert await feed_subscriptions(tmp_path) == []
        assert {row["key"] for row in rows_of(changes_reader(tmp_path))} == {key async for key, _ in db.scan()}


async def test_the_subscription_of_a_batch_lives_as_long_as_its_tasks_read_and_then_expires(tmp_path: Path) -> None:
    """They read what is compacted and collected since."""
    settings = KINDS[0].settings(gc_min_age_ms=0, version_keep_ms=0, retention_ms=0)
    async with slate.open(tmp_path, settings=settings) as db:
        await write(db, random.Random(1), 20)
        last = db.status().last_seq
        reader = changes_reader(tmp_path, subscriptionLifetime=4)
        planned = list(parts(reader))
        await write(db, random.Random(2), 20)
        await db.compact(full=True)
        async with slate.open_gc(tmp_path, settings=settings, periodic=False) as collector:
            await collector.collect()
        [made] = await feed_subscriptions(tmp_path)
        assert life_s(made) <= 4
        await asyncio.sleep(1.1)
        found = [batch for part in planned for batch in reader.read(part)]
        assert sorted(pa.Table.from_batches(found).column("seq").to_pylist()) == list(range(1, last + 1))
        [lengthened] = await feed_subscriptions(tmp_path)
        assert made.expire_time is not None
        assert lengthened.expire_time is not None
        assert lengthened.expire_time > made.expire_time + 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingSeq": "now"}, "option endingSeq='now'"),
        ({"endingSeq": 1, "endingTime": 1}, "one of the options endingSeq and endingTime"),
        ({"startingSeq": 1, "startingTime": 1, "endingSeq": 9}, "one of the options startingSeq and startingTime"),
        ({"endingSeq": 9, "maxRowsPerTrigger": 1}, "unknown option maxRowsPerTrigger"),
    ],
)
def test_wrong_options_of_batches_are_named_when_spark_asks_for_the_schema(
    options: dict[str, object], said: str
) -> None:
    given = {"path": "/db", **{name: str(value) for name, value in options.items()}}
    with pytest.raises(slate.InvalidError, match=said):
        SlateChangesSource(given).schema()
