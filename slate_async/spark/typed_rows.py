"""Rows with columns of their user's: keys and values decoded where they are read and encoded where they are written.

A batch at a time; what no column needs is not decoded. Columns of a schema are parts of the key, or ``seq``,
``create_time`` and ``expire_time``; all others are members of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from slate_async.codec.tuple_columns import check_part, decode_columns, encode_columns
from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import TIME, arrow_schema
from slate_async.spark.options import Options, check_choice, names
from slate_async.spark.value_formats import SHOWN_BYTES, ValueFormat, decode_values, encode_values

KeyType = Literal["binary", "string", "tuple"]
KEY, VALUE, SEQ, CREATED, EXPIRES = "key", "value", "seq", "create_time", "expire_time"
ROW = StructType(
    [
        StructField(KEY, BinaryType(), nullable=False),
        StructField(VALUE, BinaryType(), nullable=False),
        StructField(SEQ, LongType(), nullable=False),
        StructField(CREATED, TimestampType(), nullable=False),
        StructField(EXPIRES, TimestampType(), nullable=True),
    ]
)
"""Rows as they are stored. Times have milliseconds; a row without ``expire_time`` never expires."""
LAST_MS = (2**63 - 1) // 1000
OF_ROW = {SEQ: LongType(), CREATED: TimestampType(), EXPIRES: TimestampType()}


@dataclass(frozen=True, slots=True)
class RowTypes:
    """What keys and values of a database hold, as its user says.

    key_columns: parts of a ``tuple`` key, in their order"""

    key_type: KeyType = "binary"
    key_columns: tuple[str, ...] = (KEY,)
    value_format: ValueFormat = "none"

    @classmethod
    def of(cls, given: Options) -> RowTypes:
        """As the options ``keyType``, ``keyColumns`` and ``valueFormat`` say. Raises `InvalidError`."""
        key_type = cast(KeyType, given.choice("keyType", get_args(KeyType), "binary"))
        key_columns = given.take("keyColumns", names, None)
        if key_columns is not None and key_type != "tuple":
            one = f"; a key of one column is keyColumn={key_columns[0]} of a write" if len(key_columns) == 1 else ""
            raise InvalidError(f"option keyColumns is of keys of several parts: give option keyType=tuple, too{one}")
        form = cast(ValueFormat, given.choice("valueFormat", get_args(ValueFormat), "none"))
        return cls(key_type, key_columns or (KEY,), form)

    def plain_schema(self, columns: Sequence[str] | None) -> StructType:
        """What is read if no schema is given: ``columns`` of `ROW`. Raises `InvalidError` where a schema is needed."""
        if self.key_type == "tuple" or self.value_format != "none":
            raise InvalidError(
                "keyType=tuple and valueFormat need a schema, which names the columns: schema='key binary, name string'"
                " of slate_spark.read, or .schema(...) of Spark's reader"
            )
        fields = {field.name: field for field in ROW}
        if self.key_type == "string":
            fields[KEY] = StructField(KEY, StringType(), nullable=False)
        if unknown := [name for name in columns or () if name not in fields]:
            raise InvalidError(f"there is no column {', '.join(unknown)} among {', '.join(fields)}")
        return StructType([fields[name] for name in columns or fields])


class RowReader:
    """Makes rows of ``schema`` of rows as they are stored. Raises `InvalidError` for one that cannot be meant."""

    def __init__(self, types: RowTypes, schema: StructType) -> None:
        self._types = types
        self.schema = arrow_schema(schema)
        key = [field for field in schema if field.name in types.key_columns]
        for field in schema:
            wanted = OF_ROW.get(field.name)
            if wanted is not None and field.dataType != wanted and field not in key:
                raise InvalidError(
                    f"column {field.name} is {field.dataType.simpleString()}; of a row it is {wanted.simpleString()}"
                )
        members = [field for field in schema if field not in key and field.name not in OF_ROW]
        self._key = self._checked_key(key)
        self._members = arrow_schema(StructType(members))
        if types.value_format == "none":
            self._check_value(members)

    @property
    def times(self) -> bool:
        """Whether it needs the times of rows."""
        return CREATED in self.schema.names or EXPIRES in self.schema.names

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `InvalidError` for a key or value that is not as it was said to be, naming the key."""
        found = self._parts(batch.column(KEY)) if self._key else {}
        if self._members.names:
            found |= dict(zip(self._members.names, self._values(batch), strict=True))
        columns = [found[name] if name in found else _of_row(batch, name) for name in self.schema.names]
        whole = [column.cast(field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.record_batch(whole, schema=self.schema)

    def _checked_key(self, key: list[StructField]) -> pa.Schema:
        if self._types.key_type != "tuple":
            wanted = StringType() if self._types.key_type == "string" else BinaryType()
            if key and key[0].dataType != wanted:
                advice = ": give option keyType=string" if key[0].dataType == StringType() else ""
                raise InvalidError(
                    f"column key is {key[0].dataType.simpleString()}, and {wanted.simpleString()} by option"
                    f" keyType={self._types.key_type}{advice}"
                )
            return arrow_schema(StructType(key))
        if not key:
            return arrow_schema(StructType())
        by_name = {field.name: field for field in key}
        if missing := [name for name in self._types.key_columns if name not in by_name]:
            raise InvalidError(f"a schema has all parts of the key or none; it lacks {', '.join(missing)}")
        return key_schema(StructType([by_name[name] for name in self._types.key_columns]))

    def _check_value(self, members: list[StructField]) -> None:
        if unknown := [field.name for field in members if field.name != VALUE]:
            raise InvalidError(
                f"a row has no column {', '.join(unknown)}; option valueFormat says what values hold, and keyType and"
                " keyColumns what keys do"
            )
        if members and members[0].dataType != BinaryType():
            kind = members[0].dataType.simpleString()
            raise InvalidError(f"column value is {kind}; it is binary, unless option valueFormat says what it holds")

    def _parts(self, keys: pa.BinaryArray) -> dict[str, pa.Array]:
        if self._types.key_type == "tuple":
            return dict(zip(self._key.names, decode_columns(keys, self._key), strict=True))
        return {KEY: keys if self._types.key_type == "binary" else _as_text(keys)}

    def _values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if self._types.value_format == "none":
            return [batch.column(VALUE)]
        return decode_values(self._types.value_format, batch.column(KEY), batch.column(VALUE), self._members)


class RowWriter:
    """Makes rows as they are stored of a frame's.

    columns: of the frame, by what they are for: ``op``, ``expire_time``, ``order``, and ``key`` and ``value`` where
    they are stored as they are
    schema: of the frame"""

    def __init__(self, types: RowTypes, columns: Mapping[str, str], schema: StructType) -> None:
        self._types = types
        self.columns = columns
        used = {*columns.values(), *(types.key_columns if types.key_type == "tuple" else ())}
        members = StructType([field for field in schema if field.name not in used])
        if types.key_type == "tuple":
            if missing := [name for name in types.key_columns if name not in schema.names]:
                raise InvalidError(f"there is no column {', '.join(missing)} for a part of the key")
            key_schema(StructType([schema[name] for name in types.key_columns]))
        self._members = arrow_schema(members) if types.value_format != "none" else pa.schema([])
        if set(self._members.names) & {SEQ, CREATED}:
            raise InvalidError("columns seq and create_time are given to rows when they are written: drop them")
        self.unused = members.names if types.value_format == "none" else []

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `InvalidError` for what the format cannot hold."""
        found: dict[str, pa.Array] = {role: batch.column(name) for role, name in self.columns.items()}
        if self._types.key_type == "tuple":
            found[KEY] = encode_columns([batch.column(name) for name in self._types.key_columns])
        if self._types.value_format != "none":
            columns = [batch.column(field.name).cast(field.type) for field in self._members]
            found[VALUE] = encode_values(self._types.value_format, columns, self._members)
        return pa.record_batch(list(found.values()), names=list(found))


def encode_value(*columns: Column | str, value_format: ValueFormat = "json") -> Column:
    """A value that holds ``columns`` under their names, binary: what a write with option ``valueFormat`` stores.

    Made by columns for JSON, value by value for ``"msgpack"`` and ``"arrow"``. What the format cannot hold fails the
    query. Raises `InvalidError` for another format."""
    check_choice("value_format", value_format, ValueFormat)
    if value_format == "none":
        raise InvalidError("value_format is what to make of the columns: 'json', 'arrow' or 'msgpack'")

    def encode(*structs: pa.Array) -> pa.Array:
        [rows] = structs
        return encode_values(value_format, rows.flatten(), pa.schema(list(rows.type)))

    make: Any = arrow_udf  # as pyspark types it, each call says what kind of function it makes
    made: Column = make(encode, BinaryType())(F.struct(*columns))
    return made


def key_schema(parts: StructType) -> pa.Schema:
    """``parts`` of a key in Arrow. Raises `InvalidError` for none, and for types that they cannot have."""
    if not parts.fields:
        raise InvalidError("a key has one part at least")
    schema = arrow_schema(parts)
    for field in schema:
        check_part(field.type, field.name)
    return schema


def _of_row(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if name == SEQ:
        return column.view(pa.int64())  # numbers are below 2**63
    return microseconds(column) if name == EXPIRES else column.cast(TIME)


def _as_text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        bad = next(key for key in keys.to_pylist() if not _is_text(key))
        raise InvalidError(f"key {bad[:SHOWN_BYTES]!r} is no UTF-8, as keyType=string says") from None


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def microseconds(times: pa.Array) -> pa.Array:
    """Times of milliseconds as Spark has them. What lies beyond its last one, in the year 294247, becomes that."""
    try:
        return times.cast(TIME)
    except pa.ArrowInvalid:
        known = pc.min_element_wise(times.cast(pa.int64()), pa.scalar(LAST_MS), skip_nulls=False)
        return known.cast(times.type).cast(TIME)
