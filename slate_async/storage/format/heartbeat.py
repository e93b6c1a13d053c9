"""A writer's beat: what ``writer/alive`` holds. Overwritten by the writer as long as it lives, read by its observers.

Layout (``docs/format/writer-alive.md``)::

    magic 8 | format version u16 | n u16 | database id 16 | epoch u64 | beat u64 | n bytes | crc32c of all before u32

The n bytes tell what the writer's client sent: counted ms u64 | puts u64 | gets u64 | lists u64. There are none if it
did not say, and more of a later release, which are passed over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

import crc32c

from slate_async.errors import CorruptionError, InvalidError

MAGIC = b"SLATEALV"
FORMAT_VERSION = 1
_BODY = struct.Struct("<8sHH16sQQ")
_SENT = struct.Struct("<QQQQ")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Sent:
    """Requests that a client sent in ``counted_ms``: PUTs, GETs and HEADs, LISTs."""

    counted_ms: int
    puts: int
    gets: int
    lists: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The ``number``-th beat, from 1, of the writer of ``epoch``. ``sent``: by its client, ``None`` if not known."""

    database_id: UUID
    epoch: int
    number: int
    sent: Sent | None = None


def encode_beat(beat: Beat) -> bytes:
    """The object's bytes."""
    sent = beat.sent
    more = b"" if sent is None else _SENT.pack(sent.counted_ms, sent.puts, sent.gets, sent.lists)
    body = _BODY.pack(MAGIC, FORMAT_VERSION, len(more), beat.database_id.bytes, beat.epoch, beat.number) + more
    return body + _CHECKSUM.pack(crc32c.crc32c(body))


def decode_beat(data: bytes, *, object_name: str) -> Beat:
    """The beat. Raises `CorruptionError`, or `InvalidError` for a format this release does not know."""
    if len(data) < _BODY.size or data[:8] != MAGIC:
        raise CorruptionError("not a writer's beat", object_name=object_name)
    _, version, more, database_id, epoch, number = _BODY.unpack_from(data)
    if version != FORMAT_VERSION:
        raise InvalidError(f"{object_name} has format {version}; this release reads {FORMAT_VERSION}")
    end = _BODY.size + more
    if len(data) != end + _CHECKSUM.size or 0 < more < _SENT.size:
        raise CorruptionError(f"a beat of {len(data)} bytes says it has {more} of counts", object_name=object_name)
    if _CHECKSUM.unpack_from(data, end)[0] != crc32c.crc32c(data[:end]):
        raise CorruptionError("the beat's checksum is wrong", object_name=object_name, offset=end)
    sent = Sent(*_SENT.unpack_from(data, _BODY.size)) if more else None
    return Beat(UUID(bytes=database_id), epoch, number, sent)
