"""Columns of collections as Spark's, and back: a batch at a time, and nothing that does not fit is rounded or cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from slate_async.codec.arrays import number_array
from slate_async.collections.core.updates import DIFF, UpdateSchema
from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import PLAIN, arrow_schema

MOST_DIGITS = 38
"""Of Spark's decimals."""
_WIDER: dict[pa.DataType, DataType] = {
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.large_string(): StringType(),
    pa.large_binary(): BinaryType(),
    pa.date64(): DateType(),
}
_KNOWN = {arrow: kind() for kind, arrow in PLAIN.items()} | _WIDER


def spark_type(field: pa.Field) -> DataType:
    """That of a data column. Raises `InvalidError` for one that Spark has no type for."""
    kind = field.type
    if kind in _KNOWN:
        return _KNOWN[kind]
    if pa.types.is_fixed_size_binary(kind):
        return BinaryType()
    if pa.types.is_decimal(kind) and kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return TimestampNTZType() if kind.tz is None else TimestampType()
    raise InvalidError(f"column {field.name} is {kind}, which Spark has no type for")


def rows_of(schema: UpdateSchema) -> StructType:
    """What is read of a collection: its data, its times, and ``_diff``."""
    data = [StructField(field.name, spark_type(field), field.nullable) for field in schema.data]
    numbers = [StructField(name, LongType(), nullable=False) for name in (*schema.kind.columns, DIFF)]
    return StructType([*data, *numbers])


class RowsOut:
    """Makes rows for Spark of a collection's updates.

    wanted: what Spark expects: columns of `rows_of`, in any order. Raises `InvalidError` for others"""

    def __init__(self, schema: UpdateSchema, wanted: StructType) -> None:
        there = {field.name: field for field in rows_of(schema)}
        for field in wanted:
            if field.name not in there:
                raise InvalidError(f"there is no column {field.name} among {', '.join(there)}")
            if field.dataType != there[field.name].dataType:
                kind = there[field.name].dataType.simpleString()
                raise InvalidError(f"column {field.name} is {kind}, not {field.dataType.simpleString()}")
            if there[field.name].nullable and not field.nullable:
                raise InvalidError(f"column {field.name} may have nulls: leave NOT NULL out of its type")
        self.schema = arrow_schema(wanted)

    def read(self, updates: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `InvalidError` for a value that Spark's type cannot hold."""
        columns = [_cast(updates.column(field.name), field) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)


class RowsIn:
    """Makes a collection's updates at one time of a frame's rows.

    frame: the columns of the data, and ``_diff`` or none: then each row is added once. Raises `InvalidError` for
    others"""

    def __init__(self, schema: UpdateSchema, frame: StructType) -> None:
        self._schema = schema
        wanted = {field.name: spark_type(field) for field in schema.data}
        found = {field.name: field.dataType for field in frame}
        if missing := [name for name in wanted if name not in found]:
            raise InvalidError(f"there is no column {', '.join(missing)}; the data have {_named(wanted)}")
        if times := [name for name in schema.kind.columns if name in found]:
            raise InvalidError(f"column {', '.join(times)} is given to rows when they are written: drop it")
        if unknown := [name for name in found if name not in (*wanted, DIFF)]:
            raise InvalidError(
                f"column {', '.join(unknown)} is none of the collection, whose data have {_named(wanted)}"
            )
        for name, kind in wanted.items():
            if found[name] != kind:
                raise InvalidError(f"column {name} is {found[name].simpleString()}, not {kind.simpleString()}: cast it")
        self._has_diff = DIFF in found
        if self._has_diff and not isinstance(found[DIFF], ByteType | ShortType | IntegerType | LongType):
            raise InvalidError(f"column {DIFF} is {found[DIFF].simpleString()}, and takes a whole number")

    def updates(self, rows: pa.RecordBatch, time: int) -> pa.RecordBatch:
        """Raises `InvalidError` for a value that the collection cannot hold, nulls where it has none among them."""
        count = rows.num_rows
        columns = [_cast(rows.column(field.name), field) for field in self._schema.data]
        times = number_array(np.full(count, time, np.uint64))
        diffs = rows.column(DIFF) if self._has_diff else number_array(np.ones(count, np.int64))
        names = [*self._schema.data.names, *self._schema.kind.columns, DIFF]
        return self._schema.batch(pa.record_batch([*columns, times, diffs], names=names))


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        made = column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidError(f"column {field.name} has a value that {field.type} cannot hold: {error}") from None
    if pa.types.is_float16(field.type) and column.type != field.type:
        _refuse_rounded(column, made, field)
    return made


def _refuse_rounded(column: pa.Array, made: pa.Array, field: pa.Field) -> None:
    """Arrow refuses all other values that it cannot cast without a loss."""
    values, kept = (array.cast(pa.float32()).to_numpy(zero_copy_only=False) for array in (column, made))
    rounded = (values != kept) & ~np.isnan(values)
    if rounded.any():
        value = values[rounded.argmax()]
        raise InvalidError(f"column {field.name} has a value that {field.type} cannot hold: {value}")


def _named(kinds: dict[str, DataType]) -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items())
