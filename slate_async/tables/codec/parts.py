"""What heads and links are made of: schemas, Arrow tables and sets of row ids, in MessagePack maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from slate_async.codec.compression import Compression, DecompressionError, compress, decompress
from slate_async.tables.core.head import LinkRef
from slate_async.tables.core.names import parsed_base
from slate_async.tables.core.row_ids import RowIds, is_set
from slate_async.tables.core.schema import FIELD_ID, Field, TableSchema

_IPC = ipc.IpcWriteOptions(compression="zstd")
MAX_RAW_BYTES = 1 << 30


def pack_bytes(raw: bytes) -> list[Any]:
    """``raw``: its length, codec, and bytes."""
    packed = compress(raw, Compression.ZSTD)
    return [len(raw), 0, raw] if packed is None else [len(raw), int(Compression.ZSTD), packed]


def unpack_bytes(packed: list[Any]) -> bytes:
    """What `pack_bytes` was given. Raises `ValueError` or `TypeError` for anything else."""
    size, codec, data = packed
    if not isinstance(data, bytes) or not 0 <= size <= MAX_RAW_BYTES:
        raise ValueError("those are no packed bytes")
    if codec == 0:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes, not {size}")
        return data
    try:
        return decompress(data, Compression(codec), size)
    except DecompressionError as error:
        raise ValueError(str(error)) from error


def pack_schema(schema: TableSchema) -> dict[str, Any]:
    """Names, types and ids as an Arrow IPC schema; defaults as a batch of one row."""
    packed = {
        "id": schema.schema_id,
        "next": schema.next_id,
        "fields": pack_bytes(schema.arrow().serialize().to_pybytes()),
    }
    given = [field for field in schema.fields if field.default is not None]
    if given:
        row = pa.Table.from_arrays(
            [pa.array([field.default], field.kind) for field in given if field.default is not None],
            names=[str(field.field_id) for field in given],
        )
        packed["defaults"] = pack_table(row)
    return packed


def unpack_schema(packed: dict[str, Any]) -> TableSchema:
    """What `pack_schema` was given."""
    arrow = ipc.read_schema(pa.py_buffer(unpack_bytes(packed["fields"])))
    row = unpack_table(packed["defaults"]) if "defaults" in packed else None
    defaults = {} if row is None else {name: row.column(name)[0] for name in row.column_names}
    fields = []
    for field in arrow:
        field_id = int(field.metadata[FIELD_ID])
        default = defaults.pop(str(field_id), None)
        if default is not None and (default.type != field.type or not default.is_valid):
            raise ValueError(f"the default of {field.name!r} is no {field.type}")
        fields.append(Field(field_id, field.name, field.type, field.nullable, default))
    ids = [field.field_id for field in fields]
    if defaults or len(set(ids)) != len(ids) or not fields or not 0 < min(ids) <= max(ids) < packed["next"]:
        raise ValueError("ids of fields are given twice, or are none of this schema's")
    return TableSchema(packed["id"], tuple(fields), packed["next"])


def pack_table(table: pa.Table) -> bytes:
    """As an Arrow IPC stream of one batch, compressed."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_IPC) as writer:
        writer.write_table(table.combine_chunks())
    written: bytes = sink.getvalue().to_pybytes()
    return written


def unpack_table(packed: bytes) -> pa.Table:
    """What `pack_table` was given, validated."""
    with ipc.open_stream(pa.py_buffer(packed)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def pack_ids(ids: RowIds) -> list[Any]:
    """Differences, as unsigned integers of 64 bits."""
    return pack_bytes(np.diff(ids, prepend=0).astype("<u8").tobytes())


def unpack_ids(packed: list[Any]) -> RowIds:
    """What `pack_ids` was given."""
    raw = unpack_bytes(packed)
    ids: RowIds = np.cumsum(np.frombuffer(raw, "<u8").astype(np.int64), dtype=np.int64)
    if not is_set(ids):
        raise ValueError("row ids do not ascend")
    return ids


def pack_ref(ref: LinkRef) -> list[Any]:
    """Key, size, digest, and whether it is covered."""
    return list(ref)


def unpack_ref(packed: list[Any]) -> LinkRef:
    """What `pack_ref` was given."""
    ref = LinkRef(*packed)
    if parsed_base(ref.key) is None or len(ref.digest) != 16 or ref.size <= 0 or not isinstance(ref.covered, bool):
        raise ValueError(f"{ref.key!r} is no link")
    return ref
