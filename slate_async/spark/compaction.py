"""`SparkExecutor`: the key ranges of a compaction as Spark tasks. Planning, progress and commits stay with the
compactor in the driver, so a killed driver is resumed as any compactor is.

A range is a Spark job of one task. What the engine raises there comes back as a value and is raised here, so that the
compactor judges it; anything else (a lost machine) Spark tries again, and what the lost attempt wrote is garbage.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import uuid4

import pyarrow as pa
from pyspark import cloudpickle  # knows what pickle does not: read-only maps
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.compaction.executor import MergeCounts, RangeResult, RangeTask
from slate_async.spark.worker import this_worker

DEFAULT_PARALLELISM = 64


class SparkExecutor:
    """Implements `slate_async.compaction.executor.Executor` for the database at ``path``, as executors reach it.

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
        self._spark = spark
        self._path = path
        self._metastore = metastore
        self._threads = ThreadPoolExecutor(parallelism, thread_name_prefix="slate_async spark")

    async def run(self, task: RangeTask, progress: Callable[[MergeCounts], None] | None = None) -> RangeResult:
        """Merge the range in a Spark task. Cancelled, it ends the task. See `Executor.run`."""
        tag = f"slate_async-{uuid4()}"
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._run_job, task, tag)
        try:
            outcome = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._threads.submit(self._spark.interruptTag, tag)
            raise
        if isinstance(outcome, slate.SlateError):
            raise outcome
        if progress is not None:
            progress(outcome.counts)
        return outcome

    def _run_job(self, task: RangeTask, tag: str) -> RangeResult | slate.SlateError:
        merge = _merge_there(self._path, self._metastore, task)
        self._spark.addTag(tag)
        try:
            self._spark.sparkContext.setJobDescription(f"slate_async compaction of {self._path}")
            (row,) = self._spark.range(0, 1, 1, 1).mapInArrow(merge, "outcome binary").collect()
        except Exception as error:
            raise slate.UnavailableError(f"Spark did not finish a key range of {self._path}: {error}") from error
        finally:
            with suppress(Exception):
                self._spark.removeTag(tag)
        outcome: RangeResult | slate.SlateError = pickle.loads(row.outcome)
        return outcome

    def close(self) -> None:
        """End its threads; ranges that run are given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _merge_there(
    path: str, metastore: str | None, task: RangeTask
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a Spark task that merges ``task``."""

    async def merge(environment: slate.Environment) -> RangeResult:
        async with environment.open_admin(path, metastore=metastore) as admin:
            return await admin.merge_range(task)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            outcome: RangeResult | slate.SlateError
            try:
                outcome = this_worker().run(merge)
            except slate.SlateError as error:
                outcome = error
            yield pa.record_batch([pa.array([_pickled(outcome)], pa.binary())], names=["outcome"])

    return run


def _pickled(outcome: RangeResult | slate.SlateError) -> bytes:
    pickled: bytes = cloudpickle.dumps(outcome)  # type: ignore[no-untyped-call]
    return pickled
