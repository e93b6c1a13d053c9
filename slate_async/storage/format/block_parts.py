"""The columns of many raw blocks, cut where they lie and checked together: a few numpy calls for all of them.

What `storage.format.block.decode_block` checks of one block is checked here of all rows at once, so a failure does
not say which block it is; the caller then decodes the blocks one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from slate_async.codec.columns import NO_EXPIRY
from slate_async.storage.format.raw_block import (
    HAS_CREATE,
    HAS_EXPIRE,
    HAS_KINDS,
    KNOWN_FLAGS,
    RAW_HEADER,
    RAW_HEADER_BYTES,
    SEQ_DENSE,
    ZERO7,
)
from slate_async.types import MAX_KEY_BYTES, MAX_SEQ, MERGE, Buffer

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A stored block, where it lies in its object, and the checksum that the object's index has for it."""

    data: memoryview
    offset: int
    crc: int


class UnsoundError(Exception):
    """Some block among them is not as it should be."""


class Column(Generic[_Number]):
    """One column of all blocks: its bytes in each block that has it, and what its rows are in one that has not."""

    __slots__ = ("kind", "parts", "uniform")

    def __init__(self, kind: np.dtype[_Number]) -> None:
        self.kind = kind
        self.uniform: list[int] = []
        self.parts: list[Buffer | None] = []

    def add(self, part: Buffer | None, uniform: int) -> None:
        """Of the next block: its bytes, or what all its rows are."""
        self.parts.append(part)
        self.uniform.append(uniform)

    @property
    def absent(self) -> bool:
        """Whether no block has it."""
        return not any(part is not None for part in self.parts)

    def of(self, at: int, rows: int) -> npt.NDArray[_Number]:
        """The column of one block, which has ``rows``; a view if the block has it."""
        part = self.parts[at]
        return np.full(rows, self.uniform[at], self.kind) if part is None else np.frombuffer(part, self.kind)

    def joined(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[_Number]:
        """The column; ``rows`` of each block."""
        if self.absent:
            return np.repeat(np.array(self.uniform, self.kind), rows)
        return np.concatenate([self.of(at, count) for at, count in enumerate(rows.tolist())])


class BlockParts:
    """The columns of all blocks, as they lie in them. `add` each, then `check`; nothing is copied before."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.key_offsets: list[Buffer] = []
        self.value_offsets: list[Buffer] = []
        self.keys: list[Buffer] = []
        self.values: list[Buffer] = []
        self.seqs = Column(np.dtype("<u8"))
        self.expire = Column(np.dtype("<i8"))
        self.create = Column(np.dtype("<i8"))
        self.kinds = Column(np.dtype("u1"))

    def add(self, raw: memoryview) -> None:
        """Cut one raw block. Raises `UnsoundError`."""
        rows, flags, base_seq, base_create, key_bytes, value_bytes, kind, zero = RAW_HEADER.unpack_from(raw)
        if not rows or flags & ~KNOWN_FLAGS or zero != ZERO7 or base_seq > MAX_SEQ - rows:
            raise UnsoundError
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
            raise UnsoundError
        self.rows.append(rows)

    def check(self) -> CheckedParts:
        """Check what `add` did not. Raises `UnsoundError`."""
        rows = np.array(self.rows, np.int64)
        key_lengths = _lengths(self.key_offsets, rows, self.keys)
        value_lengths = _lengths(self.value_offsets, rows, self.values)
        seqs = self.seqs.joined(rows)
        dense = np.array([part is None for part in self.seqs.parts])
        if dense.any():
            first = np.cumsum(rows) - rows
            seqs = seqs + np.where(np.repeat(dense, rows), np.arange(len(seqs)) - np.repeat(first, rows), 0).astype(
                "<u8"
            )
        kinds = self.kinds.joined(rows)
        if not (
            key_lengths.min() >= 1
            and key_lengths.max() <= MAX_KEY_BYTES
            and seqs.max() <= MAX_SEQ
            and kinds.max() <= MERGE
        ):
            raise UnsoundError
        return CheckedParts(rows, key_lengths, value_lengths, seqs, kinds)


@dataclass(frozen=True, slots=True, eq=False)
class CheckedParts:
    """What the check of blocks found, of all their rows one after another.

    rows: of each block; key_lengths, value_lengths: bytes of each row's; seqs, kinds: as in `Columns`
    """

    rows: npt.NDArray[np.int64]
    key_lengths: npt.NDArray[np.uint32]
    value_lengths: npt.NDArray[np.uint32]
    seqs: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]


def _lengths(parts: list[Buffer], rows: npt.NDArray[np.int64], elements: list[Buffer]) -> npt.NDArray[np.uint32]:
    """The lengths between the offsets of all blocks, each of which must rise from 0 to the bytes of its elements."""
    stored = np.frombuffer(b"".join(parts), "<u4")
    ends = np.cumsum(rows + 1)
    later, sooner = stored[1:], stored[:-1]
    inside = np.ones(len(later), np.bool_)
    inside[ends[:-1] - 1] = False
    totals = np.fromiter(map(len, elements), np.int64, len(elements))
    if stored[ends - rows - 1].any() or (stored[ends - 1] != totals).any() or (later < sooner)[inside].any():
        raise UnsoundError
    lengths: npt.NDArray[np.uint32] = (later - sooner)[inside]
    return lengths


def offsets_of(lengths: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """The offsets of elements that lie one after another."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
