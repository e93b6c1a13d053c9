"""A log segment: the rows of one flush in write order, and the fence that stands in a segment's place.

Layout (``docs/format/log-segment.md``)::

    header 80 | (stored bytes u32 | zero u32 | stored block | zeros to a multiple of 8)*

A fence is a header alone. The header's body checksum covers every block, so a segment is sound as a whole or
not at all.
"""

from __future__ import annotations

import struct
from uuid import UUID

import numpy as np

from slate_async.codec.arrays import binary_buffers
from slate_async.codec.checksum import crc32c_of_parts
from slate_async.codec.columns import Columns, concat
from slate_async.codec.compression import Compression
from slate_async.codec.header import (
    HEADER_BYTES,
    ObjectHeader,
    ObjectKind,
    check_body,
    decode_header,
    encode_header,
)
from slate_async.errors import ConfigError, CorruptionError, InvalidError
from slate_async.storage.format.block import (
    ROW_OVERHEAD_BYTES,
    TRAILER_BYTES,
    decode_block,
    stored_crc,
    stored_raw_bytes,
)
from slate_async.storage.format.block_encoding import encode_block
from slate_async.storage.format.block_parts import StoredBlock
from slate_async.types import Buffer

SEGMENT_BLOCK_BYTES = 8 << 20
"""A block of a segment holds about this many raw bytes at most; a larger row stands alone."""

_PREFIX = struct.Struct("<II")
_LOG_ID = struct.Struct("<8sQ")
_LOG_ID_PREFIX = b"SLATELOG"
_LOG_ID_END = 2**64


def log_object_id(log_id: int) -> bytes:
    """The object id of the log object at position ``log_id`` (of either log protocol)."""
    if not 0 <= log_id < _LOG_ID_END:
        raise InvalidError(f"log id {log_id} is outside 0 to 2**64 - 1")
    return _LOG_ID.pack(_LOG_ID_PREFIX, log_id)


def encode_fence(*, database_id: UUID, log_id: int, epoch: int, manifest_version: int) -> bytes:
    """A fence: a header and nothing else."""
    return encode_header(
        ObjectHeader(ObjectKind.FENCE, database_id, log_object_id(log_id), epoch, 0, manifest_version, 0)
    )


def encode_segment(
    columns: Columns,
    *,
    database_id: UUID,
    log_id: int,
    epoch: int,
    manifest_version: int,
    compression: str | Compression = Compression.NONE,
) -> list[bytes]:
    """``columns`` (1 row or more, in write order) as the buffers of one log object; the first is its header."""
    body: list[bytes] = []
    for part in _split(columns):
        stored = encode_block(part, compression)
        body += (_PREFIX.pack(len(stored), 0), stored, bytes(-len(stored) % 8))
    header = ObjectHeader(
        ObjectKind.LOG_SEGMENT,
        database_id,
        log_object_id(log_id),
        epoch,
        sum(map(len, body)),
        manifest_version,
        crc32c_of_parts(body),
    )
    return [encode_header(header), *(part for part in body if part)]


def decode_segment(
    data: Buffer,
    *,
    object_name: str,
    database_id: UUID | None = None,
    log_id: int | None = None,
    most_bytes: int | None = None,
) -> tuple[ObjectHeader, Columns]:
    """The header and all rows, in write order, of the whole object ``data``.

    Raises `CorruptionError` for anything that is not a sound log segment of that database and position (a fence
    is not one: look at `peek_header` first), `InvalidError` for a newer format, `ConfigError` if its rows take more
    than ``most_bytes``."""
    object_id = None if log_id is None else log_object_id(log_id)
    header = decode_header(data, object_name=object_name, database_id=database_id, object_id=object_id)
    if header.kind is not ObjectKind.LOG_SEGMENT:
        raise CorruptionError(f"is a {header.kind.name}, not a log segment", object_name=object_name, offset=10)
    blocks = stored_blocks(data, header, object_name=object_name, most_bytes=most_bytes)
    return header, concat([decode_block(block.data, object_name=object_name, offset=block.offset) for block in blocks])


def stored_blocks(
    data: Buffer, header: ObjectHeader, *, object_name: str, most_bytes: int | None = None
) -> list[StoredBlock]:
    """The blocks of the whole object ``data``, whose ``header`` was decoded, as they lie in it: its checksum holds,
    theirs were not looked at. See `decode_segment` for the errors."""
    body = check_body(header, data, object_name=object_name)
    blocks: list[StoredBlock] = []
    at = raw_bytes = 0
    while at < len(body):
        stored, at = _next_block(body, at, object_name)
        raw_bytes += stored_raw_bytes(stored)
        if most_bytes is not None and raw_bytes > most_bytes:
            raise ConfigError(
                f"{object_name} takes {raw_bytes} bytes of memory, and decode_memory_bytes allows {most_bytes};"
                " raise it"
            )
        crc = stored_crc(stored) if len(stored) >= TRAILER_BYTES else 0  # too few, as decoding will say
        blocks.append(StoredBlock(stored, HEADER_BYTES + at - len(stored) - (-len(stored) % 8), crc))
    if not blocks:
        raise CorruptionError("a log segment without rows", object_name=object_name, offset=HEADER_BYTES)
    return blocks


def _next_block(body: memoryview, at: int, object_name: str) -> tuple[memoryview, int]:
    """The stored block whose prefix is at ``at``, and where the next prefix is."""
    start = at + _PREFIX.size
    if start <= len(body):
        length, zero = _PREFIX.unpack_from(body, at)
        end = start + length + (-length % 8)
        if length and not zero and end <= len(body):
            return body[start : start + length], end
    raise CorruptionError("block prefix is wrong", object_name=object_name, offset=HEADER_BYTES + at)


def _split(columns: Columns) -> list[Columns]:
    """Slices of about `SEGMENT_BLOCK_BYTES` raw bytes, of at least one row each."""
    key_offsets, _ = binary_buffers(columns.keys)
    value_offsets, _ = binary_buffers(columns.values)
    rows = len(columns)
    ends = key_offsets[1:].astype(np.int64) + value_offsets[1:] + ROW_OVERHEAD_BYTES * np.arange(1, rows + 1)
    base = int(key_offsets[0]) + int(value_offsets[0])
    if not rows or int(ends[-1]) - base <= SEGMENT_BLOCK_BYTES:
        return [columns]
    parts = []
    start = 0
    while start < rows:
        stop = max(start + 1, int(np.searchsorted(ends, base + SEGMENT_BLOCK_BYTES, "right")))
        parts.append(columns.slice(start, stop))
        base = int(ends[stop - 1])
        start = stop
    return parts
