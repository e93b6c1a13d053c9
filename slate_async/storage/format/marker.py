"""The marker of a place: an object that says whose place a folder of a store is.

Layout, little-endian (``docs/format/marker.md``)::

    magic 8 | format version u16 | reserved u16 | crc32c of the payload u32 | payload: a MessagePack map
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

import msgspec

from slate_async.codec.checksum import crc32c
from slate_async.errors import CorruptionError, InvalidError

MAGIC = b"SLATEMRK"
FORMAT_VERSION = 1
_HEAD = struct.Struct("<8sHHI")


@dataclass(frozen=True, slots=True)
class Marker:
    """database_id: whose place it is
    store_id: drawn anew each time a place is marked, and never used again
    """

    database_id: UUID
    store_id: UUID


def encode_marker(marker: Marker) -> bytes:
    """The object's bytes."""
    payload = msgspec.msgpack.encode({"database_id": marker.database_id.bytes, "store_id": marker.store_id.bytes})
    return _HEAD.pack(MAGIC, FORMAT_VERSION, 0, crc32c(payload)) + payload


def decode_marker(data: bytes, *, object_name: str) -> Marker:
    """The marker back. Raises `CorruptionError`, and `InvalidError` for a format this release does not know."""
    if len(data) < _HEAD.size:
        raise CorruptionError(f"{len(data)} bytes are too few for a marker", object_name=object_name)
    magic, version, reserved, crc = _HEAD.unpack_from(data)
    payload = data[_HEAD.size :]
    if magic != MAGIC or reserved != 0:
        raise CorruptionError("not a marker", object_name=object_name)
    if crc32c(payload) != crc:
        raise CorruptionError("the marker's checksum is wrong", object_name=object_name, offset=_HEAD.size)
    if version != FORMAT_VERSION:
        raise InvalidError(f"{object_name} has marker format {version}; this release reads {FORMAT_VERSION}")
    try:
        body = msgspec.msgpack.decode(payload)
        return Marker(UUID(bytes=body["database_id"]), UUID(bytes=body["store_id"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"the marker does not decode: {error}", object_name=object_name) from error
