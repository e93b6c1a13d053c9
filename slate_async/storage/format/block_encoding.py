"""Rows to stored blocks, many blocks of one `Columns` at a time. The layout is drawn in `storage.format.block`.

What holds for every block is looked at once for all rows, so a block itself costs a dozen slices and one copy.
Invariant: the raw bytes of a block depend on its own rows alone, and whether they are compressed on the blocks that its
`Packer` had before it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import binary_buffers
from slate_async.codec.checksum import crc32c, crc32c_of_parts
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.codec.compression import Compression, Packer
from slate_async.errors import InvalidError
from slate_async.storage.format.block import MAX_RAW_BYTES, TRAILER_HEAD
from slate_async.storage.format.raw_block import (
    HAS_CREATE,
    HAS_EXPIRE,
    HAS_KINDS,
    RAW_HEADER,
    SEQ_DENSE,
    ZERO7,
)
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, MERGE, Buffer

_CRC = struct.Struct("<I")
_PADS = tuple(bytes(n) for n in range(8))
Flags = list[bool]


class _Heap(NamedTuple):
    """A binary column: offsets, which need not begin at 0, and the bytes they cut."""

    offsets: npt.NDArray[np.uint32]
    data: memoryview

    def cut(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint32], memoryview]:
        """The offsets (from 0) and the bytes of some rows."""
        offsets = self.offsets[start : stop + 1]
        first = offsets[0]
        return (offsets - first if first else offsets), self.data[first : offsets[-1]]


def encode_block(columns: Columns, compression: str | Compression = Compression.NONE) -> bytes:
    """``columns`` (1 row or more, in any order) as a stored block.

    ``compression`` is a wish: bytes that do not shrink are stored as they are. Raises `InvalidError` for rows no
    block can hold: empty or over-long keys, reserved kinds, 2 GiB or more in all."""
    return encode_blocks(columns, [len(columns)], compression)[0]


def encode_blocks(
    columns: Columns, stops: Sequence[int], compression: str | Compression | Packer = Compression.NONE
) -> list[bytes]:
    """``columns`` as stored blocks that end before the rows ``stops``, which rise, the last one to ``len(columns)``.

    As `encode_block` of each part, but that a `Packer`, which may have blocks behind it, says which are compressed."""
    packer = compression if isinstance(compression, Packer) else Packer(compression)
    keys, values = _heap(columns.keys), _heap(columns.values)
    _check_rows(columns, keys)
    ends = np.asarray(stops, np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    seqs, create, kinds = columns.seqs, columns.create_ms, columns.kinds
    expire = np.empty(0, np.int64) if columns.expire_ms is None else columns.expire_ms
    optional = (
        (np.ascontiguousarray(seqs, "<u8"), sparse := _breaks(seqs[1:] - seqs[:-1] != 1, starts, ends)),
        (np.ascontiguousarray(expire, "<i8"), expires := _any(expire != NO_EXPIRY, starts)),
        (np.ascontiguousarray(create, "<i8"), creates := _breaks(create[1:] != create[:-1], starts, ends)),
        (np.ascontiguousarray(kinds, np.uint8), mixed := _breaks(kinds[1:] != kinds[:-1], starts, ends)),
    )
    blocks: list[bytes] = []
    for at, (start, stop) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        key_offsets, key_data = keys.cut(start, stop)
        value_offsets, value_data = values.cut(start, stop)
        header = RAW_HEADER.pack(
            stop - start,
            SEQ_DENSE * (not sparse[at]) | HAS_EXPIRE * expires[at] | HAS_CREATE * creates[at] | HAS_KINDS * mixed[at],
            0 if sparse[at] else int(seqs[start]),
            0 if creates[at] else int(create[start]),
            len(key_data),
            len(value_data),
            0 if mixed[at] else int(kinds[start]),
            ZERO7,
        )
        fixed = [column[start:stop] for column, present in optional if present[at]]
        blocks.append(_stored([header, key_offsets, value_offsets, *fixed, key_data, value_data], packer))
    return blocks


def _stored(columns: Sequence[Buffer | npt.NDArray[Any]], packer: Packer) -> bytes:
    """One raw block, of which these are header and columns, compressed and checksummed."""
    parts: list[Buffer] = []
    raw_bytes = 0
    for column in columns:
        part = column.data.cast("B") if isinstance(column, np.ndarray) else column
        length = len(part)
        parts.append(part)
        raw_bytes += length
        if length % 8:
            parts.append(_PADS[-length % 8])
            raw_bytes += -length % 8
    if raw_bytes > MAX_RAW_BYTES:
        raise InvalidError(f"{raw_bytes} bytes of rows do not fit one block")
    codec, parts = packer.pack(parts)
    trailer = TRAILER_HEAD.pack(0, codec, 0, raw_bytes, 0)
    checksum = crc32c(trailer, crc32c_of_parts(parts))
    return b"".join((*parts, trailer, _CRC.pack(checksum)))


def _heap(column: pa.BinaryArray) -> _Heap:
    offsets, data = binary_buffers(column)
    return _Heap(offsets.view(np.uint32), data)


def _check_rows(columns: Columns, keys: _Heap) -> None:
    if not len(columns):
        raise InvalidError("a block needs at least one row")
    lengths = np.diff(keys.offsets)
    if int(lengths.min()) < 1 or int(lengths.max()) > MAX_KEY_BYTES:
        raise InvalidError(f"keys have 1 to {MAX_KEY_BYTES} bytes")
    if int(columns.kinds.max()) > MERGE:
        raise InvalidError(f"row kind {int(columns.kinds.max())} is reserved")
    if int(columns.seqs.max()) > MAX_SEQ:
        raise InvalidError("a sequence number is out of range")


def _breaks(breaks: npt.NDArray[np.bool_], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Flags:
    """For each block, whether there is a break between two of its rows; ``breaks[i]``: there is one after row ``i``."""
    if len(starts) == 1:
        return [bool(breaks.any())]
    before = np.zeros(len(breaks) + 1, np.int64)
    np.cumsum(breaks, out=before[1:])
    found: Flags = (before[ends - 1] != before[starts]).tolist()
    return found


def _any(marks: npt.NDArray[np.bool_], starts: npt.NDArray[np.int64]) -> Flags:
    """For each block, whether a row of it is marked; none is when there are no ``marks``."""
    if not len(marks):
        return [False] * len(starts)
    found: Flags = [bool(marks.any())] if len(starts) == 1 else np.logical_or.reduceat(marks, starts).tolist()
    return found
