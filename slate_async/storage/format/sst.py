"""An SST: sorted rows in blocks, with what finds them.

Layout (``docs/format/sst.md``)::

    header 80 | blocks | filter | index | stats | section directory | footer 104

Everything but the blocks is at the end, so one tail read opens the file. The directory gives each section's
place and checksum; the footer gives the directory's, and the identity of the object once more, because the tail
is often all that is read of it.

Ordering rule: rows are sorted by key ascending, then sequence number descending; both strictly.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from slate_async.codec.checksum import crc32c
from slate_async.codec.header import FORMAT_VERSION, ObjectHeader, check_identity, refuse_newer
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format.filter import Filter, decode_filter, filter_bytes
from slate_async.storage.format.index import BLOCK_ENTRY_BYTES, Index, decode_index
from slate_async.storage.format.stats import SstStats, decode_stats
from slate_async.types import Buffer

FOOTER_MAGIC = b"SLATESST"
FOOTER_BYTES = 104
SECTION_FILTER = 1
SECTION_INDEX = 2
SECTION_STATS = 3
MUST_UNDERSTAND = 1
"""Section flag: a reader that does not know the section's id must refuse the file; else it skips the section."""

_FOOTER = struct.Struct("<16s16sQQQQQIIHHII")
_FOOTER_TAIL = struct.Struct("<I8s")
_SECTION = struct.Struct("<IIQQII")
_USUAL_BLOCK_BYTES = 16 << 10
_USUAL_FILTER_BITS = 10
_USUAL_REST_BYTES = 4 << 10
_OBJECT_BYTES = 3000
"""Of the objects of an `SstMeta`, roughly."""
_KNOWN_SECTIONS = (SECTION_FILTER, SECTION_INDEX, SECTION_STATS)


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the section directory."""

    id: int
    flags: int
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class SstFooter:
    """The decoded footer.

    size: bytes of the whole object
    meta_offset: where the blocks end and the sections begin; reading from here to the end opens the file
    directory_offset, directory_bytes, directory_crc: the section directory
    """

    database_id: UUID
    object_id: bytes
    writer_epoch: int
    manifest_version: int
    size: int
    meta_offset: int
    directory_offset: int
    directory_bytes: int
    directory_crc: int


@dataclass(frozen=True, slots=True)
class EncodedSst:
    """A finished SST: ``buffers`` joined are the object, of ``size`` bytes; the first is its header."""

    buffers: list[bytes]
    size: int
    stats: SstStats
    header: ObjectHeader


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SstMeta:
    """All of an SST but its blocks. ``filter`` is ``None`` if it has none this release can use."""

    footer: SstFooter
    index: Index
    filter: Filter | None
    stats: SstStats

    @property
    def nbytes(self) -> int:
        """About what it occupies in memory."""
        return self.index.nbytes + (0 if self.filter is None else len(self.filter.bits)) + _OBJECT_BYTES


def encode_footer(footer: SstFooter) -> bytes:
    """The fixed bytes at the end of an SST."""
    raw = _FOOTER.pack(
        footer.database_id.bytes,
        footer.object_id,
        footer.writer_epoch,
        footer.manifest_version,
        footer.size,
        footer.meta_offset,
        footer.directory_offset,
        footer.directory_bytes,
        footer.directory_crc,
        FORMAT_VERSION,
        0,
        0,
        0,
    )
    return raw + _FOOTER_TAIL.pack(crc32c(raw), FOOTER_MAGIC)


def encode_directory(sections: list[Section]) -> bytes:
    """The section directory."""
    return b"".join(_SECTION.pack(s.id, s.flags, s.offset, s.length, s.crc, 0) for s in sections)


def likely_meta_bytes(size: int, rows: int, key_bytes: int) -> int:
    """About how many of an SST's ``size`` bytes lie behind its blocks, rather too many than too few: with the usual
    filter, and blocks of the usual size that compression halved. ``key_bytes``: the length of a key of it."""
    index = (1 + size // _USUAL_BLOCK_BYTES) * (BLOCK_ENTRY_BYTES + key_bytes)
    return min(size, filter_bytes(max(1, rows), _USUAL_FILTER_BITS) + index + _USUAL_REST_BYTES)


def read_footer(
    tail: Buffer, *, size: int, object_name: str, database_id: UUID | None = None, object_id: bytes | None = None
) -> SstFooter:
    """The footer at the end of ``tail``, the last bytes of an object of ``size`` bytes, checked to be of that very
    object. Raises `CorruptionError`; `InvalidError` for a format newer than this release."""
    offset = size - FOOTER_BYTES
    if len(tail) < FOOTER_BYTES or offset < 0:
        raise CorruptionError(f"{len(tail)} bytes are too few for an SST", object_name=object_name)
    raw = bytes(memoryview(tail)[-FOOTER_BYTES:])
    checksum, magic = _FOOTER_TAIL.unpack_from(raw, _FOOTER.size)
    if magic != FOOTER_MAGIC:
        raise CorruptionError(f"not an SST: it ends with {magic!r}", object_name=object_name, offset=size - 8)
    if checksum != crc32c(raw[: _FOOTER.size]):
        raise CorruptionError("footer checksum does not match", object_name=object_name, offset=offset)
    database, found_id, epoch, manifest, whole, meta, directory, directory_bytes, crc, version, _, flags, _ = (
        _FOOTER.unpack_from(raw)
    )
    refuse_newer(version, flags, object_name=object_name)
    footer = SstFooter(UUID(bytes=database), found_id, epoch, manifest, whole, meta, directory, directory_bytes, crc)
    check_identity(
        footer.database_id, found_id, object_name=object_name, offset=offset, expected=(database_id, object_id)
    )
    if whole != size:
        raise CorruptionError(f"has {size} bytes, its footer says {whole}", object_name=object_name, offset=offset)
    if not meta <= directory or directory + directory_bytes != offset or directory_bytes % _SECTION.size:
        raise CorruptionError("footer offsets are wrong", object_name=object_name, offset=offset)
    return footer


def read_meta(tail: Buffer, footer: SstFooter, *, object_name: str) -> SstMeta:
    """Index, filter and statistics from ``tail``, the object's last bytes from `SstFooter.meta_offset` or before.

    Nothing of ``tail`` is kept. Raises `CorruptionError`; `InvalidError` for a section only a newer release can
    understand."""
    start = footer.size - len(tail)
    if start > footer.meta_offset:
        raise CorruptionError("the tail read is too short", object_name=object_name, offset=start)
    view = memoryview(tail)
    at = footer.directory_offset
    directory = view[at - start : at - start + footer.directory_bytes]
    if crc32c(directory) != footer.directory_crc:
        raise CorruptionError("section directory checksum does not match", object_name=object_name, offset=at)
    sections: dict[int, tuple[int, memoryview]] = {}
    for fields in _SECTION.iter_unpack(directory):
        section = Section(*fields[:5])
        if section.id in _KNOWN_SECTIONS:
            sections[section.id] = (section.offset, _section_bytes(view, start, section, footer, object_name))
        elif section.flags & MUST_UNDERSTAND:
            raise InvalidError(f"{object_name} has section {section.id}, which this release does not know; upgrade")
    for wanted in (SECTION_INDEX, SECTION_STATS):
        if wanted not in sections:
            raise CorruptionError(f"section {wanted} is missing", object_name=object_name, offset=at)
    offset, data = sections[SECTION_INDEX]
    index = decode_index(data, data_end=footer.meta_offset, object_name=object_name, offset=offset)
    offset, data = sections[SECTION_STATS]
    stats = decode_stats(data, index.first_key, index.last_key, object_name=object_name, offset=offset)
    if stats.rows != sum(index.rows):
        raise CorruptionError("index and statistics differ in rows", object_name=object_name, offset=offset)
    offset, data = sections.get(SECTION_FILTER, (0, memoryview(b"")))
    return SstMeta(footer, index, decode_filter(data, object_name=object_name, offset=offset), stats)


def _section_bytes(view: memoryview, start: int, section: Section, footer: SstFooter, object_name: str) -> memoryview:
    if not footer.meta_offset <= section.offset <= section.offset + section.length <= footer.directory_offset:
        raise CorruptionError(
            f"section {section.id} lies outside the file", object_name=object_name, offset=footer.directory_offset
        )
    data = view[section.offset - start : section.offset - start + section.length]
    if crc32c(data) != section.crc:
        raise CorruptionError(
            f"section {section.id} checksum does not match", object_name=object_name, offset=section.offset
        )
    return data
