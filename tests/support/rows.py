"""Rows as tuples, columns made of them, and small objects to break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY, Columns
from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.format.sst_builder import SstBuilder

DATABASE = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER_DATABASE = UUID("ffffffff-4455-6677-8899-aabbccddeeff")
OBJECT = bytes(range(16))
OTHER_OBJECT = bytes(range(1, 17))


class R(NamedTuple):
    """One row in full."""

    key: bytes
    value: bytes = b""
    seq: int = 1
    kind: int = 0
    expire_ms: int = NO_EXPIRY
    create_ms: int = 1000


def columns_of(rows: Sequence[R], *, with_expire: bool | None = None) -> Columns:
    """``rows`` as columns; the expire column is there if a row expires, unless ``with_expire`` says otherwise."""
    if with_expire is None:
        with_expire = any(row.expire_ms != NO_EXPIRY for row in rows)
    return Columns(
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        np.array([row.seq for row in rows], np.uint64),
        np.array([row.kind for row in rows], np.uint8),
        np.array([row.expire_ms for row in rows], np.int64) if with_expire else None,
        np.array([row.create_ms for row in rows], np.int64),
    )


def rows_of(columns: Columns) -> list[R]:
    """The rows of ``columns``."""
    expires = [NO_EXPIRY] * len(columns) if columns.expire_ms is None else columns.expire_ms.tolist()
    lists = (columns.keys.to_pylist(), columns.values.to_pylist(), columns.seqs.tolist(), columns.kinds.tolist())
    return [R(*fields) for fields in zip(*lists, expires, columns.create_ms.tolist(), strict=True)]


def sst_of(rows: Sequence[R], **settings: object) -> EncodedSst:
    """An SST of sorted ``rows``."""
    wanted: dict[str, object] = {
        "database_id": DATABASE,
        "object_id": OBJECT,
        "writer_epoch": 7,
        "manifest_version": 42,
        "block_bytes": 200,
        "filter_bits_per_key": 10,
        **settings,
    }
    builder = SstBuilder(**wanted)  # type: ignore[arg-type]
    builder.add(columns_of(rows))
    return builder.finish()


def sorted_rows(rows: Sequence[R]) -> list[R]:
    """``rows`` in the order of an SST, one row for each (key, seq)."""
    distinct = {(row.key, -row.seq): row for row in rows}
    return [distinct[name] for name in sorted(distinct)]


def sample_rows() -> list[R]:
    """A little of everything, sorted: versions, tombstones, expiry, binary keys, empty values."""
    return [
        R(b"\x00", b"nul", 3, create_ms=5),
        R(b"\x00\x00", b"", 4),
        R(b"a", b"new", 30, expire_ms=99_000),
        R(b"a", b"", 20, 1),
        R(b"a", b"old", 10),
        R(b"b" * 40, b"v" * 300, 11, create_ms=-7),
        R("schlüssel".encode(), "größe".encode(), 12),
        R(b"\xff\xff", b"\x00\xff" * 3, 2**63 - 2, 2),
    ]


keys = st.binary(min_size=1, max_size=12) | st.sampled_from([b"\x00", b"\xff", b"\x00\xff", b"\xff" * 9, "ü€".encode()])
rows = st.builds(
    R,
    keys,
    st.binary(max_size=40) | st.just(b"x" * 700),
    st.integers(0, 60) | st.integers(2**63 - 900, 2**63 - 500),
    st.sampled_from([0, 0, 1, 2]),
    st.just(NO_EXPIRY) | st.integers(-5, 2**62),
    st.just(1000) | st.integers(-(2**62), 2**62),
)
row_lists = st.lists(rows, min_size=1, max_size=30)
