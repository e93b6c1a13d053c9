"""Values as columns: JSON, Arrow IPC, or whatever a function makes of a batch of rows.

All keep the order of rows and read each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from slate_async.spark.options import check_choice

VALUE = "value"
OnError = Literal["fail", "null"]


def decode_json(df: DataFrame, schema: StructType | str, *, on_error: OnError = "fail") -> DataFrame:
    """``df`` with the members of its values, JSON objects in UTF-8, in place of the column ``value``.

    schema: of the members, e.g. ``"name string, age int"``; what a value lacks is null
    on_error: a value that is no such JSON fails the query, or all of its members are ``null``

    Spark itself does the work, without Python. Raises `InvalidError` for another ``on_error``."""
    check_choice("on_error", on_error, OnError)
    mode = "FAILFAST" if on_error == "fail" else "PERMISSIVE"
    parsed = F.from_json(F.col(VALUE).cast("string"), schema, {"mode": mode})
    return df.withColumn(VALUE, parsed).select(*_others(df), f"{VALUE}.*")


def decode_arrow(df: DataFrame, schema: StructType | str) -> DataFrame:
    """``df`` with the rows of its values, each a stream in Arrow's IPC format, in place of the column ``value``: of
    several rows in a value, each stands beside its key.

    schema: of the streams, which must have its columns in any order; types are cast, without loss"""
    members = _struct(schema)
    wanted = _arrow_schema(df, members)
    whole = StructType([*(df.schema[name] for name in _others(df)), *members.fields])

    def decode(batch: pa.RecordBatch) -> pa.Table:
        tables = [pa.ipc.open_stream(value.as_buffer()).read_all() for value in batch.column(VALUE)]
        parent = pa.array([row for row, table in enumerate(tables) for _ in range(table.num_rows)], pa.int64())
        found = batch.select(_others_of(batch)).take(parent)
        decoded = pa.concat_tables([table.select(wanted.names).cast(wanted) for table in tables])
        return pa.Table.from_arrays([*found.columns, *decoded.columns], names=[*found.schema.names, *wanted.names])

    return decode_with(df, decode, whole)


def decode_with(
    df: DataFrame, function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table], schema: StructType | str
) -> DataFrame:
    """What ``function`` makes of each batch of ``df``'s rows: columns of ``schema``, by name, as many rows as it likes.

    It runs in Spark's Python workers, which must be able to import what it uses. Batches that are empty are not
    shown."""
    struct = _struct(schema)
    wanted = _arrow_schema(df, struct)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                made = function(batch)
                table = pa.Table.from_batches([made]) if isinstance(made, pa.RecordBatch) else made
                yield from table.select(wanted.names).cast(wanted).to_batches()

    return df.mapInArrow(decode, struct)


def _struct(schema: StructType | str) -> StructType:
    return schema if isinstance(schema, StructType) else cast(StructType, DataType.fromDDL(schema))


def _arrow_schema(df: DataFrame, schema: StructType) -> pa.Schema:
    """As Spark says it in this session."""
    return df.sparkSession.createDataFrame([], schema).toArrow().schema


def _others(df: DataFrame) -> list[str]:
    return [name for name in df.columns if name != VALUE]


def _others_of(batch: pa.RecordBatch) -> list[str]:
    return [name for name in batch.schema.names if name != VALUE]
