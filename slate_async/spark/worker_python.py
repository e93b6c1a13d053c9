"""Whether the Python of Spark's tasks has this package, asked where Spark would tell it by a page of traces only."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from slate_async.spark.engine_errors import plain_errors


def check_python(spark: SparkSession) -> None:
    """Raise `InvalidError` if nobody named an interpreter, and the one that Spark finds lacks slate_async. Runs a task
    where that is another one than this process has."""
    if type(spark).__module__.startswith("pyspark.sql.connect.") or "PYSPARK_PYTHON" in os.environ:
        return
    chosen = shutil.which(spark.sparkContext.pythonExec)
    if chosen is not None and os.path.dirname(chosen) == os.path.dirname(sys.executable):
        return
    with plain_errors():
        spark.range(1).mapInArrow(_itself, "id long").collect()


def _itself(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
