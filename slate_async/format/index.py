"""The index of an SST: where each block is and which keys it may hold.

Layout (``docs/format/index.md``), little-endian, columns 8-byte aligned::

    blocks u32 | key bytes u32 | offsets u64[n] | stored bytes u32[n] | rows u32[n] | crc32c u32[n]
    | key offsets u32[n+2] | continues u8[n] | first key of each block, then the last key of the file

``continues`` is 1 when a block's first key is also the last key of the block before: versions of one key may
cross blocks. The block checksums make a sound block of another object as wrong as a damaged one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import Buffer

BLOCK_ENTRY_BYTES = 8 + 4 + 4 + 4 + 4 + 1
"""What a block takes in an index besides its first key."""

_HEAD = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """One block as the builder knows it."""

    offset: int
    stored_bytes: int
    rows: int
    crc: int
    first_key: bytes
    continues: bool


@dataclass(frozen=True, slots=True)
class Index:
    """A decoded index of ``n`` blocks, n >= 1.

    offsets:      byte offset of each block in the object
    stored_bytes: bytes of each block
    rows, crcs:   rows and checksum of each block
    continues:    whether the block starts with the last key of the one before
    first_keys:   smallest key of each block
    last_key:     largest key of the file
    """

    offsets: list[int]
    stored_bytes: list[int]
    rows: list[int]
    crcs: list[int]
    continues: bytes
    first_keys: list[bytes]
    last_key: bytes

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def first_key(self) -> bytes:
        """Smallest key of the file."""
        return self.first_keys[0]

    def find(self, key: bytes) -> int | None:
        """The first block that may hold a version of ``key``; ``None`` if none does."""
        if key > self.last_key:
            return None
        block = bisect_right(self.first_keys, key) - 1
        while block > 0 and self.continues[block] and self.first_keys[block] == key:
            block -= 1
        return block if block >= 0 else None

    def whole_keys(self, block: int) -> tuple[bytes, bytes]:
        """The range ``[start, end)`` of keys that can be in ``block`` and in no other."""
        start, following = self.first_keys[block], block + 1
        if self.continues[block]:
            start += b"\0"
        return start, self.first_keys[following] if following < len(self) else self.last_key + b"\0"

    def continues_with(self, block: int, key: bytes) -> bool:
        """Whether versions of ``key`` go on from the block before ``block`` into ``block``."""
        return block < len(self.offsets) and bool(self.continues[block]) and self.first_keys[block] == key

    def range(self, start: bytes | None, end: bytes | None) -> range:
        """The blocks that may hold keys in ``[start, end)``; ``None`` is unbounded."""
        first = 0
        if start is not None:
            found = self.find(start)
            if found is not None:
                first = found
            elif start > self.last_key:
                return range(0)
        stop = len(self.offsets) if end is None else bisect_left(self.first_keys, end)
        return range(first, max(first, stop))


def encode_index(entries: Sequence[BlockEntry], last_key: bytes) -> bytes:
    """The index of ``entries`` (1 or more, in file order)."""
    keys = [entry.first_key for entry in entries] + [last_key]
    offsets = np.zeros(len(keys) + 1, "<u4")
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    columns = (
        np.array([e.offset for e in entries], "<u8"),
        np.array([e.stored_bytes for e in entries], "<u4"),
        np.array([e.rows for e in entries], "<u4"),
        np.array([e.crc for e in entries], "<u4"),
        offsets,
        np.array([e.continues for e in entries], np.uint8),
    )
    parts = [_HEAD.pack(len(entries), int(offsets[-1]))]
    for raw in (*(column.tobytes() for column in columns), b"".join(keys)):
        parts += (raw, bytes(-len(raw) % 8))
    return b"".join(parts)


def decode_index(data: Buffer, *, data_end: int, object_name: str, offset: int = 0) -> Index:
    """The index in ``data`` (checksummed by its container). Blocks must lie one after another, before byte
    ``data_end`` of the object. Raises `CorruptionError`."""
    try:
        return _decode(memoryview(data), data_end)
    except _BadIndex as error:
        raise CorruptionError(f"index: {error}", object_name=object_name, offset=offset) from error


class _BadIndex(Exception):
    """The bytes of an index do not fit together; becomes `CorruptionError` at the edge."""


def _decode(data: memoryview, data_end: int) -> Index:
    if len(data) < _HEAD.size:
        raise _BadIndex("too short")
    blocks, key_bytes = _HEAD.unpack_from(data)
    at = _HEAD.size

    def take(kind: str, count: int) -> npt.NDArray[np.generic]:
        nonlocal at
        start, width = at, np.dtype(kind).itemsize * count
        at += width + (-width % 8)
        if at > len(data):
            raise _BadIndex("columns do not fit its length")
        return np.frombuffer(data, kind, count, start)

    offsets, stored, rows, crcs = (take(kind, blocks) for kind in ("<u8", "<u4", "<u4", "<u4"))
    key_offsets = take("<u4", blocks + 2)
    continues = take("u1", blocks)
    keys = take("u1", key_bytes).tobytes()
    if not blocks or at != len(data):
        raise _BadIndex("columns do not fill its length")
    cuts: list[int] = key_offsets.tolist()
    if cuts[0] != 0 or cuts[-1] != key_bytes or any(a >= b for a, b in pairwise(cuts)):
        raise _BadIndex("key offsets are out of order")
    starts, lengths = offsets.tolist(), stored.tolist()
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    if ends[-1] > data_end or any(end > start for end, start in zip(ends, starts[1:], strict=False)):
        raise _BadIndex("blocks overlap or lie outside the file")
    pieces = [keys[a:b] for a, b in pairwise(cuts)]
    if any(a > b for a, b in pairwise(pieces)):
        raise _BadIndex("keys are out of order")
    if not all(rows.tolist()) or max(continues.tolist()) > 1:
        raise _BadIndex("a block without rows")
    return Index(starts, lengths, rows.tolist(), crcs.tolist(), continues.tobytes(), pieces[:-1], pieces[-1])
