"""The index of an SST: where each block is and which keys it may hold.

Layout (``docs/format/sst-index.md``), little-endian, columns 8-byte aligned::

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
from typing import Literal

import numpy as np
import numpy.typing as npt

from slate_async.errors import CorruptionError
from slate_async.types import Buffer

BLOCK_ENTRY_BYTES = 8 + 4 + 4 + 4 + 4 + 1
"""What a block takes in an index besides its first key."""

_KEY_OBJECT_BYTES = 33 + 15 + 8 + 4
"""Of a key as a Python object: its header, half of what its length is rounded up by, its place in the list; and its
offset, which stays in the bytes that were read."""

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

    Numbers stay in the bytes that were read: as Python objects they would take several times as much memory.
    """

    offsets: memoryview[int]
    stored_bytes: memoryview[int]
    rows: memoryview[int]
    crcs: memoryview[int]
    continues: bytes
    first_keys: list[bytes]
    last_key: bytes

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """About what it occupies in memory."""
        keys = len(self.first_keys[0]) + len(self.last_key)  # as long as the others, or nearly
        return len(self) * (BLOCK_ENTRY_BYTES + _KEY_OBJECT_BYTES + keys // 2)

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

    def extent(self, blocks: Sequence[int]) -> tuple[int, int]:
        """Where neighbouring ``blocks`` begin, and how many bytes they have together."""
        first, last = self.offsets[blocks[0]], blocks[-1]
        return first, self.offsets[last] + self.stored_bytes[last] - first

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


def _decode(view: memoryview, data_end: int) -> Index:
    data = bytes(view)  # the numbers stay there, and nothing else of what was read
    if len(data) < _HEAD.size:
        raise _BadIndex("too short")
    blocks, key_bytes = _HEAD.unpack_from(data)
    at = _HEAD.size

    def take(kind: Literal["Q", "I", "B"], count: int) -> memoryview[int]:
        nonlocal at
        start, width = at, struct.calcsize(kind) * count
        at += width + (-width % 8)
        if at > len(data):
            raise _BadIndex("columns do not fit its length")
        return memoryview(data)[start : start + width].cast(kind)

    offsets = take("Q", blocks)
    stored, rows, crcs = (take("I", blocks) for _ in range(3))
    key_offsets = take("I", blocks + 2)
    continues = bytes(take("B", blocks))
    keys = bytes(take("B", key_bytes))
    if not blocks or at != len(data):
        raise _BadIndex("columns do not fill its length")
    cuts: list[int] = key_offsets.tolist()
    if cuts[0] != 0 or cuts[-1] != key_bytes or not (np.diff(np.array(cuts, np.int64)) > 0).all():
        raise _BadIndex("key offsets are out of order")
    _check_places(np.frombuffer(offsets, np.uint64), np.frombuffer(stored, np.uint32), data_end)
    pieces = [keys[a:b] for a, b in pairwise(cuts)]
    if pieces != sorted(pieces):
        raise _BadIndex("keys are out of order")
    if not np.frombuffer(rows, np.uint32).all() or max(continues) > 1:
        raise _BadIndex("a block without rows")
    return Index(offsets, stored, rows, crcs, continues, pieces[:-1], pieces[-1])


def _check_places(offsets: npt.NDArray[np.uint64], stored: npt.NDArray[np.uint32], data_end: int) -> None:
    """Raise unless blocks lie one after another, before ``data_end``."""
    starts = offsets.astype(np.int64)
    ends = starts + stored
    if starts.min() < 0 or ends[-1] > data_end or (ends[:-1] > starts[1:]).any():
        raise _BadIndex("blocks overlap or lie outside the file")
