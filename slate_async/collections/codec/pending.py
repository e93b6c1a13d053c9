"""A pending batch as bytes. It verifies itself, because nothing names it.

Layout, little-endian (``docs/format/collection-pending-batch.md``)::

    object header 80 (kind 4, the collection's uuid, the append's token as object id)
    | description bytes u32 | description crc32c u32 | description | zeros up to a multiple of 8 | Arrow IPC stream

The stream has one schema and any number of record batches; buffers are compressed by zstd if the updates have more than
`COMPRESS_BYTES`. The header's checksum covers all that follows it. The description has one more of its own, so that a
read of the first bytes is enough to know it.

A batch that names parts has no stream.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyarrow import ipc

from slate_async.codec.arrays import is_larger
from slate_async.codec.checksum import crc32c, crc32c_of_parts
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, check_body, encode_header, peek_header
from slate_async.collections.codec.description import Description, decode_description, encode_description
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError, InvalidError
from slate_async.types import Buffer

COMPRESS_BYTES = 64 << 10
"""Less than this is not worth compressing: 10 rows are written in 0.02 ms and read in 0.01."""
ALIGNMENT = 8
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
PEEK_BYTES = 1024
"""So many first bytes hold the description, unless it names parts."""

_SIZES = struct.Struct("<II")
_AT = HEADER_BYTES + _SIZES.size


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending batch, or a part of one. ``updates``: as they were appended; ``None`` if they are in parts."""

    description: Description
    updates: pa.Table | None


def encode_pending(
    description: Description, updates: pa.RecordBatch | pa.Table | None, schema: UpdateSchema, collection: UUID
) -> bytes:
    """The bytes of a batch whose ``updates`` have the columns of ``schema``; ``None``: they are in parts.

    Raises `InvalidError` if the description does not fit the updates."""
    if (updates is None) != bool(description.parts) or (updates is not None and updates.num_rows != description.rows):
        raise InvalidError(f"the description of {description.rows} rows does not fit the updates")
    packed = encode_description(description)
    sizes = _SIZES.pack(len(packed), crc32c(packed))
    padding = bytes(-(_AT + len(packed)) % ALIGNMENT)
    body: list[Buffer] = [sizes, packed, padding]
    if updates is not None:
        body.append(_stream(updates, schema))
    header = ObjectHeader(
        kind=ObjectKind.PENDING_BATCH,
        database_id=collection,
        object_id=bytes.fromhex(description.token),
        writer_epoch=0,
        body_bytes=sum(map(len, body)),
        manifest_version=0,
        body_crc=crc32c_of_parts(body),
    )
    return b"".join((encode_header(header), *body))


def decode_pending(data: Buffer, schema: UpdateSchema, collection: UUID, *, object_name: str) -> Pending:
    """What `encode_pending` was given. Raises `CorruptionError` for damaged bytes, another collection's, or updates
    with other columns than ``schema``; `InvalidError` for a format newer than this release."""
    header = _header(data, collection, object_name)
    check_body(header, data, object_name=object_name)
    description, end = _description(data, header, schema, object_name)
    stream = memoryview(data)[end:]
    if description.parts:
        if len(stream):
            raise CorruptionError("it has parts and updates", object_name=object_name, offset=end)
        return Pending(description, None)
    updates = _updates(stream, schema, object_name, end)
    if updates.num_rows != description.rows:
        raise CorruptionError(
            f"{updates.num_rows} updates in place of {description.rows}", object_name=object_name, offset=end
        )
    return Pending(description, updates)


def peek_description(data: Buffer, schema: UpdateSchema, collection: UUID, *, object_name: str) -> Description | None:
    """The description in the first bytes of a batch, checked by itself; ``None`` if ``data`` ends within it."""
    header = _header(data, collection, object_name)
    if (
        len(data) < _AT
        or len(data) < _AT + _SIZES.unpack_from(data, HEADER_BYTES)[0] <= HEADER_BYTES + header.body_bytes
    ):
        return None
    return _description(data, header, schema, object_name)[0]


def _stream(updates: pa.RecordBatch | pa.Table, schema: UpdateSchema) -> Buffer:
    """An Arrow stream. That of a few rows is put together from its messages, as Arrow's own writer does."""
    if not is_larger(updates, COMPRESS_BYTES) and isinstance(updates, pa.RecordBatch):
        return b"".join((schema.message, updates.serialize(), END_OF_STREAM))
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression="zstd" if is_larger(updates, COMPRESS_BYTES) else None)
    with ipc.new_stream(sink, schema.arrow, options=options) as writer:
        writer.write(updates)
    whole: pa.Buffer = sink.getvalue()
    return memoryview(whole)


def _updates(stream: memoryview, schema: UpdateSchema, object_name: str, offset: int) -> pa.Table:
    try:
        with ipc.open_stream(pa.py_buffer(stream)) as reader:
            updates = reader.read_all()
        updates.validate()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"no Arrow stream: {error}", object_name=object_name, offset=offset) from error
    if not updates.schema.equals(schema.arrow):
        found = ", ".join(f"{field.name} {field.type}" for field in updates.schema)
        raise CorruptionError(f"it has other columns: {found}", object_name=object_name, offset=offset)
    return updates


def _header(data: Buffer, collection: UUID, object_name: str) -> ObjectHeader:
    header = peek_header(data, object_name=object_name)
    if header.kind is not ObjectKind.PENDING_BATCH:
        raise CorruptionError(f"it is a {header.kind.name}, no pending batch", object_name=object_name, offset=10)
    if header.database_id != collection:
        raise CorruptionError(
            f"belongs to collection {header.database_id}, not {collection}", object_name=object_name, offset=16
        )
    return header


def _description(data: Buffer, header: ObjectHeader, schema: UpdateSchema, object_name: str) -> tuple[Description, int]:
    """The description, checked, and where the stream begins."""
    view = memoryview(data)
    if len(view) < _AT:
        raise CorruptionError(f"{len(view)} bytes are too few", object_name=object_name)
    nbytes, crc = _SIZES.unpack_from(view, HEADER_BYTES)
    payload = view[_AT : _AT + nbytes]
    if len(payload) != nbytes or crc32c(payload) != crc:
        raise CorruptionError("the description's checksum does not match", object_name=object_name, offset=HEADER_BYTES)
    description = decode_description(payload, schema.kind, object_name=object_name, offset=_AT)
    if description.token != header.object_id.hex():
        raise CorruptionError(f"it is of append {header.object_id.hex()}", object_name=object_name, offset=32)
    return description, _AT + nbytes + -(_AT + nbytes) % ALIGNMENT
