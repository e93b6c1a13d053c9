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
from slate_async.spark.frames import reading
from slate_async.spark.load import bulk_load
from slate_async.spark.options import OptionValue

SaveMode = Literal["error", "overwrite", "append"]
"""What an export does if something is at its target."""
Reshape = Callable[[DataFrame], DataFrame]
"""What an import makes of the rows it has read, before they are loaded."""
LOADED = ("key", "value", "op", "expire_time")
"""What makes a row."""
ANEW = ("seq", "create_time")
"""What rows get when they are written."""


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

    encode: makes the columns ``key``, ``value`` and, if there are some, ``op`` and ``expire_time`` of those of the
    files; without, they are there by these names, as `export_parquet` writes them, and changes that `read_changes`
    gives: of those of one key the last by ``seq`` counts. Partitions of folders are columns, too
    load: as of `bulk_load`, except for columns

    Sequence numbers and times of writing are new: ``seq`` and ``create_time`` of the files are not kept. What has
    expired since stays expired. Raises what `bulk_load` raises, and `InvalidError` for other columns."""
    files = spark.read.parquet(source)
    rows = files if encode is None else encode(files)
    if lost := [name for name in rows.columns if name not in (*LOADED, *ANEW)]:
        raise slate.InvalidError(
            f"column {', '.join(lost)} would be lost: a row is key, value, op and expire_time. Say by encode= what they"
            " become, or drop them there"
        )
    columns = {name: name for name in ("op", "expire_time", "seq") if name in rows.columns}
    order = {"order": "seq"} if {"op", "seq"} <= columns.keys() else {}
    return bulk_load(rows, path, op=columns.get("op"), expire=columns.get("expire_time"), **{**order, **load})
