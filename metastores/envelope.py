"""The envelope around every value a metastore stores.

Purpose: a nonce in every write (an S3 ETag is the MD5 of the bytes, so equal bytes would give an equal tag and
a compare-and-set could pass over a change and back), the identity of the object, and a checksum of it all.

Layout, little-endian::

     0  6  magic "SLMETA"
     6  1  format (1)
     7  1  kind
     8  4  CRC32C of bytes 0-7 and of all from byte 12 on
    12  2  length of the name, n
    14  2  number of links, k
    16  8  version
    24 16  token
    40  8  length of the payload, p
    48  n  name: the key the envelope is stored under
        24k  links: version (8) and token (16) of earlier writes, newest first
        p  payload

Invariant: `unseal` returns exactly what `seal` was given or raises `MetaStoreCorruptionError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from metastores.errors import MetaStoreCorruptionError
from metastores.protocol import VersionRef

MAGIC = b"SLMETA"
FORMAT = 1
_HEAD = struct.Struct("<6sBBIHHQ16sQ")
_LINK = struct.Struct("<Q16s")
_CRC_AT = 8
_CRC_END = 12


class Kind(IntEnum):
    """What an envelope holds."""

    CELL = 1
    MANIFEST = 2
    BODY = 3
    HEAD = 4
    BOUNDARY = 5


@dataclass(frozen=True, slots=True)
class Sealed:
    """An envelope's content. ``links`` name earlier writes, newest first."""

    kind: Kind
    name: str
    ref: VersionRef
    payload: bytes
    links: tuple[VersionRef, ...] = ()


def seal(content: Sealed) -> bytes:
    """The bytes to store."""
    name = content.name.encode()
    head = _HEAD.pack(
        MAGIC,
        FORMAT,
        content.kind,
        0,
        len(name),
        len(content.links),
        content.ref.version,
        bytes.fromhex(content.ref.token),
        len(content.payload),
    )
    links = b"".join(_LINK.pack(link.version, bytes.fromhex(link.token)) for link in content.links)
    rest = b"".join((head[_CRC_END:], name, links, content.payload))
    checksum = crc32c(rest, crc32c(head[:_CRC_AT]))
    return b"".join((head[:_CRC_AT], checksum.to_bytes(4, "little"), rest))


def unseal(data: bytes, *, kind: Kind, name: str) -> Sealed:
    """What was sealed as ``kind`` under ``name``. Raises `MetaStoreCorruptionError` for anything else."""
    if len(data) < _HEAD.size:
        raise MetaStoreCorruptionError(f"only {len(data)} bytes, too short for an envelope", object_name=name)
    magic, form, found_kind, checksum, name_size, link_count, version, token, payload_size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise MetaStoreCorruptionError("not a metastore's object (wrong magic)", object_name=name)
    if form != FORMAT:
        raise MetaStoreCorruptionError(f"format {form} is not known to this release", object_name=name)
    view = memoryview(data)
    if crc32c(view[_CRC_END:], crc32c(view[:_CRC_AT])) != checksum:
        raise MetaStoreCorruptionError("checksum does not match", object_name=name)
    links_at = _HEAD.size + name_size
    payload_at = links_at + link_count * _LINK.size
    if payload_at + payload_size != len(data):
        raise MetaStoreCorruptionError("lengths do not add up", object_name=name)
    if found_kind != kind or data[_HEAD.size : links_at] != name.encode():
        raise MetaStoreCorruptionError("holds another object than the one asked for", object_name=name)
    links = tuple(VersionRef(number, mark.hex()) for number, mark in _LINK.iter_unpack(view[links_at:payload_at]))
    return Sealed(kind, name, VersionRef(version, token.hex()), data[payload_at:], links)
