"""`slate_async.spark.collection_sink`: what a driver commits, in place of the one that Spark runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import slate_async as slate
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.writer.shared import put_parts
from slate_async.spark.collection_options import CollectionWrite
from slate_async.spark.collection_place import open_collection
from slate_async.spark.collection_sink import (
    WRITER,
    FrameWriter,
    StreamWriter,
    Written,
    _bounds,
    _overtaken,
    check_append,
)
from slate_async.spark.collection_types import RowsIn
from slate_async.spark.worker import this_worker

FRAME = StructType([StructField("data", BinaryType())])


def options(path: Path, **given: str) -> CollectionWrite:
    return CollectionWrite.of({"path": str(path), "collection": "orders", **given})


async def make(path: Path, **kind: Any) -> None:
    async with slate.open_collections(path) as lake:
        await (await lake.create("orders", **{"appends": "compare", **kind})).expire()


async def contents(path: Path, as_of: int) -> list[tuple[bytes, int]]:
    async with slate.open_collections(path) as lake, lake.collection("orders").reader() as reader:
        return [row async for row in (await reader.snapshot(as_of)).rows()]


def task(path: Path, data: list[bytes], time: int, query_id: str = "query") -> Written:
    """What an attempt of a task has put when it reports."""

    async def put(environment: slate.Environment) -> Written:
        async with open_collection(options(path).place, environment) as stores:
            rows = pa.record_batch([pa.array(data, pa.binary())], names=["data"])

            async def updates() -> AsyncIterator[pa.RecordBatch]:
                yield RowsIn(stores.schema, FRAME).updates(rows, time)

            found = await put_parts(stores.writing(WRITER), _bounds(stores, time, time), updates())
            return Written(found, stores.life.uuid, query_id)

    return this_worker().run(put)


async def test_a_batch_whose_driver_died_before_the_commit_is_in_once(tmp_path: Path) -> None:
    await make(tmp_path)
    writer = StreamWriter(options(tmp_path), FRAME)
    task(tmp_path, [b"lost"], 0)  # its driver is killed
    writer.commit([task(tmp_path, [b"a"], 0), task(tmp_path, [b"b", b"b"], 0)], 0)
    assert await contents(tmp_path, 0) == [(b"a", 1), (b"b", 2)]
    writer.abort([], 0)  # Spark calls it for what was committed, too
    StreamWriter(options(tmp_path), FRAME).commit([task(tmp_path, [b"again"], 0)], 0)
    writer.commit([task(tmp_path, [b"c"], 1)], 1)
    assert await contents(tmp_path, 1) == [(b"a", 1), (b"b", 2), (b"c", 1)]


async def test_a_batch_that_does_not_fit_says_what_to_do(tmp_path: Path) -> None:
    await make(tmp_path)
    writer = StreamWriter(options(tmp_path), FRAME)
    with pytest.raises(slate.InvalidError, match=r"batch 3 of query query .* ends at 0: earlier batches are missing"):
        writer.commit([task(tmp_path, [b"a"], 3)], 3)
    writer.commit([task(tmp_path, [b"a"], 0)], 0)
    other = (
        "batch 0 of query other is to be at time 0 of orders, which ends at 1: another query or writer .* firstTime=1"
    )
    with pytest.raises(slate.InvalidError, match=other) as raised:
        writer.commit([task(tmp_path, [b"b"], 0, "other")], 0)
    assert raised.value.outcome == "not_applied"
    StreamWriter(options(tmp_path, firstTime="1"), FRAME).commit([task(tmp_path, [b"b"], 1, "other")], 0)
    assert await contents(tmp_path, 1) == [(b"a", 1), (b"b", 1)]


async def test_what_cannot_be_appended_any_more_says_so(tmp_path: Path) -> None:
    await make(tmp_path)
    streaming = StreamWriter(options(tmp_path), FRAME)
    streaming.commit([task(tmp_path, [b"a"], 0)], 0)
    late = FrameWriter(options(tmp_path, time="9"), FRAME)
    with pytest.raises(
        slate.InvalidError, match="time 0 is in the past of orders, which ends at 1: give a time from 1"
    ):
        FrameWriter(options(tmp_path, time="0"), FRAME)
    with pytest.raises(slate.InvalidError, match="whether job 'load' has written there is seen only while it was"):
        FrameWriter(options(tmp_path, time="0", jobId="load"), FRAME)
    streaming.commit([task(tmp_path, [b"b"], 1)], 1)
    with pytest.raises(
        slate.ConflictError, match=r"another writer .* and these rows are not in: write again"
    ) as raised:
        late.commit([])
    assert raised.value.outcome == "not_applied"
    async with slate.open_collections(tmp_path) as lake, lake.collection("orders").writer() as writer:
        await writer.append([], upper=slate.DONE)
    with pytest.raises(slate.InvalidError, match="orders is closed: nothing is appended any more"):
        FrameWriter(options(tmp_path), FRAME)
    with pytest.raises(slate.InvalidError, match="orders is closed: nothing is appended any more"):
        streaming.commit([task(tmp_path, [b"c"], 2)], 2)


async def test_a_frame_whose_fate_is_not_known_is_not_to_be_written_at_once(tmp_path: Path) -> None:
    await make(tmp_path)
    async with slate.Environment() as environment, open_collection(options(tmp_path).place, environment) as stores:
        error = _overtaken(stores, UpperMismatchError("where it ends", upper=slate.DONE, outcome="unknown"))
    assert "not known, so look for them before you write them again" in str(error)
    assert error.outcome == "unknown"


async def test_a_batch_without_tasks_is_a_time_all_the_same(tmp_path: Path) -> None:
    await make(tmp_path)
    StreamWriter(options(tmp_path, appId="app"), FRAME).commit([], 0)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id": "query"}')
    StreamWriter(options(tmp_path, checkpointLocation=str(tmp_path / "checkpoint")), FRAME).commit([], 1)
    with pytest.raises(slate.InvalidError, match="option checkpointLocation is missing"):
        StreamWriter(options(tmp_path), FRAME).commit([], 2)
    assert await contents(tmp_path, 1) == []


async def test_parts_of_a_collection_that_was_replaced_are_not_committed(tmp_path: Path) -> None:
    await make(tmp_path)
    writer, found = StreamWriter(options(tmp_path), FRAME), task(tmp_path, [b"a"], 0)
    async with slate.open_collections(tmp_path) as lake:
        await lake.delete("orders", force=True)
    await make(tmp_path)
    with pytest.raises(slate.InvalidError, match=f"is of collection {found.collection}, and .* life 2"):
        writer.commit([found], 0)


async def test_collections_that_spark_cannot_write_are_refused(tmp_path: Path) -> None:
    await make(tmp_path / "a", appends="definite")
    with pytest.raises(slate.InvalidError, match="orders takes definite appends"):
        StreamWriter(options(tmp_path / "a"), FRAME)
    await make(tmp_path / "b", time="u64x2")
    with pytest.raises(slate.InvalidError, match="times of orders are pairs"):
        StreamWriter(options(tmp_path / "b"), FRAME)
    await make(tmp_path / "c")
    with pytest.raises(slate.InvalidError, match="column data is bigint, not binary"):
        StreamWriter(options(tmp_path / "c"), StructType([StructField("data", LongType())]))
    with pytest.raises(slate.InvalidError, match="options jobId and time are for frames"):
        StreamWriter(options(tmp_path / "c", time="4"), FRAME)
    with pytest.raises(slate.InvalidError, match="option appId is for streams"):
        FrameWriter(options(tmp_path / "c", appId="a"), FRAME)
    with pytest.raises(slate.InvalidError, match="a collection is appended to"):
        check_append(True)
