"""`slate_async.spark.collection_merge`: what a task of Spark runs, run here."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.collections.controller.executor import MergeTask
from slate_async.collections.core.bounds import spanning
from slate_async.collections.core.names import MergedName
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.spark import CollectionMergeExecutor, SparkExecutor
from slate_async.spark.collection_merge import _merge_there
from slate_async.spark.collection_options import CollectionPlace
from slate_async.spark.collection_place import open_collection


async def merge_of(path: Path) -> tuple[CollectionPlace, MergeTask]:
    """Of all batches of a collection that has several."""
    place = CollectionPlace(str(path), None, "orders")
    async with slate.open_collections(path) as lake:
        await (await lake.create("orders")).expire()
        orders = lake.collection("orders")
        async with orders.controller(background=False) as controller, orders.writer() as writer:
            for lower, count in ((0, 400), (1, 90), (2, 20)):
                await writer.append([(b"%04d" % number, lower, 1) for number in range(count)], upper=lower + 1)
                await controller.round()
    async with slate.Environment() as environment, open_collection(place, environment) as stores:
        area = await stores.versions.load()
    assert len(area.batches) > 1
    bounds = spanning([batch.bounds for batch in area.batches])
    name = MergedName(bounds.lower, bounds.upper, area.epoch, "ab" * 16)
    return place, MergeTask(stores.schema, area.batches, name, bounds, area.since).picklable()


def run(place: CollectionPlace, task: MergeTask) -> Any:
    [outcome] = _merge_there(place, pickle.loads(pickle.dumps(task)))([0])
    return pickle.loads(outcome)


async def test_a_task_that_runs_twice_puts_the_same_bytes(tmp_path: Path) -> None:
    """Spark may run it again while the first one is on its way, under the one name that the controller spares."""
    place, task = await merge_of(tmp_path)
    first, again = [await asyncio.to_thread(run, place, task) for _ in range(2)]
    assert (first.rows, first.diff_sum, first.keys) == (510, 510, 400)
    assert first == again


async def test_an_input_that_is_missing_reaches_the_controller(tmp_path: Path) -> None:
    place, task = await merge_of(tmp_path)
    missing = replace(task.inputs[0], name=str(MergedName(task.bounds.lower, task.bounds.upper, 1, "cd" * 16)))
    outcome = await asyncio.to_thread(run, place, replace(task, inputs=(missing, *task.inputs[1:])))
    assert isinstance(outcome, ObjectNotFoundError)


async def test_another_version_of_pyarrow_merges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late attempt would put other bytes under the name that was committed."""
    place, task = await merge_of(tmp_path)
    sent = _merge_there(place, task)
    monkeypatch.setattr(pa, "__version__", "17.0.0")
    [outcome] = await asyncio.to_thread(lambda: list(sent([0])))
    error = pickle.loads(outcome)
    assert isinstance(error, slate.InvalidError)
    assert "and this task 17.0.0: merges take one version in all Spark processes" in str(error)


def test_a_session_without_a_driver_is_refused() -> None:
    """That of Spark Connect, on which an attribute that takes a JVM is an error."""
    for made in (CollectionMergeExecutor, SparkExecutor):
        with pytest.raises(
            slate.InvalidError, match=r"spark is a SparkSession of the driver itself, not .*SimpleNames"
        ):
            made(cast(Any, SimpleNamespace()), "/lake", *(["orders"] if made is CollectionMergeExecutor else []))
