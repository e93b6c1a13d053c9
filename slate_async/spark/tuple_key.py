"""Keys of several parts as columns: the bytes of `slate_async.codec.tuple_key`, made and read a batch at a time in
Spark's Python workers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StructType

from slate_async.codec.tuple_columns import decode_columns, encode_columns
from slate_async.errors import InvalidError
from slate_async.spark.arrangement import ColumnLike
from slate_async.spark.arrow_types import struct_of
from slate_async.spark.decode import KEY, decode_with
from slate_async.spark.typed_rows import key_schema


def encode_key(*columns: ColumnLike) -> Column:
    """A key of the values of ``columns``, binary: byte for byte what `slate_async.keys.pack` makes of them.

    Columns are strings, binary, integers, floats (stored as doubles), booleans, dates (as days since 1970) or
    timestamps (as microseconds since 1970); those of other types fail the query. Raises `InvalidError` for no columns.
    """
    if not columns:
        raise InvalidError("a key has one part at least")
    make: Any = arrow_udf  # as pyspark types it, each call says what kind of function it makes
    made: Column = make(_encode, BinaryType())(*columns)
    return made


def _encode(*parts: pa.Array) -> pa.Array:
    return encode_columns(parts)


def decode_key(df: DataFrame, schema: StructType | str) -> DataFrame:
    """``df`` with the parts of its keys in place of the column ``key``.

    schema: of the parts, e.g. ``"tenant string, number int"``, as `encode_key` was given them

    A key that has not these parts fails the query with an error that shows it. Raises `InvalidError` for other types,
    and for parts that are called as columns are."""
    parts, others = struct_of(schema), [name for name in df.columns if name != KEY]
    wanted = key_schema(parts)
    if twice := sorted(set(parts.names) & set(others)):
        raise InvalidError(f"{', '.join(twice)} would be there twice, as a column and as a part: rename the column")

    def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = decode_columns(batch.column(KEY).cast(pa.binary()), wanted)
        return pa.record_batch([*found, *batch.select(others).columns], names=[*wanted.names, *others])

    return decode_with(df, decode, StructType([*parts.fields, *(df.schema[name] for name in others)]))
