"""`slate_async.storage.format.sst`, its builder and its statistics."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.checksum import crc32c
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, check_body, decode_header
from slate_async.errors import CorruptionError, InternalError, InvalidError
from slate_async.storage.format.block import decode_block
from slate_async.storage.format.filter import key_hash
from slate_async.storage.format.sst import (
    FOOTER_BYTES,
    MUST_UNDERSTAND,
    EncodedSst,
    Section,
    SstMeta,
    encode_directory,
    read_footer,
    read_meta,
)
from slate_async.storage.format.sst_builder import SstBuilder
from tests.support.rows import (
    DATABASE,
    OBJECT,
    OTHER_DATABASE,
    OTHER_OBJECT,
    R,
    columns_of,
    row_lists,
    rows_of,
    sample_rows,
    sorted_rows,
    sst_of,
)


def opened(data: bytes, name: str = "o") -> SstMeta:
    """The metadata of a whole SST."""
    footer = read_footer(data, size=len(data), object_name=name, database_id=DATABASE, object_id=OBJECT)
    return read_meta(data[footer.meta_offset :], footer, object_name=name)


def read_all(data: bytes, name: str = "o") -> list[R]:
    """Open and read everything there is, the header too."""
    meta = opened(data, name)
    header = decode_header(data, object_name=name, database_id=DATABASE, object_id=OBJECT)
    check_body(header, data, object_name=name)
    rows: list[R] = []
    for at, length, crc in zip(meta.index.offsets, meta.index.stored_bytes, meta.index.crcs, strict=True):
        stored = memoryview(data)[at : at + length]
        rows += rows_of(decode_block(stored, object_name=name, offset=at, expected_crc=crc))
    return rows


def joined(encoded: EncodedSst) -> bytes:
    data = b"".join(encoded.buffers)
    assert len(data) == encoded.size
    return data


@settings(deadline=None, max_examples=80)
@given(row_lists, st.sampled_from(["none", "zstd", "lz4"]), st.integers(1, 900), st.sampled_from([0, 10]))
def test_round_trip(unsorted: list[R], compression: str, block_bytes: int, bits: int) -> None:
    rows = sorted_rows(unsorted)
    encoded = sst_of(rows, compression=compression, block_bytes=block_bytes, filter_bits_per_key=bits)
    data = joined(encoded)
    assert read_all(data) == rows
    meta = opened(data)
    assert meta.stats == encoded.stats
    assert (meta.filter is None) == (bits == 0)
    assert meta.filter is None or all(meta.filter.may_contain(key_hash(row.key)) for row in rows)


@settings(deadline=None, max_examples=50)
@given(row_lists, st.integers(1, 500), st.lists(st.integers(0, 29)))
def test_blocks_are_cut_by_the_rows_alone(unsorted: list[R], block_bytes: int, cuts: list[int]) -> None:
    rows = sorted_rows(unsorted)
    whole = columns_of(rows, with_expire=True)
    builder = SstBuilder(
        database_id=DATABASE, object_id=OBJECT, writer_epoch=7, manifest_version=42, block_bytes=block_bytes
    )
    ends = sorted({min(cut, len(rows)) for cut in cuts} | {0, len(rows)})
    for start, stop in pairwise(ends):
        builder.add(columns_of(rows[start:stop]))
    assert builder.rows == len(rows)
    one = SstBuilder(
        database_id=DATABASE, object_id=OBJECT, writer_epoch=7, manifest_version=42, block_bytes=block_bytes
    )
    one.add(whole)
    assert joined(builder.finish()) == joined(one.finish())


def test_blocks_hold_about_block_bytes_and_a_huge_row_stands_alone() -> None:
    rows = [R(b"%04d" % i, b"v" * 76, i) for i in range(100)]
    rows[50] = rows[50]._replace(value=b"v" * 5000)
    meta = opened(joined(sst_of(rows, block_bytes=960)))
    assert [*meta.index.rows] == [10] * 5 + [1] + [10] * 4 + [9]
    assert meta.stats.blocks == 11


def test_statistics() -> None:
    stats = sst_of(sample_rows()).stats
    rows = sample_rows()
    assert (stats.rows, stats.tombstones, stats.expiring_rows) == (8, 1, 1)
    assert (stats.first_key, stats.last_key) == (b"\x00", b"\xff\xff")
    assert (stats.min_seq, stats.max_seq) == (3, 2**63 - 2)
    assert (stats.min_create_ms, stats.max_create_ms) == (-7, 1000)
    assert (stats.min_expire_ms, stats.max_expire_ms) == (99_000, 99_000)
    assert stats.key_bytes == sum(len(row.key) for row in rows)
    assert stats.value_bytes == sum(len(row.value) for row in rows)
    unexpiring = sst_of([R(b"a")]).stats
    assert (unexpiring.min_expire_ms, unexpiring.max_expire_ms) == (None, None)


def test_the_header_describes_the_object() -> None:
    encoded = sst_of(sample_rows())
    data = joined(encoded)
    header = decode_header(encoded.buffers[0], object_name="o")
    assert header == encoded.header
    assert header == ObjectHeader(
        ObjectKind.SST, DATABASE, OBJECT, 7, len(data) - HEADER_BYTES, 42, crc32c(data[HEADER_BYTES:])
    )
    assert opened(data).footer.writer_epoch == 7


@pytest.mark.parametrize(
    "rows",
    [
        [R(b"b"), R(b"a")],
        [R(b"a", seq=5), R(b"a", seq=5)],
        [R(b"a", seq=5), R(b"a", seq=6)],
        [R(b"a\x00"), R(b"a")],
        [R(b"\xff"), R(b"\x01")],
    ],
)
def test_rows_out_of_order_are_refused(rows: list[R]) -> None:
    with pytest.raises(InternalError, match="out of order"):
        sst_of(rows)
    builder = SstBuilder(database_id=DATABASE, object_id=OBJECT, writer_epoch=1, manifest_version=1)
    builder.add(columns_of(rows[:1]))
    with pytest.raises(InternalError, match="out of order"):
        builder.add(columns_of(rows[1:]))


def test_an_sst_needs_rows_and_is_finished_once() -> None:
    builder = SstBuilder(database_id=DATABASE, object_id=OBJECT, writer_epoch=1, manifest_version=1)
    builder.add(columns_of([R(b"a")]).slice(0, 0))
    with pytest.raises(InvalidError):
        builder.finish()
    builder.add(columns_of([R(b"a")]))
    builder.finish()
    with pytest.raises(InternalError):
        builder.add(columns_of([R(b"b")]))
    with pytest.raises(InvalidError):
        builder.finish()


@pytest.mark.parametrize("wrong", [{"block_bytes": 0}, {"filter_bits_per_key": 65}, {"compression": "brotli"}])
def test_settings_out_of_range_are_invalid(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidError):
        sst_of([R(b"a")], **wrong)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_every_flip_is_corruption(compression: str) -> None:
    rows = sample_rows()
    data = joined(sst_of(rows, compression=compression))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CorruptionError, match="the-name"):
            read_all(bytes(damaged), "the-name")


def test_every_flip_in_the_tail_is_found_without_the_header() -> None:
    """What is opened through its tail only is covered by the footer; padding between sections is nobody's."""
    rows = sample_rows()
    data = joined(sst_of(rows))
    whole = opened(data)
    for at in range(whole.footer.meta_offset, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            meta = opened(bytes(damaged))
        except CorruptionError:
            continue
        assert (meta.index, meta.filter, meta.stats) == (whole.index, whole.filter, whole.stats)


def test_every_truncation_is_corruption() -> None:
    data = joined(sst_of(sample_rows()))
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            read_all(data[:length])
        with pytest.raises(CorruptionError):
            read_all(data[length + 1 :])


def test_foreign_objects_are_corruption() -> None:
    for settings_, why in (({"database_id": OTHER_DATABASE}, "database"), ({"object_id": OTHER_OBJECT}, "is object")):
        data = joined(sst_of(sample_rows(), **settings_))
        with pytest.raises(CorruptionError, match=why):
            opened(data)
    data = joined(sst_of(sample_rows()))
    with pytest.raises(CorruptionError, match="footer says"):
        read_footer(data, size=len(data) + 8, object_name="o")
    footer = read_footer(data, size=len(data), object_name="o")
    with pytest.raises(CorruptionError, match="too short"):
        read_meta(data[footer.meta_offset + 8 :], footer, object_name="o")


def resealed(data: bytes, *, section: Section | None = None, version: int = 1, flags: int = 0) -> bytes:
    """``data`` with a section more in its directory, or another version or flags in its footer, all checksums right."""
    footer = bytearray(data[-FOOTER_BYTES:])
    head = data[:-FOOTER_BYTES]
    if section is not None:
        at = struct.unpack_from("<Q", footer, 64)[0]
        directory = head[at:] + encode_directory([section])
        head = head[:at] + directory
        struct.pack_into("<Q", footer, 48, len(head) + FOOTER_BYTES)
        struct.pack_into("<II", footer, 72, len(directory), crc32c(directory))
    struct.pack_into("<HHI", footer, 80, version, 0, flags)
    struct.pack_into("<I", footer, 92, crc32c(bytes(footer[:92])))
    return head + bytes(footer)


def test_a_newer_version_or_feature_is_refused_as_such() -> None:
    data = joined(sst_of(sample_rows()))
    assert opened(resealed(data)).stats.rows == 8
    with pytest.raises(InvalidError, match="version 2"):
        opened(resealed(data, version=2))
    with pytest.raises(InvalidError, match="features"):
        opened(resealed(data, flags=4))


def test_unknown_sections_are_skipped_unless_they_must_be_understood() -> None:
    data = joined(sst_of(sample_rows()))
    assert opened(resealed(data, section=Section(77, 0, 80, 0, 0))).stats.rows == 8
    with pytest.raises(InvalidError, match="section 77"):
        opened(resealed(data, section=Section(77, MUST_UNDERSTAND, 80, 0, 0)))


def test_a_section_outside_the_file_is_corruption() -> None:
    data = joined(sst_of(sample_rows()))
    for section in (Section(1, 0, 2**63, 8, 0), Section(1, 0, 80, 8, 0), Section(1, 0, len(data), 2**63, 0)):
        with pytest.raises(CorruptionError, match="outside"):
            opened(resealed(data, section=section))
