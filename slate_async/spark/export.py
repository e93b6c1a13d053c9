"""A database as Parquet files, and back.

Files of an export without ``partition_by`` are ranges of keys: sorted inside, and in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.spark.engine_errors import plain_errors
from slate_async.spark.load import bulk_load
from slate_async.spark.options import OptionValue
from slate_async.spark.source import reading

SaveMode = Literal["error", "overwrite", "append"]
Reshape = Callable[[DataFrame], DataFrame]
STORED = ("key", "value", "expire_time")
"""What makes a row, besides when it was written."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Where the files are, and how many rows they have."""

    target: str
    rows: int


def export_parquet(
    spark: SparkSession,
    path: str,
    target: str,
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
    decode: Reshape | None = None,
    partition_by: Sequence[str] = (),
    mode: SaveMode = "error",
    compression: str = "snappy",
    **options: OptionValue,
) -> ExportReport:
    """Write the rows of the database at ``path`` to Parquet files in the folder ``target``, of any file system that
    Spark knows.

    schema, columns: as of `read`
    decode: makes the columns to write of those of `read`, e.g. ``lambda df: decode_json(df, "name string, age int")``;
    by default they are written as they are, and `import_parquet` takes them back
    partition_by: columns whose values become folders; by default there is a file for each range of keys, of about
    ``partitionBytes`` as stored
    mode: what to do if there is something at ``target``, as of Spark's writer; ``compression``, too
    options: as of `read`; ``checkpoint`` says which one. Without, one is made, and deleted at the end

    Raises what reading raises, as the engine's error, and what Spark raises; what it has written by then it removes as
    for any job."""
    with reading(spark, path, schema=schema, columns=columns, **options) as rows:
        counted = Observation()
        wanted = (rows if decode is None else decode(rows)).observe(counted, F.count(F.lit(1)).alias("rows"))
        writer = wanted.write.mode(mode).option("compression", compression)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        with plain_errors():
            writer.parquet(target)
        return ExportReport(target, int(counted.get.get("rows", 0)))


def import_parquet(
    spark: SparkSession, source: str, path: str, *, encode: Reshape | None = None, **load: Any
) -> slate.IngestInfo:
    """Load Parquet files, or the folder ``source``, into the database at ``path``; what `bulk_load` tells.

    encode: makes the columns ``key``, ``value`` and, if rows expire, ``expire_time`` of those of the files; without,
    they are there by these names, as `export_parquet` writes them. Partitions of folders are columns, too
    load: as of `bulk_load`, except for columns

    Keys, values and expiry times are those of the files; sequence numbers and times of writing are new. What has
    expired since stays expired. Raises what `bulk_load` raises."""
    files = spark.read.parquet(source)
    rows = files if encode is None else encode(files)
    expire = "expire_time" if "expire_time" in rows.columns else None
    return bulk_load(rows.select(*(name for name in STORED if name in rows.columns)), path, expire=expire, **load)
