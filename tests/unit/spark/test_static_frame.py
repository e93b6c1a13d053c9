"""What tasks of a streaming query read of a frame that was planned once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.spark import batch_read, micro_batch, static_frame
from slate_async.spark.batch_read import BatchReader
from slate_async.spark.micro_batch import BATCH_ID, QUERY_ID, MicroBatch
from slate_async.spark.plan import KeyPartition
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.static_frame import plan_of_batch
from slate_async.spark.typed_rows import ROW

FIRST, SECOND = MicroBatch("q", 1), MicroBatch("q", 11)


class TaskOf:
    """Spark's context of a task."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def planned(path: Path, **options: str) -> tuple[BatchReader, KeyPartition]:
    reader = BatchReader(ReadOptions.of({"path": str(path), **options}), ROW)
    [partition] = reader.partitions()
    assert isinstance(partition, KeyPartition)
    return reader, partition


async def names(path: Path) -> list[str | None]:
    async with slate.open_admin(path) as admin:
        return [kept.name for kept in await admin.checkpoints.list() if kept.owner == "user"]


async def test_each_micro_batch_sees_the_database_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks of one see the same, repeated or not; one that is planned while nothing is there sees what comes."""
    async with slate.open(tmp_path) as db:
        reader, partition = planned(tmp_path)

        def seen(batch: MicroBatch | None) -> list[bytes]:
            monkeypatch.setattr(batch_read, "micro_batch", lambda: batch)
            return [key for rows in reader.read(partition) for key in rows.column("key").to_pylist()]

        await db.put(b"a", b"1")
        assert seen(FIRST) == [b"a"]
        await db.put(b"b", b"1")
        assert seen(FIRST) == [b"a"]
        assert seen(SECOND) == [b"a", b"b"]
        assert seen(MicroBatch("another", 1)) == [b"a", b"b"]
        assert seen(None) == []
    stem = f"spark read {partition.plan.checkpoint} in query"
    assert await names(tmp_path) == ["spark read", f"{stem} q, batch 11", f"{stem} another, batch 1"]


async def test_tasks_that_begin_at_once_agree(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db:
        await db.put(b"a", b"1")
    _, partition = planned(tmp_path)
    async with slate.Environment() as one, slate.Environment() as other:
        asked = (plan_of_batch(partition.plan, FIRST, environment) for environment in (one, other) * 4)
        plans = await asyncio.gather(*asked)
    assert len({plan.checkpoint for plan in plans}) == 1
    assert plans[0].checkpoint != partition.plan.checkpoint
    assert len(await names(tmp_path)) == 2


async def test_a_late_task_of_an_earlier_batch_fails_and_leaves_the_later_one_alone(tmp_path: Path) -> None:
    """Say a speculative copy, which Spark does not need any more."""
    async with slate.open(tmp_path) as db, slate.Environment() as environment:
        plan = planned(tmp_path)[1].plan
        await plan_of_batch(plan, FIRST, environment)
        later = await plan_of_batch(plan, SECOND, environment)
        await db.put(b"a", b"1")
        with pytest.raises(slate.ConflictError, match="is of micro-batch 1, and micro-batch 11 has begun"):
            await plan_of_batch(plan, FIRST, environment)
        assert await plan_of_batch(plan, SECOND, environment) == later
    assert await names(tmp_path) == ["spark read", f"spark read {plan.checkpoint} in query q, batch 11"]


async def test_a_late_task_that_is_overtaken_takes_its_checkpoint_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slate.open(tmp_path), slate.Environment() as environment:
        plan = planned(tmp_path)[1].plan
        kept, later = static_frame._kept, []

        async def kept_before(*args: Any) -> Any:
            found = await kept(*args)
            monkeypatch.undo()
            later.append(await plan_of_batch(plan, SECOND, environment))
            return found

        monkeypatch.setattr(static_frame, "_kept", kept_before)
        with pytest.raises(slate.ConflictError):
            await plan_of_batch(plan, FIRST, environment)
        assert [await plan_of_batch(plan, SECOND, environment)] == later
    assert await names(tmp_path) == ["spark read", f"spark read {plan.checkpoint} in query q, batch 11"]


async def test_a_query_keeps_nothing_of_the_batches_before_whatever_their_frames(tmp_path: Path) -> None:
    """Inside ``foreachBatch`` each batch has frames of its own."""
    async with slate.open(tmp_path), slate.Environment() as environment:
        plans = [planned(tmp_path)[1].plan for _ in range(2)]
        for query in ("other", "q"):
            await plan_of_batch(plans[0], MicroBatch(query, 1), environment)
        for plan in plans:
            await plan_of_batch(plan, MicroBatch("q", 2), environment)
        await plan_of_batch(plans[1], MicroBatch("q", 10), environment)
    first, second = (f"spark read {plan.checkpoint} in query" for plan in plans)
    assert await names(tmp_path) == ["spark read"] * 2 + [f"{first} other, batch 1", f"{second} q, batch 10"]


async def test_what_the_user_named_stays(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, slate.Environment() as environment:
        await db.put(b"a", b"1")
        made = await db.checkpoints.create(name="nightly")
        for options in ({"checkpoint": str(made.id)}, {"atSeq": "1"}):
            plan = planned(tmp_path, **options)[1].plan
            assert await plan_of_batch(plan, FIRST, environment) is plan


def test_a_task_knows_its_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = (None, TaskOf(), TaskOf(**{QUERY_ID: "q", BATCH_ID: "7"}))
    found = []
    for context in contexts:
        monkeypatch.setattr(micro_batch.TaskContext, "get", lambda context=context: context)
        found.append(micro_batch.micro_batch())
    assert found == [None, None, MicroBatch("q", 7)]
