"""Values as columns: JSON, Arrow IPC, or whatever a function makes of a batch of rows.

All keep the order of rows and read each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import struct_of
from slate_async.spark.options import check_choice

KEY = "key"
VALUE = "value"
KEY_BYTES = 64
"""Of a key, a message shows the first ones."""
_NOT_JSON, _VALUE, _END = "slate_async not json", "slate_async value", "slate_async end"
"""Members that no value has."""
OnError = Literal["fail", "null"]
"""What becomes of a value that cannot be decoded: the job fails, or its columns are null."""


def decode_json(df: DataFrame, schema: StructType | str, *, on_error: OnError = "fail") -> DataFrame:
    """``df`` with the members of its values, JSON objects in UTF-8, in place of the column ``value``.

    schema: of the members, e.g. ``"name string, age int"``; what a value lacks is null
    on_error: a value that is no such JSON fails the query, naming its key, or all of its members are ``null``

    Spark itself does the work, without Python. Raises `InvalidError` for another ``on_error``, and for members that are
    called as columns are."""
    check_choice("on_error", on_error, OnError)
    members, text = struct_of(schema), F.col(VALUE).cast("string")
    if twice := sorted(set(members.names) & set(_others(df))):
        raise InvalidError(f"{', '.join(twice)} would be there twice, as a column and as a member: rename the column")
    whole = df.withColumn(VALUE, F.when(F.is_valid_utf8(text), _read_json(text, members)))
    item, end = F.get(F.col(VALUE)[_VALUE], F.lit(0)), F.get(F.col(VALUE)[_VALUE], F.lit(1))
    good = F.col(VALUE)[_NOT_JSON].isNull() & (F.size(F.col(VALUE)[_VALUE]) == 2) & end[_END] & item.isNotNull()
    failed = F.raise_error(F.concat(F.lit("the value of "), _key_shown(df), F.lit(" is not JSON of the schema")))
    parsed = whole.withColumn(VALUE, F.when(good, item).otherwise(failed if on_error == "fail" else F.lit(None)))
    return parsed.select(*_others(df), *(F.col(VALUE)[name].alias(name) for name in members.names))


def _read_json(text: Column, members: StructType) -> Column:
    """``text`` in a list, before an end: Spark takes an empty text for null, and stops behind the first object. Of one
    object, and nothing else, a list of these two comes."""
    item = StructType([*members.fields, StructField(_END, BooleanType())])
    whole = StructType([StructField(_VALUE, ArrayType(item)), StructField(_NOT_JSON, StringType())])
    wrapped = F.concat(F.lit(f'{{"{_VALUE}":['), text, F.lit(f',{{"{_END}":true}}]}}'))
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _NOT_JSON, "allowSingleQuotes": "false"}
    return F.from_json(wrapped, whole, how)


def decode_arrow(df: DataFrame, schema: StructType | str) -> DataFrame:
    """``df`` with the rows of its values, each a stream in Arrow's IPC format, in place of the column ``value``: of
    several rows in a value, each stands beside its key. Another value fails the query, naming its key.

    schema: of the streams, which must have its columns in any order; types are cast, without loss"""
    members = struct_of(schema)
    wanted = _arrow_schema(df, members)
    whole = StructType([*(df.schema[name] for name in _others(df)), *members.fields])

    def decode(batch: pa.RecordBatch) -> pa.Table:
        tables = [_stream(batch, row, wanted) for row in range(batch.num_rows)]
        parent = pa.array([row for row, table in enumerate(tables) for _ in range(table.num_rows)], pa.int64())
        found = batch.select(_others_of(batch)).take(parent)
        decoded = pa.concat_tables(tables)
        return pa.Table.from_arrays([*found.columns, *decoded.columns], names=[*found.schema.names, *wanted.names])

    return decode_with(df, decode, whole)


def _stream(batch: pa.RecordBatch, row: int, wanted: pa.Schema) -> pa.Table:
    """The stream that is the value of that row."""
    value = batch.column(VALUE)[row]
    if not value.is_valid:
        raise InvalidError(f"the value of {_key_of(batch, row)} is null, and no Arrow stream")
    try:
        return pa.ipc.open_stream(value.as_buffer()).read_all().select(wanted.names).cast(wanted)
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise InvalidError(
            f"the value of {_key_of(batch, row)} is not an Arrow stream of the schema: {error}"
        ) from error


def decode_with(
    df: DataFrame, function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table], schema: StructType | str
) -> DataFrame:
    """What ``function`` makes of each batch of ``df``'s rows: columns of ``schema``, by name, as many rows as it likes.

    It runs in Spark's Python workers, which must be able to import what it uses. Batches that are empty are not
    shown. What it raises fails the query, with a note of the keys of the batch."""
    struct = struct_of(schema)
    wanted = _arrow_schema(df, struct)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                try:
                    made = function(batch)
                    table = pa.Table.from_batches([made]) if isinstance(made, pa.RecordBatch) else made
                    decoded = table.select(wanted.names).cast(wanted).to_batches()
                except Exception as error:
                    error.add_note(f"in the rows from {_key_of(batch, 0)} to {_key_of(batch, batch.num_rows - 1)}")
                    raise
                yield from decoded

    return df.mapInArrow(decode, struct)


def _arrow_schema(df: DataFrame, schema: StructType) -> pa.Schema:
    """As Spark says it in this session."""
    return df.sparkSession.createDataFrame([], schema).toArrow().schema


def _others(df: DataFrame) -> list[str]:
    return [name for name in df.columns if name != VALUE]


def _others_of(batch: pa.RecordBatch) -> list[str]:
    return [name for name in batch.schema.names if name != VALUE]


def _key_shown(df: DataFrame) -> Column:
    """The key of each row of ``df`` for a message of Spark's, as text and as bytes."""
    if KEY not in df.columns:
        return F.lit("a row")
    first = F.col(KEY).substr(1, KEY_BYTES)
    return F.concat(F.lit("key '"), first.cast("string"), F.lit("' (X'"), F.hex(first), F.lit("')"))


def _key_of(batch: pa.RecordBatch, row: int) -> str:
    """The key of that row for a message."""
    if KEY not in batch.schema.names:
        return f"row {row} of a batch"
    return f"key {batch.column(KEY)[row].as_py()[:KEY_BYTES]!r}"
