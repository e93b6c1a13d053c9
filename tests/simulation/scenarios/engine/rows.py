"""Rows as plain tuples, read straight from an object's bytes, and what they amount to: a second, simpler reader.

Every object of a database is immutable, so what was decoded once is remembered by the object's etag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.codec.header import ObjectKind, peek_header
from slate_async.storage.format.block import decode_block
from slate_async.storage.format.log_segment import decode_segment
from slate_async.storage.format.sst import read_footer, read_meta
from slate_async.types import PUT
from tests.simulation.history import History, Kind, View

CONTENDED = b"k"
MARKER = b"m"
EXPIRING = b"t"


class RowTuple(NamedTuple):
    """One row as stored."""

    key: bytes
    seq: int
    kind: int
    value: bytes
    expire_ms: int
    create_ms: int


def rows_of(columns: Columns) -> list[RowTuple]:
    """As tuples."""
    count = len(columns)
    expire = [NO_EXPIRY] * count if columns.expire_ms is None else columns.expire_ms.tolist()
    stored = (columns.keys.to_pylist(), columns.seqs.tolist(), columns.kinds.tolist(), columns.values.to_pylist())
    return [RowTuple(*row) for row in zip(*stored, expire, columns.create_ms.tolist(), strict=True)]


def columns_of(rows: Iterable[RowTuple]) -> Columns:
    """Sorted by key, newest first."""
    ordered = sorted(rows, key=lambda row: (row.key, -row.seq))
    return Columns(
        pa.array([row.key for row in ordered], pa.binary()),
        pa.array([row.value for row in ordered], pa.binary()),
        np.array([row.seq for row in ordered], np.uint64),
        np.array([row.kind for row in ordered], np.uint8),
        np.array([row.expire_ms for row in ordered], np.int64),
        np.array([row.create_ms for row in ordered], np.int64),
    )


def newest(rows: Iterable[RowTuple]) -> dict[bytes, RowTuple]:
    """The newest row of each key."""
    found: dict[bytes, RowTuple] = {}
    for row in rows:
        if row.key not in found or found[row.key].seq < row.seq:
            found[row.key] = row
    return found


class RowCache:
    """Decodes each object once in a world. What a process knows it still has to fetch."""

    def __init__(self) -> None:
        self._decoded: dict[tuple[str, str], list[RowTuple]] = {}

    def decode(self, key: str, etag: str, data: bytes, database_id: UUID) -> list[RowTuple]:
        """All rows of the log segment, SST or fence ``data``."""
        rows = self._decoded.get((key, etag))
        if rows is None:
            rows = self._decoded[key, etag] = _decode(key, data, database_id)
        return rows


def _decode(key: str, data: bytes, database_id: UUID) -> list[RowTuple]:
    header = peek_header(data, object_name=key)
    if header.kind is ObjectKind.FENCE:
        return []
    if header.kind is ObjectKind.LOG_SEGMENT:
        return rows_of(decode_segment(data, object_name=key, database_id=database_id)[1])
    footer = read_footer(data, size=len(data), object_name=key, database_id=database_id, object_id=header.object_id)
    index = read_meta(data, footer, object_name=key).index
    rows: list[RowTuple] = []
    for at, size, crc in zip(index.offsets, index.stored_bytes, index.crcs, strict=True):
        rows += rows_of(decode_block(data[at : at + size], object_name=key, offset=at, expected_crc=crc))
    return rows


def record_view(
    history: History,
    observer: str,
    kind: Kind,
    rows: Iterable[tuple[bytes, bytes, int]],
    epoch: int | None = None,
    began: float = 0.0,
) -> View:
    """Note what a reader saw: (key, value, sequence number) of every live row."""
    writes: list[tuple[int, int]] = []
    values: dict[bytes, bytes] = {}
    for key, value, seq in rows:
        if key.startswith(MARKER):
            writes.append((int(key[1:]), seq))
        elif key.startswith(CONTENDED) or (kind is Kind.FINAL and key.startswith(EXPIRING)):
            values[key] = value
    return history.view(observer, kind, writes, values, epoch, began)


def live(rows: Iterable[RowTuple]) -> list[tuple[bytes, bytes, int]]:
    """What `record_view` takes, of the newest rows of all keys; nothing has expired."""
    return [(row.key, row.value, row.seq) for row in newest(rows).values() if row.kind == PUT]
