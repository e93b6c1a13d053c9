"""Statistics of an SST: what the manifest and the planners want to know without reading blocks.

Layout (``docs/format/sst.md``): thirteen 64-bit little-endian integers, then whatever newer versions append.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import binary_buffers
from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.errors import CorruptionError
from slate_async.types import DELETE, Buffer

_STATS = struct.Struct("<QQQQQQqqQqqQQ")


@dataclass(frozen=True, slots=True)
class SstStats:
    """Counts are over all versions stored.

    key_bytes, value_bytes: before compression
    min_create_ms .. max_expire_ms: milliseconds since the epoch; expiry is ``None`` when no row expires
    expiring_rows: rows that have an expiry time
    blocks: number of blocks
    """

    rows: int
    tombstones: int
    key_bytes: int
    value_bytes: int
    min_seq: int
    max_seq: int
    min_create_ms: int
    max_create_ms: int
    expiring_rows: int
    min_expire_ms: int | None
    max_expire_ms: int | None
    blocks: int
    raw_block_bytes: int
    first_key: bytes
    last_key: bytes


def encode_stats(stats: SstStats) -> bytes:
    """The statistics as bytes; first and last key are left to the index."""
    return _STATS.pack(
        stats.rows,
        stats.tombstones,
        stats.key_bytes,
        stats.value_bytes,
        stats.min_seq,
        stats.max_seq,
        stats.min_create_ms,
        stats.max_create_ms,
        stats.expiring_rows,
        stats.min_expire_ms or 0,
        stats.max_expire_ms or 0,
        stats.blocks,
        stats.raw_block_bytes,
    )


def decode_stats(data: Buffer, first_key: bytes, last_key: bytes, *, object_name: str, offset: int = 0) -> SstStats:
    """The statistics in ``data`` (checksummed by its container). Raises `CorruptionError`."""
    if len(data) < _STATS.size:
        raise CorruptionError("the statistics are too short", object_name=object_name, offset=offset)
    rows, tombstones, key_bytes, value_bytes, min_seq, max_seq, *rest = _STATS.unpack_from(data)
    min_create, max_create, expiring, min_expire, max_expire, blocks, raw_block_bytes = rest
    return SstStats(
        rows,
        tombstones,
        key_bytes,
        value_bytes,
        min_seq,
        max_seq,
        min_create,
        max_create,
        expiring,
        min_expire if expiring else None,
        max_expire if expiring else None,
        blocks,
        raw_block_bytes,
        first_key,
        last_key,
    )


class StatsCollector:
    """Adds up statistics over the rows of an SST, batch by batch."""

    def __init__(self) -> None:
        self.rows = 0
        self._tombstones = 0
        self._key_bytes = 0
        self._value_bytes = 0
        self._seqs: tuple[int, int] | None = None
        self._creates: tuple[int, int] | None = None
        self._expires: tuple[int, int] | None = None
        self._expiring = 0

    def add(self, columns: Columns) -> None:
        """Count ``columns`` (1 row or more)."""
        self.rows += len(columns)
        self._tombstones += int(np.count_nonzero(columns.kinds == DELETE))
        self._key_bytes += _data_bytes(columns.keys)
        self._value_bytes += _data_bytes(columns.values)
        self._seqs = _widen(self._seqs, int(columns.seqs.min()), int(columns.seqs.max()))
        self._creates = _widen(self._creates, int(columns.create_ms.min()), int(columns.create_ms.max()))
        if columns.expire_ms is not None:
            expiring = columns.expire_ms[columns.expire_ms != NO_EXPIRY]
            if len(expiring):
                self._expiring += len(expiring)
                self._expires = _widen(self._expires, int(expiring.min()), int(expiring.max()))

    def finish(self, *, blocks: int, raw_block_bytes: int, first_key: bytes, last_key: bytes) -> SstStats:
        """The statistics of everything added."""
        seqs, creates = self._seqs or (0, 0), self._creates or (0, 0)
        expires = self._expires or (None, None)
        return SstStats(
            rows=self.rows,
            tombstones=self._tombstones,
            key_bytes=self._key_bytes,
            value_bytes=self._value_bytes,
            min_seq=seqs[0],
            max_seq=seqs[1],
            min_create_ms=creates[0],
            max_create_ms=creates[1],
            expiring_rows=self._expiring,
            min_expire_ms=expires[0],
            max_expire_ms=expires[1],
            blocks=blocks,
            raw_block_bytes=raw_block_bytes,
            first_key=first_key,
            last_key=last_key,
        )


def _data_bytes(column: pa.BinaryArray) -> int:
    offsets, _ = binary_buffers(column)
    return int(offsets[-1]) - int(offsets[0])


def _widen(known: tuple[int, int] | None, low: int, high: int) -> tuple[int, int]:
    return (low, high) if known is None else (min(known[0], low), max(known[1], high))
