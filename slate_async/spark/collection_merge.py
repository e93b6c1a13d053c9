"""`CollectionMergeExecutor`: large merges of a collection's controller as Spark tasks.

Planning, fuel and commits stay with the controller. A task puts the objects of the output under the name that the
controller gave, and the same inputs make the same bytes; so a task that Spark runs twice writes over its own.

Rule C23 of collections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.collections.controller.executor import LocalExecutor, MergeTask
from slate_async.collections.core.area import MergedBatch
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.spark.collection_options import CollectionPlace
from slate_async.spark.collection_place import open_collection
from slate_async.spark.options import place
from slate_async.spark.task_job import TaskFunction, TaskJob, context_of, pickled
from slate_async.spark.worker import this_worker

DEFAULT_PARALLELISM = 8
DEFAULT_LEAST_ROWS = 1_000_000


class CollectionMergeExecutor:
    """Implements `slate_async.Executor` for ``collection`` of the lake at ``path``, as executors of Spark reach it.

    least_rows: of the inputs of a merge that is worth a job; others run in this process
    parallelism: jobs at a time, at most; the controller bounds its merges, too

    Pass it to `slate_async.Collection.controller`, and close it after that."""

    tasks: int
    """Merges that Spark has run."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        collection: str,
        *,
        metastore: str | None = None,
        least_rows: int = DEFAULT_LEAST_ROWS,
        parallelism: int = DEFAULT_PARALLELISM,
    ) -> None:
        self._context = context_of(spark)
        self._place = CollectionPlace(place(path), metastore, collection)
        self._least_rows = least_rows
        self._threads = ThreadPoolExecutor(parallelism, thread_name_prefix="slate_async spark merge")
        self._cancelling = ThreadPoolExecutor(1, thread_name_prefix="slate_async spark cancel")
        self.tasks = 0

    async def merge(self, task: MergeTask) -> MergedBatch:
        """Merge in a Spark task, unless the merge is small. Cancelled, it ends the job. See `Executor.merge`.

        Raises `UnavailableError` if Spark could not: the controller tries again."""
        sent = task.picklable()
        if sum(batch.rows for batch in task.inputs) < self._least_rows:
            return await asyncio.wrap_future(this_worker().start(partial(_merge, self._place, sent)))
        job = TaskJob(self._context, f"a merge of {self._place.collection}", _merge_there(self._place, sent))
        work = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        try:
            outcome: MergedBatch | slate.SlateError | ObjectNotFoundError = await work
        except asyncio.CancelledError:
            self._cancelling.submit(job.cancel)
            raise
        if isinstance(outcome, Exception):
            raise outcome
        self.tasks += 1
        return outcome

    def close(self) -> None:
        """End its threads; merges that run are given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._cancelling.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_same_arrow(driver: str, task: str) -> None:
    """Raise `InvalidError` where the ``task`` has another version of pyarrow than the ``driver``. Attempts of one merge
    put objects of one name, and one that comes late would put other bytes than were committed."""
    if driver != task:
        raise slate.InvalidError(
            f"the driver has pyarrow {driver} and this task {task}: merges take one version in all Spark processes"
        )


async def _merge(where: CollectionPlace, task: MergeTask, environment: slate.Environment) -> MergedBatch:
    async with open_collection(where, environment) as stores:
        return await LocalExecutor(stores.store, environment.runtime.offload).merge(task)


def _merge_there(where: CollectionPlace, task: MergeTask) -> TaskFunction:
    """The function of a Spark task that runs ``task``."""
    driver = pa.__version__

    def run(rows: Iterable[int]) -> Iterator[bytes]:
        for _ in rows:  # one; but to its end, for Spark uses no process again that left something unread
            outcome: MergedBatch | slate.SlateError | ObjectNotFoundError
            try:
                check_same_arrow(driver, pa.__version__)
                outcome = this_worker().run(partial(_merge, where, task))
            except (slate.SlateError, ObjectNotFoundError) as error:
                outcome = error
            yield pickled(outcome)

    return run
