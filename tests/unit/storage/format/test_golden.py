"""The bytes of release 0.1.0's formats, pinned.

``SLATE_REGEN_GOLDEN=1`` writes the files anew; do that only for a change of format that ``docs/format`` and the
changelog tell of. Compressed bytes are pinned for reading only: another release of a compressor may write others.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest

from slate_async.codec.header import decode_header
from slate_async.storage.format import filter as filter_module
from slate_async.storage.format.block import decode_block
from slate_async.storage.format.block_encoding import encode_block
from slate_async.storage.format.filter import build_filter, decode_filter, key_hash, key_hashes
from slate_async.storage.format.heartbeat import Beat, Sent, decode_beat, encode_beat
from slate_async.storage.format.log_segment import decode_segment, encode_fence, encode_segment, log_object_id
from slate_async.storage.format.marker import Marker, decode_marker, encode_marker
from slate_async.types import DELETE, NO_END
from tests.support.rows import DATABASE, OBJECT, R, columns_of, rows_of, sample_rows, sst_of
from tests.unit.storage.format.test_sst import read_all

GOLDEN = Path(__file__).parents[3] / "golden"
COMPRESSIBLE = [R(b"key-%03d" % i, b"value" * 20, 100 + i, i % 2) for i in range(50)]

RANGES = [R(b"a", b"1", 7), R(b"a", b"c", 8, DELETE), R(b"p", NO_END, 9, DELETE)]
"""A put, and two rows that delete a range of keys: the second one has no end."""


def segment(rows: list[R], compression: str) -> bytes:
    return b"".join(
        encode_segment(
            columns_of(rows), database_id=DATABASE, log_id=9, epoch=3, manifest_version=5, compression=compression
        )
    )


def sst(rows: list[R], compression: str) -> bytes:
    return b"".join(sst_of(rows, compression=compression, object_id=OBJECT).buffers)


def filter_of_exact_size() -> bytes:
    """As large filters are written, of a few keys."""
    with mock.patch.object(filter_module, "EXACT_BITS", 0):
        return build_filter(key_hashes(columns_of(sample_rows()).keys), 10)


MARKER = Marker(DATABASE, UUID(int=99))
BEATS = {
    "writer-alive.bin": Beat(DATABASE, 7, 41),
    "writer-alive-counts.bin": Beat(DATABASE, 7, 41, Sent(90_000, 300, 91, 2)),
}
EXACT = {
    "marker.bin": lambda: encode_marker(MARKER),
    "fence.bin": lambda: encode_fence(database_id=DATABASE, log_id=9, epoch=4, manifest_version=6),
    "block-none.bin": lambda: encode_block(columns_of(sample_rows())),
    "writer-alive.bin": lambda: encode_beat(BEATS["writer-alive.bin"]),
    "writer-alive-counts.bin": lambda: encode_beat(BEATS["writer-alive-counts.bin"]),
    "filter.bin": lambda: build_filter(key_hashes(columns_of(sample_rows()).keys), 10),
    "filter-exact.bin": filter_of_exact_size,
    "segment-none.bin": lambda: segment(sample_rows(), "none"),
    "segment-range-deletes.bin": lambda: segment(RANGES, "none"),
    "sst-none.bin": lambda: sst(sample_rows(), "none"),
}
READABLE = {
    "block-zstd.bin": lambda: encode_block(columns_of(COMPRESSIBLE), "zstd"),
    "block-lz4.bin": lambda: encode_block(columns_of(COMPRESSIBLE), "lz4"),
    "segment-zstd.bin": lambda: segment(COMPRESSIBLE, "zstd"),
    "sst-zstd.bin": lambda: sst(COMPRESSIBLE, "zstd"),
    "sst-lz4.bin": lambda: sst(COMPRESSIBLE, "lz4"),
}


def golden(name: str) -> bytes:
    """The pinned bytes, written first when asked to."""
    if os.environ.get("SLATE_REGEN_GOLDEN") == "1":
        (GOLDEN / name).write_bytes({**EXACT, **READABLE}[name]())
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", EXACT)
def test_the_same_input_gives_the_same_bytes(name: str) -> None:
    assert EXACT[name]() == golden(name)


@pytest.mark.parametrize("name", [*EXACT, *READABLE])
def test_pinned_bytes_are_read(name: str) -> None:
    data = golden(name)
    rows = sample_rows() if name in EXACT else COMPRESSIBLE
    rows = RANGES if name == "segment-range-deletes.bin" else rows
    if name.startswith("block"):
        assert rows_of(decode_block(data, object_name=name)) == rows
    elif name.startswith("segment"):
        header, columns = decode_segment(data, object_name=name, database_id=DATABASE, log_id=9)
        assert (rows_of(columns), header.writer_epoch) == (rows, 3)
    elif name.startswith("sst"):
        assert read_all(data, name) == rows
    elif name in BEATS:
        assert decode_beat(data, object_name=name) == BEATS[name]
    elif name.startswith("filter"):
        decoded = decode_filter(data, object_name=name)
        assert decoded is not None
        assert all(decoded.may_contain(key_hash(row.key)) for row in rows)
    elif name == "marker.bin":
        assert decode_marker(data, object_name=name) == MARKER
    else:
        header = decode_header(data, object_name=name, database_id=DATABASE, object_id=log_object_id(9))
        assert (header.kind.name, header.writer_epoch) == ("FENCE", 4)


def test_every_pinned_file_is_tested() -> None:
    assert {path.name for path in GOLDEN.glob("*.bin") if path.name.split("-")[0] != "manifest"} == {*EXACT, *READABLE}
