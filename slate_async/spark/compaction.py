"""`SparkExecutor`: the key ranges of a compaction as Spark tasks. Planning, progress and commits stay with the
compactor in the driver, so a killed driver is resumed as any compactor is.

A range is a Spark job of one task, so that each is noted as soon as it is done. What the engine raises there comes back
as a value and is raised here, so that the compactor judges it; anything else (a lost machine) Spark tries again, and
what the lost attempt wrote is garbage. Where Spark gives up, the compactor tries again, unless nothing ever works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.spark.options import place
from slate_async.spark.task_job import TaskFunction, TaskJob, context_of, pickled
from slate_async.spark.worker import this_worker

DEFAULT_PARALLELISM = 64
FAILURES_IN_A_ROW = 5
"""So many ranges that Spark could not run, and none that it could: its workers cannot, and to go on is no use."""


class SparkExecutor:
    """Implements `slate_async.engine.compaction.executor.Executor` for the database at ``path``, as executors reach it.

    parallelism: ranges at a time, at most; the setting ``compaction_parallelism`` of the compactor bounds them, too

    Pass it to `slate_async.open_compactor`, and close it after that."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        metastore: str | None = None,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> None:
        self._context = context_of(spark)
        self._path = place(path)
        self._metastore = metastore
        self._failures = 0
        self._threads = ThreadPoolExecutor(parallelism, thread_name_prefix="slate_async spark")
        self._cancelling = ThreadPoolExecutor(1, thread_name_prefix="slate_async spark cancel")

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Merge the range in a Spark task. Cancelled, it ends the task. See `Executor.run`.

        Raises `UnavailableError` if Spark could not, and `InvalidError` if it never can."""
        job = TaskJob(self._context, f"a key range of {self._path}", _merge_there(self._path, self._metastore, task))
        work = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        try:
            outcome: RangeResult | slate.SlateError = await work
        except asyncio.CancelledError:
            self._cancelling.submit(job.cancel)
            raise
        except slate.UnavailableError as error:
            self._failures += 1
            if self._failures < FAILURES_IN_A_ROW:
                raise
            raise slate.InvalidError(
                f"Spark could not run {self._failures} key ranges in a row; can its workers import slate_async, reach"
                f" the database, and have the memory of a range? {error}"
            ) from error
        self._failures = 0
        if isinstance(outcome, slate.SlateError):
            raise outcome
        if progress is not None:
            progress(outcome.counts)
        return outcome

    def close(self) -> None:
        """End its threads; ranges that run are given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._cancelling.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _merge_there(path: str, metastore: str | None, task: RangeTask) -> TaskFunction:
    """The function of a Spark task that merges ``task``."""

    async def merge(environment: slate.Environment) -> RangeResult:
        async with environment.open_admin(path, metastore=metastore) as admin:
            return await admin.merge_range(task)

    def run(rows: Iterable[int]) -> Iterator[bytes]:
        for _ in rows:  # one; but to its end, for Spark uses no process again that left something unread
            outcome: RangeResult | slate.SlateError
            try:
                outcome = this_worker().run(merge)
            except slate.SlateError as error:
                outcome = error
            yield pickled(outcome)

    return run
