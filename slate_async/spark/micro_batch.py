"""Which micro-batch of which streaming query a task, or a function of `foreachBatch`, works for, as Spark tells it."""

from __future__ import annotations

import sys
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql import SparkSession

import slate_async as slate

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
"""Local properties that say which batch of which query a task works for. A query has its id from its first start on, by
its checkpoint."""
CONNECT_WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
"""The program that calls the function of a client's ``foreachBatch``, beside the server of Spark Connect."""


class MicroBatch(NamedTuple):
    """Batch ``batch_id`` of a streaming query."""

    query_id: str
    batch_id: int


def micro_batch() -> MicroBatch | None:
    """That for which the calling task works; ``None``: it works for no streaming query, or this is no task."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    return None if query_id is None or batch_id is None else MicroBatch(query_id, int(batch_id))


def batch_of_call(spark: SparkSession) -> MicroBatch | None:
    """That whose function of `foreachBatch` calls, on the driver; ``None``: no such function does. Spark Connect does
    not tell."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return None
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    batch_id = spark.sparkContext.getLocalProperty(BATCH_ID)
    return None if query_id is None or batch_id is None else MicroBatch(query_id, int(batch_id))


def query_of_call(spark: SparkSession) -> str | None:
    """The id of the query whose ``foreachBatch`` the calling thread runs; ``None``: it runs none's.

    Raises `InvalidError` in a ``foreachBatch`` of Spark Connect, where Spark does not tell the id."""
    batch = batch_of_call(spark)
    if batch is not None:
        return batch.query_id
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    if program is not None and program.name == CONNECT_WORKER:
        raise slate.InvalidError(
            "foreachBatch of Spark Connect does not tell which query counts the batches, so another query would pass"
            " for this one, and its rows be lost: give a third part, batch=(app id, number, name), whose name changes"
            " with checkpointLocation; or write the stream with format('slate')",
            outcome="not_applied",
        )
    return None
