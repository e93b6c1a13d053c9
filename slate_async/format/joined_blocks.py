"""Stored blocks to rows, many neighbouring blocks as one `Columns`: for whoever reads everything.

What `slate_async.format.block.decode_block` checks of one block is checked here of all rows at once. Where a check
fails the blocks are decoded one by one, which names the one that is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.errors import InternalError
from slate_async.format.block import (
    HAS_CREATE,
    HAS_EXPIRE,
    HAS_KINDS,
    KNOWN_FLAGS,
    RAW_HEADER,
    RAW_HEADER_BYTES,
    SEQ_DENSE,
    ZERO7,
    decode_block,
    open_stored,
)
from slate_async.format.columns import NO_EXPIRY, Columns
from slate_async.objectstore.protocol import Buffer
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, MERGE

MAX_JOINED_BYTES = 64 << 20
"""Raw bytes that are joined at most; a larger block stays alone."""
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A stored block, where it lies in its object, and the checksum that the object's index has for it."""

    data: memoryview
    offset: int
    crc: int


def decode_blocks(blocks: Sequence[StoredBlock], *, object_name: str) -> Iterator[Columns]:
    """The rows of ``blocks`` (1 or more) in their order, joined as far as `MAX_JOINED_BYTES` allow.

    Rows of a block that stays alone are views of it if it is not compressed. Raises as `decode_block`."""
    near: list[StoredBlock] = []
    raws: list[memoryview] = []
    nbytes = 0
    for block in blocks:
        raw = memoryview(open_stored(block.data, object_name, block.offset, block.crc))
        if near and nbytes + len(raw) > MAX_JOINED_BYTES:
            yield _decode(near, raws, object_name)
            near, raws, nbytes = [], [], 0
        near.append(block)
        raws.append(raw)
        nbytes += len(raw)
    yield _decode(near, raws, object_name)


class _UnsoundError(Exception):
    """Some block among them is not as it should be."""


def _decode(blocks: list[StoredBlock], raws: list[memoryview], object_name: str) -> Columns:
    if len(blocks) > 1:
        try:
            return _join(raws)
        except _UnsoundError:
            pass
    for block in blocks:
        rows = decode_block(block.data, object_name=object_name, offset=block.offset, expected_crc=block.crc)
    if len(blocks) > 1:
        raise InternalError(f"{object_name}: blocks that are sound one by one are not together")
    return rows


class _Column(Generic[_Number]):
    """One column of all blocks: its bytes in each block that has it, and what its rows are in one that has not."""

    __slots__ = ("_kind", "_uniform", "parts")

    def __init__(self, kind: np.dtype[_Number]) -> None:
        self._kind = kind
        self._uniform: list[int] = []
        self.parts: list[Buffer | None] = []

    def add(self, part: Buffer | None, uniform: int) -> None:
        """Of the next block: its bytes, or what all its rows are."""
        self.parts.append(part)
        self._uniform.append(uniform)

    @property
    def absent(self) -> bool:
        """Whether no block has it."""
        return not any(part is not None for part in self.parts)

    def joined(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[_Number]:
        """The column; ``rows`` of each block."""
        if self.absent:
            return np.repeat(np.array(self._uniform, self._kind), rows)
        return np.concatenate(
            [
                np.full(count, uniform, self._kind) if part is None else np.frombuffer(part, self._kind)
                for part, uniform, count in zip(self.parts, self._uniform, rows.tolist(), strict=True)
            ]
        )


class _Parts:
    """The columns of all blocks, as they lie in them."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.key_bytes: list[int] = []
        self.value_bytes: list[int] = []
        self.key_offsets: list[Buffer] = []
        self.value_offsets: list[Buffer] = []
        self.keys: list[Buffer] = []
        self.values: list[Buffer] = []
        self.seqs = _Column(np.dtype("<u8"))
        self.expire = _Column(np.dtype("<i8"))
        self.create = _Column(np.dtype("<i8"))
        self.kinds = _Column(np.dtype("u1"))

    def add(self, raw: memoryview) -> None:
        """Cut one raw block."""
        rows, flags, base_seq, base_create, key_bytes, value_bytes, kind, zero = RAW_HEADER.unpack_from(raw)
        if not rows or flags & ~KNOWN_FLAGS or zero != ZERO7 or base_seq > MAX_SEQ - rows:
            raise _UnsoundError
        at, wide = RAW_HEADER_BYTES, 4 * (rows + 1)
        self.key_offsets.append(raw[at : at + wide])
        at += wide + (-wide % 8)
        self.value_offsets.append(raw[at : at + wide])
        at += wide + (-wide % 8)
        for column, present, uniform in (
            (self.seqs, not flags & SEQ_DENSE, base_seq),
            (self.expire, flags & HAS_EXPIRE, NO_EXPIRY),
            (self.create, flags & HAS_CREATE, base_create),
        ):
            column.add(raw[at : at + 8 * rows] if present else None, uniform)
            at += 8 * rows if present else 0
        self.kinds.add(raw[at : at + rows] if flags & HAS_KINDS else None, kind)
        at += rows + (-rows % 8) if flags & HAS_KINDS else 0
        self.keys.append(raw[at : at + key_bytes])
        at += key_bytes + (-key_bytes % 8)
        self.values.append(raw[at : at + value_bytes])
        if at + value_bytes + (-value_bytes % 8) != len(raw):
            raise _UnsoundError
        self.rows.append(rows)
        self.key_bytes.append(key_bytes)
        self.value_bytes.append(value_bytes)


def _join(raws: list[memoryview]) -> Columns:
    parts = _Parts()
    for raw in raws:
        parts.add(raw)
    rows = np.array(parts.rows, np.int64)
    key_offsets = _offsets(parts.key_offsets, rows, parts.key_bytes)
    lengths = np.diff(key_offsets)
    value_offsets = _offsets(parts.value_offsets, rows, parts.value_bytes)
    seqs = parts.seqs.joined(rows)
    dense = np.array([part is None for part in parts.seqs.parts])
    if dense.any():
        first = np.cumsum(rows) - rows
        seqs = seqs + np.where(np.repeat(dense, rows), np.arange(len(seqs)) - np.repeat(first, rows), 0).astype("<u8")
    kinds = parts.kinds.joined(rows)
    sound = lengths.min() >= 1 and lengths.max() <= MAX_KEY_BYTES and seqs.max() <= MAX_SEQ and kinds.max() <= MERGE
    if not sound:
        raise _UnsoundError
    return Columns(
        _binary(key_offsets, parts.keys),
        _binary(value_offsets, parts.values),
        seqs,
        kinds,
        None if parts.expire.absent else parts.expire.joined(rows),
        parts.create.joined(rows),
    )


def _offsets(parts: list[Buffer], rows: npt.NDArray[np.int64], totals: list[int]) -> npt.NDArray[np.int32]:
    """The offsets of all blocks, each from 0 to its total, as offsets of their bytes joined."""
    stored = np.frombuffer(b"".join(parts), "<u4")
    ends = np.cumsum(rows + 1)
    later, sooner = stored[1:], stored[:-1]
    inside = np.ones(len(later), np.bool_)
    inside[ends[:-1] - 1] = False
    if stored[ends - rows - 1].any() or (stored[ends - 1] != totals).any() or (later < sooner)[inside].any():
        raise _UnsoundError
    offsets = np.zeros(int(rows.sum()) + 1, np.int32)
    np.cumsum((later - sooner)[inside], out=offsets[1:])
    return offsets


def _binary(offsets: npt.NDArray[np.int32], parts: list[Buffer]) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers, 0)
