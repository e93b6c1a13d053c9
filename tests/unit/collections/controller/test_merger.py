"""Merges that are late, lost, repeated, or wrong."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from slate_async.collections.controller.executor import LocalExecutor, MergeTask
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.edits import ReplaceMerged
from slate_async.collections.core.names import MergedName
from slate_async.errors import CorruptionError, FencedError, InternalError, UnavailableError
from tests.engine import InlineOffload, StoreInHand
from tests.support.collection_bytes import AREA, BYTES, frontier
from tests.unit.collections.kept import KeptLake

ROWS = [(b"%d" % (time % 3), time, 1) for time in range(20)]
ROWS_SORTED = sorted(ROWS)


class Wrapped:
    """An executor whose results, or failures, the test changes."""

    def __init__(self, store: StoreInHand) -> None:
        self.inner = LocalExecutor(store, InlineOffload())
        self.tasks: list[MergeTask] = []
        self.results: list[MergedBatch] = []
        self.after: Any = None

    async def merge(self, task: MergeTask) -> MergedBatch:
        self.tasks.append(task)
        self.results.append(await self.inner.merge(task))
        return await self.after(self.results[-1]) if self.after is not None else self.results[-1]


async def two_batches(lake: KeptLake, executor: Wrapped) -> Any:
    """A controller of a collection of two merged batches."""
    controller = await lake.controller(executor=executor)
    for lower in (0, 10):
        await lake.put(ROWS[lower : lower + 10], lower, lower + 10)
        await controller.round()
    return controller


async def test_a_result_that_is_applied_twice_is_applied_once(lake: KeptLake) -> None:
    executor = Wrapped(lake.store)
    controller = await two_batches(lake, executor)
    before = (await lake.head()).names()
    assert await controller.merge(everything=True) == 1
    head = await lake.head()
    edit = ReplaceMerged(controller.epoch, tuple(before), executor.results[0])
    assert await lake.versions().commits.commit(edit) == head
    again = await executor.inner.merge(executor.tasks[0])  # under its own name: the same bytes
    assert again == executor.results[0]
    assert sorted(await lake.merged()) == ROWS_SORTED


async def test_a_result_whose_inputs_were_merged_meanwhile_is_lost(lake: KeptLake) -> None:
    executor = Wrapped(lake.store)
    controller = await two_batches(lake, executor)

    async def rival(result: MergedBatch) -> MergedBatch:
        """Another merge of the same controller comes first."""
        executor.after = None
        task = executor.tasks[0]
        other = await executor.inner.merge(replace(task, output=replace(task.output, token="e" * 32)))
        names = tuple(batch.name for batch in executor.tasks[0].inputs)
        await lake.versions().commits.commit(ReplaceMerged(controller.epoch, names, other))
        return result

    executor.after = rival
    assert await controller.merge(everything=True) == 0
    assert controller.counts[1].lost == 1
    assert sorted(await lake.merged()) == ROWS_SORTED
    await controller.settle()
    assert len(await lake.keys("merged_batches/")) == 1


@pytest.mark.parametrize(
    "wrong", [{"diff_sum": 7}, {"rows": 21}, {"bounds": None}], ids=["another sum", "more rows", "other times"]
)
async def test_a_result_that_does_not_fit_is_not_committed(lake: KeptLake, wrong: dict[str, Any]) -> None:
    executor = Wrapped(lake.store)
    controller = await two_batches(lake, executor)
    before = await lake.head()

    async def spoil(result: MergedBatch) -> MergedBatch:
        changes = {"bounds": before.batches[0].bounds} if "bounds" in wrong else wrong
        return replace(result, **changes)

    executor.after = spoil
    with pytest.raises(InternalError):
        await controller.merge(everything=True)
    assert (await lake.head()).batches == before.batches
    with pytest.raises(InternalError):
        await controller.round()


async def test_a_merge_that_got_no_answer_is_done_again(lake: KeptLake) -> None:
    executor = Wrapped(lake.store)
    controller = await two_batches(lake, executor)

    async def fail(result: MergedBatch) -> MergedBatch:
        executor.after = None
        raise UnavailableError("the other process ended")

    executor.after = fail
    with pytest.raises(UnavailableError):
        await controller.merge(everything=True)
    await controller.settle()
    assert len(await lake.keys("merged_batches/")) == 1
    assert sorted(await lake.merged()) == ROWS_SORTED


async def test_an_input_that_is_missing_is_corruption_and_ends_it(lake: KeptLake) -> None:
    controller = await two_batches(lake, Wrapped(lake.store))
    await lake.store.delete([(await lake.head()).names()[0]])
    with pytest.raises(CorruptionError, match="missing"):
        await controller.merge(everything=True)


async def test_a_merge_of_a_controller_that_was_fenced_meanwhile_is_lost(lake: KeptLake) -> None:
    executor = Wrapped(lake.store)
    controller = await two_batches(lake, executor)

    async def fence(result: MergedBatch) -> MergedBatch:
        second = await lake.controller()
        await second.settle()
        return result

    executor.after = fence
    with pytest.raises(FencedError):
        await controller.merge(everything=True)
    assert sorted(await lake.merged()) == ROWS_SORTED
    last = await lake.controller()
    await last.settle()
    assert len(await lake.keys("merged_batches/")) == 1


def test_a_task_can_be_sent_to_another_process() -> None:
    name = MergedName(frontier(0), frontier(110), 3, "a" * 32)
    task = MergeTask(BYTES, AREA.batches[:2], name, AREA.batches[0].bounds, frontier(60)).picklable()
    assert pickle.loads(pickle.dumps(task)) == task
