"""Which micro-batch of which streaming query a task, or a function of `foreachBatch`, works for, as Spark tells it."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql import SparkSession

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
"""Local properties that say which batch of which query a task works for. A query has its id from its first start on, by
its checkpoint."""


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
