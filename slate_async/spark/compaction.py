"""`SparkExecutor`: the key ranges of a compaction as Spark tasks. Planning, progress and commits stay with the
compactor in the driver, so a killed driver is resumed as any compactor is.

A range is a Spark job of one task, so that each is noted as soon as it is done; jobs of RDDs, because a query costs
twice the processor time of one. What the engine raises there comes back as a value and is raised here, so that the
compactor judges it; anything else (a lost machine) Spark tries again, and what the lost attempt wrote is garbage. Where
Spark gives up, the compactor tries again, unless nothing ever works.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias
from uuid import uuid4

from pyspark import SparkContext, cloudpickle  # cloudpickle knows what pickle does not: read-only maps
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.spark.options import place
from slate_async.spark.worker import this_worker

DEFAULT_PARALLELISM = 64
FAILURES_IN_A_ROW = 5
"""So many ranges that Spark could not run, and none that it could: its workers cannot, and to go on is no use."""
CANCELS = 20
CANCEL_AGAIN_S = 0.5
"""A job that Spark did not know yet when it was cancelled is cancelled again, so often and so much later."""
RangeFunction: TypeAlias = Callable[[Iterable[int]], Iterator[bytes]]
"""Of a Spark task: merges a range for each of its rows; its result, or what the engine raised, pickled."""


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
        self._context = spark.sparkContext
        self._path = place(path)
        self._metastore = metastore
        self._failures = 0
        self._threads = ThreadPoolExecutor(parallelism, thread_name_prefix="slate_async spark")
        self._cancelling = ThreadPoolExecutor(1, thread_name_prefix="slate_async spark cancel")

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Merge the range in a Spark task. Cancelled, it ends the task. See `Executor.run`.

        Raises `UnavailableError` if Spark could not, and `InvalidError` if it never can."""
        job = _Job(self._context, self._path, _merge_there(self._path, self._metastore, task))
        work = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        try:
            outcome = await work
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


class _Job:
    """One key range as a job of Spark. `run` blocks one thread; `cancel` ends it from another one, at any time."""

    def __init__(self, context: SparkContext, path: str, merge: RangeFunction) -> None:
        self._context = context
        self._path = path
        self._merge = merge
        self._tag = f"slate_async-{uuid4()}"
        self._begun, self._ended, self._cancelled = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> RangeResult | slate.SlateError:
        """What the range came to. Raises `UnavailableError`."""
        self._begun.set()
        context = self._context
        try:
            context.addJobTag(self._tag)  # of this thread's jobs
            context.setJobDescription(f"slate_async compaction of {self._path}")
            if self._cancelled.is_set():
                raise slate.UnavailableError(f"a key range of {self._path} was cancelled")
            (pickled,) = context.parallelize([0], 1).mapPartitions(self._merge).collect()
        except Exception as error:
            raise slate.UnavailableError(f"Spark did not finish a key range of {self._path}: {error}") from error
        finally:
            self._ended.set()
            with suppress(Exception):
                context.removeJobTag(self._tag)
        outcome: RangeResult | slate.SlateError = pickle.loads(pickled)
        return outcome

    def cancel(self) -> None:
        """End it, or see to it that it never begins."""
        self._cancelled.set()
        if not self._begun.is_set():
            return
        for _ in range(CANCELS):
            self._context.cancelJobsWithTag(self._tag)
            if self._ended.wait(CANCEL_AGAIN_S):
                return


def _merge_there(path: str, metastore: str | None, task: RangeTask) -> RangeFunction:
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
            yield _pickled(outcome)

    return run


def _pickled(outcome: RangeResult | slate.SlateError) -> bytes:
    pickled: bytes = cloudpickle.dumps(outcome)  # type: ignore[no-untyped-call]
    return pickled
