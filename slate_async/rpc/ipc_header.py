"""What the header of an Arrow IPC message says, read before Arrow decodes it.

Arrow trusts lengths in compressed bodies and numbers of rows, so a stranger's few bytes could ask for any amount of
memory. Here both are read first, with every offset checked. The layout is that of FlatBuffers, of Arrow's
`Message.fbs`: a table begins with the distance back to its vtable, which holds the offset of each field, or 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from slate_async.errors import InvalidError

SCHEMA: Final = 1
DICTIONARY: Final = 2
RECORDS: Final = 3
BUFFER_BYTES: Final = 16
MAX_BUFFERS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class IpcHeader:
    """kind: `SCHEMA`, `DICTIONARY`, `RECORDS` or another number. ``body_bytes``: as the header has it.
    ``decoded_bytes``: of the body in memory, decompressed. ``rows``: 0 for a schema."""

    kind: int
    body_bytes: int
    decoded_bytes: int
    rows: int


def ipc_header(header: bytes | memoryview, body: bytes | memoryview) -> IpcHeader:
    """Raises `InvalidError` for anything but a message of Arrow IPC."""
    try:
        return _read(bytes(header), body)
    except (struct.error, IndexError, ValueError) as error:
        raise InvalidError("the header of a message is no Arrow IPC message") from error


def body_bytes(header: bytes) -> int:
    """How long the body is, by a header that Arrow made."""
    return _Table(header, *struct.unpack_from("<I", header)).number(3, "<q")


def _read(header: bytes, body: bytes | memoryview) -> IpcHeader:
    message = _Table(header, *struct.unpack_from("<I", header))
    kind, length = message.number(1, "<B"), message.number(3, "<q")
    if kind not in (DICTIONARY, RECORDS):
        return IpcHeader(kind, length, length, 0)
    found = message.table(2)
    batch = found.table(1) if found is not None and kind == DICTIONARY else found
    if batch is None:
        raise ValueError("no batch")
    rows = batch.number(0, "<q")
    if rows < 0 or length < 0:
        raise ValueError("a negative length")
    compressed = batch.table(3) is not None
    return IpcHeader(kind, length, _decompressed(batch, body) if compressed else length, rows)


def _decompressed(batch: _Table, body: bytes | memoryview) -> int:
    """A compressed buffer begins with the bytes that come out, or -1 if it is not compressed."""
    total = 0
    first, count = batch.vector(2)
    if count > MAX_BUFFERS:
        raise ValueError("too many buffers")
    for at in range(first, first + count * BUFFER_BYTES, BUFFER_BYTES):
        offset, length = struct.unpack_from("<qq", batch.buffer, at)
        if length == 0:
            continue
        if offset < 0 or length < 8 or offset + length > len(body):
            raise ValueError("a buffer outside of the body")
        (out,) = struct.unpack_from("<q", body, offset)
        if out < -1:
            raise ValueError("a negative length")
        total += length - 8 if out == -1 else out
    return total


class _Table:
    """A FlatBuffers table at ``position``."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self.buffer = buffer
        self._position = position
        (back,) = struct.unpack_from("<i", buffer, position)
        self._vtable = position - back
        if self._vtable < 0:
            raise ValueError("a vtable before the buffer")
        (self._size,) = struct.unpack_from("<H", buffer, self._vtable)

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = struct.unpack_from("<H", self.buffer, self._vtable + entry)
        return self._position + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """0 if it is left out."""
        at = self._at(field)
        if at is None:
            return 0
        value: int = struct.unpack_from(form, self.buffer, at)[0]
        return value

    def table(self, field: int) -> _Table | None:
        """``None`` if it is left out."""
        at = self._at(field)
        if at is None:
            return None
        return _Table(self.buffer, at + struct.unpack_from("<I", self.buffer, at)[0])

    def vector(self, field: int) -> tuple[int, int]:
        """Where it begins, and its length."""
        at = self._at(field)
        if at is None:
            return 0, 0
        start = at + struct.unpack_from("<I", self.buffer, at)[0]
        return start + 4, struct.unpack_from("<I", self.buffer, start)[0]
