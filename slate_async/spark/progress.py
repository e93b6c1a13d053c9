"""How far the Spark jobs of a block have come, reported to a callback.

Spark counts tasks by job group. The block gets a group of its own, which separates its jobs from all others; the
caller's group is restored at its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

from pyspark import SparkContext
from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
PERIOD_S = 0.5
GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far Spark has come with a load.

    tasks_done, tasks_total: of all stages that have begun. Spark plans as it goes, so the total grows: those that
    sample keys come first, then those that spread rows, then those that sort them and write SSTs
    failed: attempts that failed, and were or will be repeated
    waiting: what is waited for before the first task, in a sentence; else ``None``
    """

    tasks_done: int = 0
    tasks_total: int = 0
    failed: int = 0
    waiting: str | None = None


ProgressSink: TypeAlias = Callable[[LoadProgress], None]
"""Called with the progress of a load, from whichever thread watches it; must not block."""


@contextmanager
def errors_logged() -> Iterator[None]:
    """Log what a callback raises, also what would end this thread: it is not the caller's, and the load goes on."""
    try:
        yield
    except BaseException:
        logger.exception("telling the progress of a load failed")


@contextmanager
def watched(spark: SparkSession, description: str, progress: ProgressSink | None) -> Iterator[None]:
    """Tell ``progress`` how far the jobs are that this thread runs inside the block, every `PERIOD_S` and at the end;
    with Spark Connect, whenever its server says so. What it raises is logged, and ends the telling, not the load."""
    if progress is None:
        yield
    elif type(spark).__module__.startswith("pyspark.sql.connect."):
        with _watched_by_client(spark, progress):
            yield
    else:
        with _watched_by_group(spark, description, progress):
            yield


@contextmanager
def _watched_by_client(spark: SparkSession, progress: ProgressSink) -> Iterator[None]:
    """The client of Spark Connect calls handlers on the thread that waits for a query."""
    thread, known, failed = threading.get_ident(), dict[Any, tuple[int, int]](), False

    def tell(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        nonlocal failed
        if failed or threading.get_ident() != thread:
            return
        for stage in stages or ():
            known[operation_id, stage.stage_id] = (stage.num_completed_tasks, stage.num_tasks)
        try:
            tasks_done, tasks_total = (sum(numbers) for numbers in zip((0, 0), *known.values(), strict=True))
            progress(LoadProgress(tasks_done, tasks_total))
        except Exception:
            logger.exception("telling the progress of a load failed")
            failed = True

    spark.registerProgressHandler(tell)  # type: ignore[arg-type] # pyspark has a class for it, and asks for a function
    try:
        yield
    finally:
        spark.removeProgressHandler(tell)  # type: ignore[arg-type]


@contextmanager
def _watched_by_group(spark: SparkSession, description: str, progress: ProgressSink) -> Iterator[None]:
    context, group, over = spark.sparkContext, f"slate_async-{uuid4()}", threading.Event()

    def tell() -> None:
        with errors_logged():
            while not over.wait(PERIOD_S):
                progress(_progress(context, group))
            progress(_progress(context, group))

    before = {name: context.getLocalProperty(name) for name in (GROUP, DESCRIPTION)}
    context.setLocalProperty(GROUP, group)
    context.setLocalProperty(DESCRIPTION, description)
    teller = threading.Thread(target=tell, name="slate_async progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type] # None takes it away


def _progress(context: SparkContext, group: str) -> LoadProgress:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
    progress = LoadProgress()
    for stage in map(tracker.getStageInfo, numbers):
        if stage is None:
            continue
        done, failed = stage.numCompletedTasks, stage.numFailedTasks
        if done or failed or stage.numActiveTasks:  # others may be skipped: their output is there
            progress = LoadProgress(
                progress.tasks_done + done, progress.tasks_total + stage.numTasks, progress.failed + failed
            )
    return progress
