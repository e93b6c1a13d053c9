"""A block: some rows as columns, compressed and checksummed on their own.

Stored (``docs/format/block.md``)::

    payload = raw, or raw compressed
    | transformer id u8 | codec id u8 | zero u16 | raw bytes u32 | zero u32 | crc32c u32

Raw, little-endian, every column 8-byte aligned, so Arrow and numpy wrap it without a copy::

    rows u32 | flags u32 | base seq u64 | base create ms i64 | key bytes u32 | value bytes u32 | kind u8 | zero 7
    | key offsets u32[n+1] | value offsets u32[n+1] | seqs u64[n]? | expire ms i64[n]? | create ms i64[n]?
    | kinds u8[n]? | key bytes | value bytes

Invariant: `decode_block` returns only rows whose checksum held and whose every offset, kind and length was checked,
so nothing downstream reads outside its buffers.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.errors import CorruptionError, InvalidError
from slate_async.format.checksum import crc32c
from slate_async.format.columns import Columns
from slate_async.format.compression import Compression, DecompressionError, decompress
from slate_async.objectstore.protocol import Buffer
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, MERGE

TRAILER_BYTES = 16
RAW_HEADER_BYTES = 40
MAX_RAW_BYTES = 2**31 - 1
ROW_OVERHEAD_BYTES = 8 + 8
"""Raw bytes of a row besides key and value in the common case: two offsets and a sequence number."""

SEQ_DENSE = 1
HAS_EXPIRE = 2
HAS_CREATE = 4
HAS_KINDS = 8
KNOWN_FLAGS = SEQ_DENSE | HAS_EXPIRE | HAS_CREATE | HAS_KINDS

RAW_HEADER = struct.Struct("<IIQqIIB7s")
TRAILER_HEAD = struct.Struct("<BBHII")
_CRC = struct.Struct("<I")
ZERO7 = bytes(7)
_Number = TypeVar("_Number", bound=np.generic)


def binary_buffers(column: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Offsets (int32[n+1], not starting at 0 in a slice) and the bytes they point into, without a copy.

    Raises `InvalidError` for another type or a column with nulls."""
    if column.type != pa.binary() or column.null_count:
        raise InvalidError(f"a key or value column must be binary without nulls, not {column.type}")
    _, offsets, data = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(1, np.int32), memoryview(b"")
    cut = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return cut, memoryview(b"" if data is None else data)


def stored_crc(stored: Buffer) -> int:
    """The checksum a stored block carries in its last 4 bytes."""
    return int(_CRC.unpack_from(stored, len(stored) - 4)[0])


def stored_raw_bytes(stored: Buffer) -> int:
    """The raw length a stored block claims; not verified, good for deciding where to decode it."""
    return int(TRAILER_HEAD.unpack_from(stored, len(stored) - TRAILER_BYTES)[3]) if len(stored) >= TRAILER_BYTES else 0


def stored_codec(stored: Buffer) -> str:
    """The name of the compression a stored block claims; not verified."""
    codec_id = TRAILER_HEAD.unpack_from(stored, len(stored) - TRAILER_BYTES)[1]
    return Compression(codec_id).name.lower() if codec_id <= Compression.LZ4 else f"unknown ({codec_id})"


def decode_block(stored: Buffer, *, object_name: str, offset: int = 0, expected_crc: int | None = None) -> Columns:
    """The rows of a stored block found at byte ``offset`` of ``object_name``.

    The columns are views of ``stored`` when it is not compressed (so ``stored`` must not change), else of the
    decompressed bytes. With ``expected_crc`` (from an index) a sound block of another object is refused too.
    Raises `CorruptionError`; `InvalidError` if it is lz4 and lz4 is not installed."""
    raw = open_stored(memoryview(stored), object_name, offset, expected_crc)
    try:
        return _decode_raw(raw)
    except _BadBlock as error:
        raise CorruptionError(str(error), object_name=object_name, offset=offset) from error


class _BadBlock(Exception):
    """The raw bytes of a block do not fit together; becomes `CorruptionError` at the edge."""


def open_stored(stored: memoryview, object_name: str, offset: int, expected_crc: int | None) -> Buffer:
    """The raw bytes of a stored block, its checksum and length compared. See `decode_block`."""
    if len(stored) < TRAILER_BYTES:
        raise CorruptionError(f"{len(stored)} bytes are too few for a block", object_name=object_name, offset=offset)
    body = stored[:-4]
    checksum = crc32c(body)
    if checksum != stored_crc(stored) or (expected_crc is not None and checksum != expected_crc):
        raise CorruptionError("block checksum does not match", object_name=object_name, offset=offset)
    transformer, codec_id, zero, raw_bytes, zero2 = TRAILER_HEAD.unpack_from(stored, len(stored) - TRAILER_BYTES)
    payload = stored[:-TRAILER_BYTES]
    if transformer or zero or zero2 or codec_id > Compression.LZ4 or not RAW_HEADER_BYTES <= raw_bytes <= MAX_RAW_BYTES:
        raise CorruptionError(
            f"block of transformer {transformer}, codec {codec_id}, {raw_bytes} raw bytes is not readable here",
            object_name=object_name,
            offset=offset,
        )
    codec = Compression(codec_id)
    if codec is not Compression.NONE:
        try:
            return decompress(payload, codec, raw_bytes)
        except DecompressionError as error:
            raise CorruptionError(
                f"block does not decompress: {error}", object_name=object_name, offset=offset
            ) from error
    if len(payload) != raw_bytes:
        raise CorruptionError("block length does not match", object_name=object_name, offset=offset)
    return payload


class _Cursor:
    """Hands out consecutive 8-byte aligned columns of the raw bytes."""

    def __init__(self, raw: Buffer) -> None:
        self._raw = raw
        self.at = RAW_HEADER_BYTES

    def take(self, length: int) -> int:
        start = self.at
        self.at = start + length + (-length % 8)
        if self.at > len(self._raw):
            raise _BadBlock("block columns do not fit its length")
        return start


def _offsets(raw: Buffer, cursor: _Cursor, rows: int, total: int) -> npt.NDArray[np.uint32]:
    """The next column as offsets, checked to rise from 0 to ``total``."""
    offsets = np.frombuffer(raw, "<u4", rows + 1, cursor.take(4 * (rows + 1)))
    if int(offsets[0]) != 0 or int(offsets[-1]) != total or bool((offsets[1:] < offsets[:-1]).any()):
        raise _BadBlock("block offsets are out of order or out of bounds")
    return offsets


def _filled(rows: int, value: int, kind: type[_Number]) -> npt.NDArray[_Number]:
    array = np.full(rows, value, kind)
    array.flags.writeable = False
    return array


def _seqs(raw: Buffer, cursor: _Cursor, rows: int, flags: int, base: int) -> npt.NDArray[np.uint64]:
    if base > MAX_SEQ - rows:
        raise _BadBlock("a sequence number is out of range")
    if flags & SEQ_DENSE:
        dense = np.arange(base, base + rows, dtype=np.uint64)
        dense.flags.writeable = False
        return dense
    seqs = np.frombuffer(raw, "<u8", rows, cursor.take(8 * rows))
    if int(seqs.max()) > MAX_SEQ:
        raise _BadBlock("a sequence number is out of range")
    return seqs


def _kinds(raw: Buffer, cursor: _Cursor, rows: int, flags: int, uniform: int) -> npt.NDArray[np.uint8]:
    kinds = np.frombuffer(raw, np.uint8, rows, cursor.take(rows)) if flags & HAS_KINDS else None
    highest = uniform if kinds is None else int(kinds.max())
    if highest > MERGE:
        raise _BadBlock(f"row kind {highest} is not known to this release")
    return _filled(rows, uniform, np.uint8) if kinds is None else kinds


def _decode_raw(raw: Buffer) -> Columns:
    rows, flags, base_seq, base_create, key_bytes, value_bytes, kind, zero = RAW_HEADER.unpack_from(raw)
    if not rows or flags & ~KNOWN_FLAGS or zero != ZERO7:
        raise _BadBlock(f"a block of {rows} rows with flags {flags:#x} is not readable here")
    cursor = _Cursor(raw)
    key_at = cursor.at
    key_lengths = np.diff(_offsets(raw, cursor, rows, key_bytes))
    if int(key_lengths.min()) < 1 or int(key_lengths.max()) > MAX_KEY_BYTES:
        raise _BadBlock("a key has a length no key has")
    value_at = cursor.at
    _offsets(raw, cursor, rows, value_bytes)
    seqs = _seqs(raw, cursor, rows, flags, base_seq)
    expire = np.frombuffer(raw, "<i8", rows, cursor.take(8 * rows)) if flags & HAS_EXPIRE else None
    if flags & HAS_CREATE:
        create = np.frombuffer(raw, "<i8", rows, cursor.take(8 * rows))
    else:
        create = _filled(rows, base_create, np.int64)
    kinds = _kinds(raw, cursor, rows, flags, kind)
    key_data_at, value_data_at = cursor.take(key_bytes), cursor.take(value_bytes)
    if cursor.at != len(raw):
        raise _BadBlock("block columns do not fill its length")
    buffer, width = pa.py_buffer(raw), 4 * (rows + 1)
    keys = [None, buffer.slice(key_at, width), buffer.slice(key_data_at, key_bytes)]
    values = [None, buffer.slice(value_at, width), buffer.slice(value_data_at, value_bytes)]
    binary = pa.binary()
    return Columns(
        pa.Array.from_buffers(binary, rows, keys, 0),
        pa.Array.from_buffers(binary, rows, values, 0),
        seqs,
        kinds,
        expire,
        create,
    )
