"""`TaskJob`: a job of Spark with one task, which a thread waits for and another may cancel.

Jobs of RDDs, because a query costs twice the processor time of one.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias
from uuid import uuid4

from pyspark import SparkContext, cloudpickle  # cloudpickle knows what pickle does not: read-only maps
from pyspark.sql import SparkSession

import slate_async as slate

CANCELS = 20
CANCEL_AGAIN_S = 0.5
"""A job that Spark did not know yet when it was cancelled is cancelled again, so often and so much later."""
TaskFunction: TypeAlias = Callable[[Iterable[int]], Iterator[bytes]]
"""Of a Spark task: what it does for each of its rows, of which there is one; `pickled`."""


class TaskJob:
    """`run` blocks one thread; `cancel` ends it from another one, at any time. ``what``: for errors and Spark's UI."""

    def __init__(self, context: SparkContext, what: str, function: TaskFunction) -> None:
        self._context = context
        self._what = what
        self._function = function
        self._tag = f"slate_async-{uuid4()}"
        self._begun, self._ended, self._cancelled = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> Any:
        """What the function returned, or the error of the engine that it gave. Raises `UnavailableError`."""
        self._begun.set()
        context = self._context
        try:
            context.addJobTag(self._tag)  # of this thread's jobs
            context.setJobDescription(f"slate_async: {self._what}")
            if self._cancelled.is_set():
                raise slate.UnavailableError(f"{self._what} was cancelled")
            (found,) = context.parallelize([0], 1).mapPartitions(self._function).collect()
        except Exception as error:
            raise slate.UnavailableError(f"Spark did not finish {self._what}: {error}") from error
        finally:
            self._ended.set()
            with suppress(Exception):
                context.removeJobTag(self._tag)
        return pickle.loads(found)

    def cancel(self) -> None:
        """End it, or see to it that it never begins."""
        self._cancelled.set()
        if not self._begun.is_set():
            return
        for _ in range(CANCELS):
            self._context.cancelJobsWithTag(self._tag)
            if self._ended.wait(CANCEL_AGAIN_S):
                return


def context_of(spark: SparkSession) -> SparkContext:
    """The context of a session, for jobs. Raises `InvalidError` for a session that has none: of Spark Connect."""
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:
        raise slate.InvalidError(
            f"spark is a SparkSession of the driver itself, not {type(spark).__module__}.{type(spark).__name__}: of"
            " Spark Connect there are frames, and no jobs of single tasks"
        )
    return context


def pickled(outcome: object) -> bytes:
    """``outcome`` for the driver."""
    data: bytes = cloudpickle.dumps(outcome)  # type: ignore[no-untyped-call]
    return data
