"""A block: some rows as columns, compressed and checksummed on their own.

Stored (``docs/format/block.md``)::

    payload = raw, or raw compressed
    | transformer id u8 | codec id u8 | zero u16 | raw bytes u32 | zero u32 | crc32c u32

The raw bytes are drawn in `slate_async.storage.format.raw_block`.

Invariant: `decode_block` returns only rows whose checksum held and whose every offset, kind and length was checked,
so nothing downstream reads outside its buffers.
"""

from __future__ import annotations

import struct

from slate_async.codec.checksum import crc32c
from slate_async.codec.columns import Columns
from slate_async.codec.compression import Compression, DecompressionError, decompress
from slate_async.errors import CorruptionError
from slate_async.storage.format.raw_block import RAW_HEADER_BYTES, BadBlockError, RawBlock
from slate_async.types import Buffer

TRAILER_BYTES = 16
MAX_RAW_BYTES = 2**31 - 1
ROW_OVERHEAD_BYTES = 8 + 8
"""Raw bytes of a row besides key and value in the common case: two offsets and a sequence number."""

TRAILER_HEAD = struct.Struct("<BBHII")
_TRAILER = struct.Struct("<BBHIII")
_CRC = struct.Struct("<I")


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
    return open_block(stored, object_name=object_name, offset=offset, expected_crc=expected_crc).columns()


def open_block(stored: Buffer, *, object_name: str, offset: int = 0, expected_crc: int | None = None) -> RawBlock:
    """As `decode_block`, the rows where they lie: in ``stored`` if it is not compressed."""
    raw = open_stored(memoryview(stored), object_name, offset, expected_crc)
    try:
        return RawBlock(raw if isinstance(raw, bytes) else stored, len(raw))
    except BadBlockError as error:
        raise CorruptionError(str(error), object_name=object_name, offset=offset) from error


def open_stored(stored: memoryview, object_name: str, offset: int, expected_crc: int | None) -> Buffer:
    """The raw bytes of a stored block, its checksum and length compared. See `decode_block`."""
    if len(stored) < TRAILER_BYTES:
        raise CorruptionError(f"{len(stored)} bytes are too few for a block", object_name=object_name, offset=offset)
    transformer, codec_id, zero, raw_bytes, zero2, crc = _TRAILER.unpack_from(stored, len(stored) - TRAILER_BYTES)
    checksum = crc32c(stored[:-4])
    if checksum != crc or (expected_crc is not None and checksum != expected_crc):
        raise CorruptionError("block checksum does not match", object_name=object_name, offset=offset)
    payload = stored[:-TRAILER_BYTES]
    if transformer or zero or zero2 or codec_id > Compression.LZ4 or not RAW_HEADER_BYTES <= raw_bytes <= MAX_RAW_BYTES:
        raise CorruptionError(
            f"block of transformer {transformer}, codec {codec_id}, {raw_bytes} raw bytes is not readable here",
            object_name=object_name,
            offset=offset,
        )
    if codec_id != Compression.NONE:
        try:
            return decompress(payload, Compression(codec_id), raw_bytes)
        except DecompressionError as error:
            raise CorruptionError(
                f"block does not decompress: {error}", object_name=object_name, offset=offset
            ) from error
    if len(payload) != raw_bytes:
        raise CorruptionError("block length does not match", object_name=object_name, offset=offset)
    return payload
