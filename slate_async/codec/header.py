"""The 80 bytes an object begins with: what it is and whose it is. Every log object and every SST has them.

Layout, little-endian (``docs/format/header.md``)::

    magic 8 | format version u16 | kind u16 | flags u32 | database id 16 | object id 16
    | writer epoch u64 | body bytes u64 | manifest version u64 | body crc32c u32 | header crc32c u32

Invariant: a header is believed only after its own checksum; then its version and required features are judged,
so a flipped byte is always `CorruptionError` and `InvalidError` always means a newer writer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from slate_async.codec.checksum import crc32c
from slate_async.errors import CorruptionError, InvalidError
from slate_async.types import Buffer

HEADER_MAGIC = b"SLATEOBJ"
HEADER_BYTES = 80
FORMAT_VERSION = 1
REQUIRED_FLAGS = 0x0000_FFFF
"""Flag bits a reader must know; the upper 16 may be ignored by a reader that does not."""
KNOWN_FLAGS = 0
OBJECT_ID_BYTES = 16

_FIELDS = struct.Struct("<8sHHI16s16sQQQI")
_CRC = struct.Struct("<I")
_U64_END = 2**64


class ObjectKind(IntEnum):
    """What an object holds. All products take their numbers from here, and no number is given twice."""

    LOG_SEGMENT = 1
    FENCE = 2
    SST = 3
    PENDING_BATCH = 4


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """The decoded header.

    object_id: 16 bytes, chosen by the product: a position for log objects, a ULID for SSTs
    writer_epoch: epoch of the writer (or compactor) that made the object
    body_bytes: size of the object less the header
    manifest_version: the manifest its producer had read
    body_crc: CRC32C of everything after the header
    """

    kind: ObjectKind
    database_id: UUID
    object_id: bytes
    writer_epoch: int
    body_bytes: int
    manifest_version: int
    body_crc: int
    flags: int = 0


def encode_header(header: ObjectHeader) -> bytes:
    """The 80 bytes of ``header``. Raises `InvalidError` for values that do not fit."""
    if len(header.object_id) != OBJECT_ID_BYTES:
        raise InvalidError(f"an object id has {OBJECT_ID_BYTES} bytes, not {len(header.object_id)}")
    for name in ("writer_epoch", "body_bytes", "manifest_version"):
        if not 0 <= getattr(header, name) < _U64_END:
            raise InvalidError(f"{name} {getattr(header, name)} is outside 0 to 2**64 - 1")
    fields = _FIELDS.pack(
        HEADER_MAGIC,
        FORMAT_VERSION,
        header.kind,
        header.flags,
        header.database_id.bytes,
        header.object_id,
        header.writer_epoch,
        header.body_bytes,
        header.manifest_version,
        header.body_crc,
    )
    return fields + _CRC.pack(crc32c(fields))


def peek_header(data: Buffer, *, object_name: str) -> ObjectHeader:
    """The header at the start of ``data``, whosever object it is. See `decode_header` for the errors."""
    if len(data) < HEADER_BYTES:
        raise CorruptionError(f"{len(data)} bytes are too few for a header", object_name=object_name)
    raw = bytes(memoryview(data)[:HEADER_BYTES])
    magic, version, kind, flags, database, object_id, epoch, body_bytes, manifest, body_crc = _FIELDS.unpack_from(raw)
    if magic != HEADER_MAGIC:
        raise CorruptionError(f"not an object of ours: it begins with {magic!r}", object_name=object_name)
    if _CRC.unpack_from(raw, _FIELDS.size)[0] != crc32c(raw[: _FIELDS.size]):
        raise CorruptionError("header checksum does not match", object_name=object_name, offset=_FIELDS.size)
    refuse_newer(version, flags, object_name=object_name)
    try:
        known_kind = ObjectKind(kind)
    except ValueError as error:
        raise CorruptionError(f"unknown object kind {kind}", object_name=object_name, offset=10) from error
    return ObjectHeader(known_kind, UUID(bytes=database), object_id, epoch, body_bytes, manifest, body_crc, flags)


def refuse_newer(version: int, flags: int, *, object_name: str) -> None:
    """Raise `InvalidError` if a (checksummed) format version or required feature flag is not known here."""
    if version != FORMAT_VERSION:
        raise InvalidError(
            f"{object_name} has format version {version}, this release reads version {FORMAT_VERSION}; "
            "use the release that wrote it, or a newer one"
        )
    if unknown := flags & REQUIRED_FLAGS & ~KNOWN_FLAGS:
        raise InvalidError(f"{object_name} needs features this release does not have (flags {unknown:#06x}); upgrade")


def decode_header(
    data: Buffer, *, object_name: str, database_id: UUID | None = None, object_id: bytes | None = None
) -> ObjectHeader:
    """The header at the start of ``data``, checked to belong to ``database_id`` and ``object_id`` where given.

    Raises `CorruptionError` for short, damaged or foreign bytes, `InvalidError` for a format newer than this
    release. ``data`` may be longer than the header; the body is not looked at."""
    header = peek_header(data, object_name=object_name)
    check_identity(
        header.database_id, header.object_id, object_name=object_name, offset=16, expected=(database_id, object_id)
    )
    return header


def check_identity(
    database_id: UUID,
    object_id: bytes,
    *,
    object_name: str,
    offset: int,
    expected: tuple[UUID | None, bytes | None],
) -> None:
    """Raise `CorruptionError` unless the ids found at ``offset`` are the ``expected`` ones (``None``: any)."""
    if expected[0] is not None and database_id != expected[0]:
        raise CorruptionError(
            f"belongs to database {database_id}, not {expected[0]}", object_name=object_name, offset=offset
        )
    if expected[1] is not None and object_id != expected[1]:
        raise CorruptionError(
            f"is object {object_id.hex()}, not {expected[1].hex()}", object_name=object_name, offset=offset + 16
        )


def check_body(header: ObjectHeader, data: Buffer, *, object_name: str) -> memoryview:
    """The body of the whole object ``data``, its length and checksum compared with ``header``."""
    body = memoryview(data)[HEADER_BYTES:]
    if len(body) != header.body_bytes:
        raise CorruptionError(
            f"the body has {len(body)} bytes, its header says {header.body_bytes}",
            object_name=object_name,
            offset=HEADER_BYTES,
        )
    if crc32c(body) != header.body_crc:
        raise CorruptionError("body checksum does not match", object_name=object_name, offset=HEADER_BYTES)
    return body
