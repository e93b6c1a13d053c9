"""`slate_async.storage.format.log_segment`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, decode_header, peek_header
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format import log_segment
from slate_async.storage.format.log_segment import decode_segment, encode_fence, encode_segment, log_object_id
from tests.support.rows import (
    DATABASE,
    OTHER_DATABASE,
    R,
    columns_of,
    row_lists,
    rows_of,
    sample_rows,
    sst_of,
)


def encoded(rows: list[R], compression: str = "none") -> bytes:
    buffers = encode_segment(
        columns_of(rows), database_id=DATABASE, log_id=9, epoch=3, manifest_version=5, compression=compression
    )
    assert len(buffers[0]) == HEADER_BYTES
    return b"".join(buffers)


@settings(deadline=None, max_examples=100)
@given(row_lists, st.sampled_from(["none", "zstd", "lz4"]))
def test_round_trip_keeps_write_order(rows: list[R], compression: str) -> None:
    header, columns = decode_segment(encoded(rows, compression), object_name="o", database_id=DATABASE, log_id=9)
    assert rows_of(columns) == rows
    assert (header.writer_epoch, header.manifest_version, header.object_id) == (3, 5, log_object_id(9))


def test_many_rows_are_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [R(b"%04d" % (i * 7 % 1000), b"v" * (i % 90), 50 + i) for i in range(1000)]
    rows[500] = rows[500]._replace(value=b"x" * 9000)
    whole = encoded(rows)
    monkeypatch.setattr(log_segment, "SEGMENT_BLOCK_BYTES", 1000)
    cut = encoded(rows)
    assert len(cut) > len(whole) + 60 * 40
    assert rows_of(decode_segment(cut, object_name="o")[1]) == rows
    assert b"".join(encode_again(rows)) == cut


def encode_again(rows: list[R]) -> list[bytes]:
    """The same rows, out of the middle of wider columns."""
    wide = columns_of([R(b"before", b"b"), *rows, R(b"after")])
    return encode_segment(wide.slice(1, len(rows) + 1), database_id=DATABASE, log_id=9, epoch=3, manifest_version=5)


def test_a_row_larger_than_a_block_stands_alone() -> None:
    rows = [R(b"a", b"1"), R(b"b", b"x" * (9 << 20)), R(b"c", b"3")]
    assert rows_of(decode_segment(encoded(rows), object_name="o")[1]) == rows


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_flip_and_every_truncation_is_corruption(compression: str) -> None:
    data = encoded(sample_rows(), compression)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        for wrong in (bytes(damaged), data[:at], data[at + 1 :]):
            with pytest.raises(CorruptionError, match="the-name"):
                decode_segment(wrong, object_name="the-name", database_id=DATABASE, log_id=9)
    with pytest.raises(CorruptionError):
        decode_segment(data + bytes(8), object_name="o")


def test_other_objects_are_corruption() -> None:
    data = encoded(sample_rows())
    fence = encode_fence(database_id=DATABASE, log_id=9, epoch=4, manifest_version=6)
    sst = b"".join(sst_of(sample_rows(), object_id=log_object_id(9)).buffers)
    with pytest.raises(CorruptionError, match="database"):
        decode_segment(data, object_name="o", database_id=OTHER_DATABASE, log_id=9)
    with pytest.raises(CorruptionError, match="is object"):
        decode_segment(data, object_name="o", database_id=DATABASE, log_id=8)
    for other, name in ((fence, "FENCE"), (sst, "SST")):
        assert peek_header(other, object_name="o").kind.name == name
        with pytest.raises(CorruptionError, match=name):
            decode_segment(other, object_name="o", database_id=DATABASE, log_id=9)


def test_prefixes_are_checked_even_under_right_checksums() -> None:
    data = encoded(sample_rows())
    header = decode_header(data, object_name="o")
    for at, byte in ((0, 0xFF), (3, 0xFF), (4, 1)):
        body = bytearray(data[HEADER_BYTES:])
        body[at] = byte
        with pytest.raises(CorruptionError):
            decode_segment(sealed(header, bytes(body)), object_name="o")
    for body_bytes in (b"", b"\0" * 8, b"\0" * 5):
        with pytest.raises(CorruptionError):
            decode_segment(sealed(header, body_bytes), object_name="o")


def sealed(header: ObjectHeader, body: bytes) -> bytes:
    """A segment of that body with right checksums around it."""
    new = ObjectHeader(
        ObjectKind.LOG_SEGMENT,
        header.database_id,
        header.object_id,
        header.writer_epoch,
        len(body),
        header.manifest_version,
        log_segment.crc32c_of_parts([body]),
    )
    return log_segment.encode_header(new) + body


def test_a_segment_needs_rows() -> None:
    with pytest.raises(InvalidError):
        encode_segment(columns_of([R(b"a")]).slice(0, 0), database_id=DATABASE, log_id=9, epoch=3, manifest_version=5)


def test_a_fence_is_a_header_alone() -> None:
    raw = encode_fence(database_id=DATABASE, log_id=9, epoch=3, manifest_version=5)
    assert len(raw) == HEADER_BYTES
    header = decode_header(raw, object_name="o", database_id=DATABASE, object_id=log_object_id(9))
    assert header == ObjectHeader(ObjectKind.FENCE, DATABASE, log_object_id(9), 3, 0, 5, 0)


def test_log_object_ids_differ() -> None:
    assert len({log_object_id(n) for n in (0, 1, 2, 2**64 - 1)}) == 4
    assert all(len(log_object_id(n)) == 16 for n in (0, 2**64 - 1))
    with pytest.raises(InvalidError):
        log_object_id(-1)
