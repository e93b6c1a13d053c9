"""What a value may hold: JSON by columns; MessagePack and Arrow's IPC format value by value, for nothing reads many
of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import with_texts
from slate_async.spark.json_values import decode_json_values, encode_json_values

SHOWN_BYTES = 64
"""Of a key in a message."""
ValueFormat = Literal["none", "json", "arrow", "msgpack"]
"""How the columns of a value are encoded; ``none``: bytes as they are."""
Decode = Callable[[pa.BinaryArray, pa.Schema], list[pa.Array]]
_WRONG = (pa.ArrowException, msgspec.DecodeError, KeyError, ValueError, TypeError, OverflowError, OSError)


def decode_values(form: ValueFormat, keys: pa.BinaryArray, values: pa.BinaryArray, schema: pa.Schema) -> list[pa.Array]:
    """The columns of ``schema`` of each value. Raises `InvalidError` that names the key of the first bad one."""
    decode = _DECODERS[form]
    try:
        return decode(values, schema)
    except _WRONG:
        row = _first_bad(decode, values, schema)
    try:
        return decode(values.slice(row, 1), schema)
    except _WRONG as error:
        key = keys[row].as_py()[:SHOWN_BYTES]
        raise InvalidError(f"the value of key {key!r} is not {_NAMES[form]} of the schema: {error}") from error


def encode_values(form: ValueFormat, columns: list[pa.Array], schema: pa.Schema) -> pa.BinaryArray:
    """A value for each row of ``columns``. Raises `InvalidError` for what the format cannot hold."""
    if form == "json":
        return encode_json_values(columns, schema.names)
    rows = pa.record_batch(columns, schema=schema)
    if form == "msgpack":
        encode = msgspec.msgpack.Encoder().encode
        return pa.array([encode(row) for row in rows.to_pylist()], pa.binary())
    return pa.array([_stream(rows.slice(row, 1)) for row in range(rows.num_rows)], pa.binary())


def _first_bad(decode: Decode, values: pa.BinaryArray, schema: pa.Schema) -> int:
    """By halves."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            decode(values.slice(low, middle - low), schema)
            low = middle
        except _WRONG:
            high = middle
    return low


def _decode_msgpack(values: pa.BinaryArray, schema: pa.Schema) -> list[pa.Array]:
    rows = [msgspec.msgpack.decode(value.as_buffer()) for value in values]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("it is no map")
    read = with_texts(schema, naive_times=True)
    found = pa.array(rows, pa.struct(read))
    return [found.field(field.name).cast(field.type) for field in schema]


def _decode_streams(values: pa.BinaryArray, schema: pa.Schema) -> list[pa.Array]:
    wanted = pa.schema([field.with_nullable(True) for field in schema])
    tables = [pa.ipc.open_stream(value.as_buffer()).read_all().select(schema.names).cast(wanted) for value in values]
    if any(table.num_rows != 1 for table in tables):
        raise ValueError("it holds not one row")
    if not tables:
        return [pa.array([], field.type) for field in schema]
    return [column.combine_chunks() for column in pa.concat_tables(tables).columns]


def _stream(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    made: bytes = sink.getvalue().to_pybytes()
    return made


_DECODERS: dict[ValueFormat, Decode] = {
    "json": decode_json_values,
    "msgpack": _decode_msgpack,
    "arrow": _decode_streams,
}
_NAMES: dict[ValueFormat, str] = {"json": "JSON", "msgpack": "MessagePack", "arrow": "an Arrow stream"}
