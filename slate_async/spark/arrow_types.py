"""Spark's schemas as Arrow's: what Spark's Python workers take and give.

pyspark has such functions for itself; their arguments change from version to version.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
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

from slate_async.errors import InvalidError

TIME = pa.timestamp("us", tz="UTC")
PLAIN: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    DateType: pa.date32(),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampNTZType: pa.timestamp("us"),
    TimestampType: TIME,
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """``schema`` in Arrow. Raises `InvalidError` for types that have no place in rows here."""
    return pa.schema([_field(field, field.name) for field in schema.fields])


def struct_of(schema: StructType | str) -> StructType:
    """``schema`` as Spark has it. Raises `InvalidError` for text that is none."""
    if isinstance(schema, StructType):
        return schema
    try:
        found = DataType.fromDDL(schema)
    except ParseException as error:
        raise InvalidError(f"{schema!r} is no schema, such as 'name string, age int': {error}") from None
    if not isinstance(found, StructType):
        raise InvalidError(f"{schema!r} is no schema, such as 'name string, age int'")
    return found


def _field(field: StructField, path: str) -> pa.Field:
    return pa.field(field.name, _type(field.dataType, path), field.nullable)


def _type(kind: DataType, path: str) -> pa.DataType:
    if type(kind) in PLAIN:
        return PLAIN[type(kind)]
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _type(kind.elementType, path), kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct([_field(field, f"{path}.{field.name}") for field in kind.fields])
    raise InvalidError(f"column {path} is {kind.simpleString()}, which is not among the types of rows here")


def with_texts(schema: pa.Schema, *, naive_times: bool = False) -> list[pa.Field]:
    """The fields of ``schema`` with text in place of dates, which is then cast, of decimals, and of ``naive_times``:
    those without a zone."""
    return [field.with_type(_texts(field.type, naive_times)).with_nullable(True) for field in schema]


def _texts(kind: pa.DataType, naive_times: bool) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_texts(field.type, naive_times)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_texts(kind.value_type, naive_times)))
    naive = naive_times and (pa.types.is_decimal(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))
    return pa.string() if pa.types.is_date(kind) or naive else kind
