"""What Spark calls of a writer, called by hand: in tasks, and to commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import slate_async as slate
from slate_async.engine.ingest.dry_run import rehearse
from slate_async.spark import write
from slate_async.spark.micro_batch import MicroBatch
from slate_async.spark.source import SlateDataSource
from slate_async.spark.write import BatchWriter, StreamWriter, Written
from slate_async.spark.write_options import WriteOptions

ROWS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
BATCH = pa.record_batch({"key": [b"a", b"b"], "value": [b"1", b"2"]})


def writer(path: Path, **options: str) -> BatchWriter:
    given = {"path": str(path), "jobId": "load", **options}
    return BatchWriter(WriteOptions.of(given, ROWS, replace=False))


def test_of_equal_keys_the_last_by_the_order_counts_and_null_is_the_lowest(tmp_path: Path) -> None:
    ordered = StructType([*ROWS.fields, StructField("n", LongType())])
    load = BatchWriter(
        WriteOptions.of({"path": str(tmp_path), "orderColumn": "n", "ingestMode": "exclusive"}, ordered, replace=False)
    )
    batches = [
        pa.record_batch({"key": [b"b", b"a"], "value": [b"2", b"1"], "n": [2, 1]}),
        pa.record_batch({"key": [b"b", b"a", b"c"], "value": [b"1", b"0", b"0"], "n": [1, None, None]}),
    ]
    load.commit([load.write(iter(batches))])
    assert asyncio.run(rows_of(tmp_path)) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"0")]


async def rows_of(path: Path) -> list[tuple[bytes, bytes]]:
    async with slate.open_reader(path) as reader:
        return [row async for row in reader.scan()]


def test_what_another_driver_committed_and_aborted_is_no_load_of_nothing(tmp_path: Path) -> None:
    async def commit_elsewhere() -> None:
        await (await slate.open(tmp_path)).close()
        async with slate.open_ingest(tmp_path, job_id="load") as job:
            await job.write([pa.Table.from_batches([BATCH])])
            await job.commit(wait=False)

    async def abort() -> None:
        async with slate.open_admin(tmp_path) as admin:
            await admin.ingests.abort("load")

    asyncio.run(commit_elsewhere())
    load = writer(tmp_path, ingestMode="exclusive")
    told, part = load.write(iter([BATCH])), rehearse([BATCH], digest=True)
    assert part is not None
    assert told == Written((), committed_before=True, digest=part.digest or 0)
    asyncio.run(abort())
    with pytest.raises(slate.ConflictError, match="aborted meanwhile; write again"):
        load.commit([told])
    load.abort([told])
    again = load.write(iter([BATCH]))
    assert len(again.ssts) == 1
    load.commit([again])
    assert asyncio.run(rows_of(tmp_path)) == [(b"a", b"1"), (b"b", b"2")]


def test_repeating_a_load_warns_that_its_rows_are_not_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load = writer(tmp_path, ingestMode="exclusive")
    load.commit([load.write(iter([BATCH]))])
    assert not caplog.records
    with pytest.raises(slate.InvalidError, match=f"with {BATCH.num_rows} rows, and these are others"):
        load.commit([load.write(iter([BATCH.slice(1)]))])
    assert not caplog.records
    load.commit([load.write(iter([BATCH]))])
    [same] = caplog.records
    assert same.getMessage().endswith("these rows are those")
    skipping = writer(tmp_path, onKnown="skip")
    skipping.commit([skipping.write(iter([BATCH.slice(1)]))])
    caplog.records.pop()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "job load into" in caplog.text
    assert "loaded before" in caplog.text
    assert "others than then need another job id" in caplog.text


def test_a_place_that_can_be_no_database_is_reported_before_any_task(tmp_path: Path) -> None:
    source = SlateDataSource({"path": str(tmp_path), "metastore": "nothing://here"})
    with pytest.raises(slate.InvalidError, match="metastore is none of"):
        source.writer(ROWS, overwrite=False)


def test_a_save_that_fails_ends_its_job_unless_that_has_a_name(tmp_path: Path) -> None:
    """A job of the same name belongs to another driver, which is at work."""

    async def states() -> list[str]:
        async with slate.open_admin(tmp_path) as admin:
            return [job.state for job in await admin.ingests.list()]

    unnamed = BatchWriter(WriteOptions.of({"path": str(tmp_path)}, ROWS, replace=False))
    unnamed.begin()
    unnamed.abort([])
    assert asyncio.run(states()) == ["aborted"]
    failing, other = writer(tmp_path), writer(tmp_path, ingestMode="exclusive")
    failing.begin()
    told = other.write(iter([BATCH]))
    failing.abort([])
    other.commit([told])
    assert asyncio.run(states()) == ["applied", "aborted"]


def test_a_job_that_cannot_be_aborted_hides_no_cause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"path": str(tmp_path), "metastore": "nothing://here"}
    BatchWriter(WriteOptions.of(options, ROWS, replace=False)).abort([])
    assert "stays until it expires" in caplog.text


def stream(path: Path, *, replace: bool = False, **options: str) -> StreamWriter:
    given = {"path": str(path), "ingestMode": "exclusive", **options}
    return StreamWriter(WriteOptions.of(given, ROWS, replace=replace))


def task(monkeypatch: pytest.MonkeyPatch, sink: StreamWriter, query_id: str, batch_id: int) -> Written:
    monkeypatch.setattr(write, "micro_batch", lambda: MicroBatch(query_id, batch_id))
    return sink.write(iter([BATCH]))


async def jobs_of(path: Path) -> list[tuple[str, str | None, int | None]]:
    async with slate.open_admin(path) as admin:
        return [(job.job_id, job.app_id, job.batch_id) for job in await admin.ingests.list()]


def test_a_stream_is_named_by_its_query_unless_it_has_an_app_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = stream(tmp_path)
    for _ in range(2):  # Spark repeats it
        sink.commit([task(monkeypatch, sink, "q1", 0)], 0)
    named = stream(tmp_path, appId="orders")
    named.commit([task(monkeypatch, named, "q2", 0)], 0)
    assert asyncio.run(jobs_of(tmp_path)) == [("orders/q2/0", "orders", 0), ("q1/0", "q1", 0)]


def test_an_app_id_is_of_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one counts its batches from 0 again: they would be taken for replays, and be lost."""
    sink = stream(tmp_path, appId="orders")
    for number in (0, 1):
        sink.commit([task(monkeypatch, sink, "q1", number)], number)
    for number in (0, 2):
        with pytest.raises(slate.InvalidError, match="counted by query q1, and this one comes from query q2"):
            sink.commit([task(monkeypatch, sink, "q2", number)], number)

    async def states() -> list[str]:
        async with slate.open_admin(tmp_path) as admin:
            return [job.state for job in await admin.ingests.list()]

    assert asyncio.run(states()) == ["aborted", "aborted", "applied", "applied"]  # none is left for a day


def test_tasks_of_two_queries_are_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = stream(tmp_path, appId="orders")
    told = [task(monkeypatch, sink, query_id, 0) for query_id in ("q1", "q2")]
    with pytest.raises(slate.InternalError, match="several queries"):
        sink.commit([*told], 0)


def test_a_batch_without_tasks_is_committed_if_it_replaces_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checkpoint = tmp_path / "db", tmp_path / "check point"
    sink = stream(path)
    sink.commit([task(monkeypatch, sink, "q1", 0)], 0)
    sink.commit([], 1)
    assert asyncio.run(jobs_of(path)) == [("q1/0", "q1", 0)]
    assert len(asyncio.run(rows_of(path))) == 2
    for location in (str(checkpoint), checkpoint.as_uri()):
        with pytest.raises(slate.InvalidError, match="cannot be read from the checkpoint at"):
            stream(path, replace=True, checkpointLocation=location).commit([], 1)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q1"}')
    for location in (str(checkpoint), checkpoint.as_uri()):
        stream(path, replace=True, checkpointLocation=location).commit([], 1)
    assert asyncio.run(jobs_of(path)) == [("q1/1", "q1", 1), ("q1/0", "q1", 0)]
    assert asyncio.run(rows_of(path)) == []
    with pytest.raises(slate.InvalidError, match="checkpoint at s3a://b/c: it is not in a folder of this machine"):
        stream(path, replace=True, checkpointLocation="s3a://b/c").commit([], 1)
    with pytest.raises(slate.InvalidError, match="option checkpointLocation is missing, and Spark does not tell"):
        stream(path, replace=True).commit([], 1)


def test_a_query_that_goes_on_makes_no_database_and_begins_none_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is another one than before, or what was there is gone: the rows of the batches before are not there."""
    missing, other = tmp_path / "missing", tmp_path / "other"
    with pytest.raises(slate.InvalidError, match=f"batch 20 of query q1 comes to {missing}, .*firstBatch=20"):
        task(monkeypatch, stream(missing), "q1", 20)
    assert not missing.exists()
    sink = stream(other)
    sink.commit([task(monkeypatch, sink, "q2", 0)], 0)
    for options in ({}, {"appId": "orders"}, {"firstBatch": "19"}):
        sink = stream(other, **options)
        with pytest.raises(slate.InvalidError, match=r"where no earlier one is known: .* new checkpointLocation"):
            sink.commit([task(monkeypatch, sink, "q1", 20)], 20)
    meant = stream(other, firstBatch="20")
    meant.commit([task(monkeypatch, meant, "q1", 20)], 20)
    sink = stream(other)
    sink.commit([task(monkeypatch, sink, "q1", 21)], 21)
    assert ("q1/21", "q1", 21) in asyncio.run(jobs_of(other))


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_first_batch_without_rows_is_known(tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, checkpoint = tmp_path / "db", tmp_path / "log"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q1"}')
    sink = stream(path, checkpointLocation=str(checkpoint))
    monkeypatch.setattr(write, "micro_batch", lambda: MicroBatch("q1", 0))
    sink.commit([sink.write(iter(())) for _ in range(tasks)], 0)
    sink.commit([task(monkeypatch, sink, "q1", 1)], 1)
    assert len(asyncio.run(rows_of(path))) == 2


def test_a_query_keeps_its_app_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that it repeats would come in twice under another one."""
    first, second = stream(tmp_path), stream(tmp_path, appId="orders")
    first.commit([task(monkeypatch, first, "q1", 0)], 0)
    with pytest.raises(slate.InvalidError, match="query q1 has another app id than 'orders' here"):
        second.commit([task(monkeypatch, second, "q1", 0)], 0)
