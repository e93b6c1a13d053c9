"""The bytes of one object file.

::

    data                 as put; begins at byte 0, so the file can be read by anything
    metadata             UTF-8 JSON object, str -> str
    nonce                16 bytes, drawn for this very write; the etag in binary
    data_bytes           u64 little-endian
    metadata_bytes       u32
    crc32c               u32 of metadata + nonce + data_bytes + metadata_bytes
    magic                8 bytes, ``SLATEOB1``

Invariant: a file that stands under an object's name is complete and never changes; it is only replaced or
removed as a whole. So one open file is one version, and reading the end first, then any range, is consistent.
The data's own checksum is the business of what is stored. Ordering rule: a file is synced before it gets its name.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from slate_async.errors import CorruptionError
from slate_async.objectstore.keys import MAX_METADATA_BYTES
from slate_async.objectstore.local.modes import OWNER_ALONE, Modes
from slate_async.types import Buffer

MAGIC = b"SLATEOB1"
NONCE_BYTES = 16
_SIZES = struct.Struct("<QI")
_END = struct.Struct("<I8s")
TRAILER_BYTES = NONCE_BYTES + _SIZES.size + _END.size
PARTS_AT_ONCE = 256
"""In one write; systems take 1,024."""
GROUP_BYTES = 4 << 20
"""Copied by one call into a worker thread: a millisecond or two."""
_TAIL_BYTES = TRAILER_BYTES + 3 * MAX_METADATA_BYTES
"""What is read from the end at once; JSON of a legal metadata map always fits."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What the end of an object file says."""

    size: int
    etag: str
    last_modified_ms: int
    metadata: Mapping[str, str]


class WrittenFile:
    """An object file in the making, which must not exist before: `append` what `with_trailer` and `in_groups` give,
    then `sync` it. It is closed when it is dropped."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path, modes: Modes = OWNER_ALONE) -> None:
        """Raises `OSError`."""
        self._descriptor = -1
        self._descriptor = modes.create_file(path, os.O_WRONLY)

    def append(self, parts: Sequence[Buffer]) -> None:
        """Write ``parts`` where the last ones ended. Raises `OSError`."""
        _write_all(self._descriptor, parts)

    def sync(self) -> None:
        """Wait until the disk has it. Raises `OSError`."""
        os.fsync(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def with_trailer(parts: Sequence[Buffer], metadata: Mapping[str, str], token: str) -> list[Buffer]:
    """A whole object file of the data ``parts``. ``token`` is 32 hex digits, unique to this write: its etag."""
    described = json.dumps(dict(metadata), sort_keys=True, separators=(",", ":")).encode() if metadata else b""
    covered = described + bytes.fromhex(token) + _SIZES.pack(sum(map(len, parts)), len(described))
    return [*parts, covered + _END.pack(crc32c(covered), MAGIC)]


def in_groups(parts: Sequence[Buffer]) -> list[list[Buffer]]:
    """``parts``, cut so that no group, of those to be appended one after another, holds more than `GROUP_BYTES`."""
    groups: list[list[Buffer]] = [[]]
    room = GROUP_BYTES
    for part in parts:
        if len(part) <= room:
            groups[-1].append(part)
            room -= len(part)
            continue
        view = memoryview(part)
        while view:
            if not room:
                groups.append([])
                room = GROUP_BYTES
            groups[-1].append(view[:room])
            view, room = view[room:], max(0, room - len(view))
    return groups


def _write_all(descriptor: int, parts: Sequence[Buffer]) -> None:
    for first in range(0, len(parts), PARTS_AT_ONCE):
        together = parts[first : first + PARTS_AT_ONCE]
        written = os.writev(descriptor, together)
        if written == sum(map(len, together)):
            continue
        left = [memoryview(part) for part in together]
        while left:
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if left:
                left[0] = left[0][written:]
                written = os.writev(descriptor, left)


def read_info(descriptor: int, key: str) -> FileInfo:
    """What an open object file is. Raises `CorruptionError` naming ``key``, or `OSError`."""
    status = os.fstat(descriptor)
    start = max(0, status.st_size - _TAIL_BYTES)
    tail = read_exactly(descriptor, start, status.st_size - start, key)
    if len(tail) < TRAILER_BYTES:
        raise CorruptionError(f"an object file of {status.st_size} bytes has no trailer", object_name=key)
    checksum, magic = _END.unpack_from(tail, len(tail) - _END.size)
    trailer_offset = status.st_size - TRAILER_BYTES
    if magic != MAGIC:
        raise CorruptionError("the object file's trailer has no magic", object_name=key, offset=trailer_offset)
    size, described_bytes = _SIZES.unpack_from(tail, len(tail) - _END.size - _SIZES.size)
    covered = tail[max(0, len(tail) - TRAILER_BYTES - described_bytes) : len(tail) - _END.size]
    if crc32c(covered) != checksum or size + described_bytes + TRAILER_BYTES != status.st_size:
        raise CorruptionError("the object file's trailer is damaged", object_name=key, offset=trailer_offset)
    described = covered[:described_bytes]
    nonce = covered[described_bytes : described_bytes + NONCE_BYTES]
    metadata = json.loads(described) if described else {}
    return FileInfo(size, nonce.hex(), status.st_mtime_ns // 1_000_000, metadata)


def read_exactly(descriptor: int, offset: int, length: int, key: str) -> bytes:
    """``length`` bytes at ``offset``. Raises `CorruptionError` if the file is shorter, or `OSError`."""
    first = os.pread(descriptor, length, offset)
    if len(first) == length:
        return first
    parts = [first]
    got = len(first)
    while got < length:
        part = os.pread(descriptor, length - got, offset + got)
        if not part:
            raise CorruptionError("the object file is shorter than it says", object_name=key, offset=offset + got)
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def sync_folder(folder: Path) -> None:
    """Make names made or removed in ``folder`` survive a loss of power. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
