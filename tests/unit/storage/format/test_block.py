"""`slate_async.storage.format.block` and the compression under it."""

from __future__ import annotations

import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec import compression as compression_module
from slate_async.codec.checksum import crc32c
from slate_async.codec.columns import Columns, concat
from slate_async.codec.compression import Compression, DecompressionError, compress, decompress
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format.block import TRAILER_BYTES, decode_block, stored_crc, stored_raw_bytes
from slate_async.storage.format.block_encoding import encode_block
from tests.support.rows import R, columns_of, row_lists, rows_of, sample_rows

CODECS = ["none", "zstd", "lz4"]


def sealed(raw: bytes, codec: int = 0, transformer: int = 0, claimed: int | None = None) -> bytes:
    """A stored block with a right checksum around any bytes."""
    trailer = struct.pack("<BBHII", transformer, codec, 0, len(raw) if claimed is None else claimed, 0)
    return raw + trailer + struct.pack("<I", crc32c(raw + trailer))


def raw_of(rows: list[R]) -> bytearray:
    """The uncompressed bytes of a block, to change and seal again."""
    return bytearray(encode_block(columns_of(rows))[:-TRAILER_BYTES])


@settings(deadline=None, max_examples=150)
@given(row_lists, st.sampled_from(CODECS))
def test_round_trip(rows: list[R], codec: str) -> None:
    stored = encode_block(columns_of(rows), codec)
    assert rows_of(decode_block(stored, object_name="o", expected_crc=stored_crc(stored))) == rows


@settings(deadline=None, max_examples=50)
@given(row_lists, st.data())
def test_slices_encode_like_copies(rows: list[R], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    whole = columns_of(rows, with_expire=True)
    assert encode_block(whole.slice(start, stop)) == encode_block(columns_of(rows[start:stop], with_expire=True))


@pytest.mark.parametrize("codec", CODECS)
def test_many_rows(codec: str) -> None:
    rows = [R(b"%05d" % i, b"v" * (i % 50), 100 + i) for i in range(20_000)]
    stored = encode_block(columns_of(rows), codec)
    decoded = decode_block(stored, object_name="o")
    assert rows_of(decoded) == rows
    assert decoded.expire_ms is None
    assert stored_raw_bytes(stored) > 100_000


def test_ascending_sequence_numbers_and_equal_columns_cost_nothing() -> None:
    dense = encode_block(columns_of([R(b"k%d" % i, seq=5 + i) for i in range(8)]))
    sparse = encode_block(columns_of([R(b"k%d" % i, seq=5 + 2 * i) for i in range(8)]))
    mixed = encode_block(columns_of([R(b"k%d" % i, seq=5 + i, kind=i % 2, create_ms=i) for i in range(8)]))
    assert len(sparse) == len(dense) + 8 * 8
    assert len(mixed) == len(dense) + 8 * 8 + 8


def test_uncompressed_blocks_are_wrapped_without_a_copy() -> None:
    stored = encode_block(columns_of(sample_rows()))
    base, end = address_of(stored), address_of(stored) + len(stored)
    decoded = decode_block(stored, object_name="o")
    for buffer in (*decoded.keys.buffers()[1:], *decoded.values.buffers()[1:]):
        assert base <= buffer.address < end
        assert buffer.address % 8 == 0
    assert not decoded.seqs.flags.writeable


def address_of(data: bytes) -> int:
    return pa.py_buffer(data).address


def test_bytes_that_do_not_shrink_are_stored_as_they_are() -> None:
    noise = np.random.default_rng(1).bytes(5000)
    rows = columns_of([R(b"k", noise)])
    assert encode_block(rows, "zstd") == encode_block(rows, "none")
    assert len(encode_block(columns_of([R(b"k", b"a" * 5000)]), "zstd")) < 200


@pytest.mark.parametrize("codec", CODECS)
def test_every_flip_is_corruption(codec: str) -> None:
    stored = encode_block(columns_of([*sample_rows(), R(b"\xff\xff\xff", b"a" * 400)]), codec)
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CorruptionError) as caught:
            decode_block(damaged, object_name="the-name", offset=640)
        assert (caught.value.object_name, caught.value.offset) == ("the-name", 640)


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_corruption(codec: str) -> None:
    stored = encode_block(columns_of(sample_rows()), codec)
    for length in range(len(stored)):
        with pytest.raises(CorruptionError):
            decode_block(stored[:length], object_name="o")


def test_a_sound_block_of_another_place_is_corruption() -> None:
    one, two = (encode_block(columns_of([R(b"k", b"%d" % i)])) for i in range(2))
    with pytest.raises(CorruptionError):
        decode_block(one, object_name="o", expected_crc=stored_crc(two))


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_wrong_bytes_under_a_right_checksum_are_corruption_or_rows(at: int, byte: int) -> None:
    raw = raw_of(sample_rows())
    raw[at % len(raw)] = byte
    try:
        decoded = decode_block(sealed(bytes(raw)), object_name="o")
    except CorruptionError:
        return
    decoded.keys.validate(full=True)
    decoded.values.validate(full=True)
    assert int(decoded.kinds.max()) <= 2


@pytest.mark.parametrize(
    ("at", "new", "why"),
    [
        (0, struct.pack("<I", 0), "0 rows"),
        (0, struct.pack("<I", 2**32 - 1), "do not fit"),
        (4, struct.pack("<I", 1 << 31), "flags"),
        (8, struct.pack("<Q", 2**63), "sequence number"),
        (24, struct.pack("<I", 7), "offsets"),
        (32, b"\x03", "kind 3"),
        (33, b"\x01", "not readable"),
        (44, struct.pack("<I", 9), "offsets"),
    ],
)
def test_what_a_wrong_field_is_called(at: int, new: bytes, why: str) -> None:
    raw = raw_of([R(b"a", b"1", 1), R(b"b", b"2", 2)])
    raw[at : at + len(new)] = new
    with pytest.raises(CorruptionError, match=why):
        decode_block(sealed(bytes(raw)), object_name="o")


def test_reserved_transformers_and_codecs_are_refused() -> None:
    raw = bytes(raw_of([R(b"a")]))
    for stored in (
        sealed(raw, transformer=1),
        sealed(raw, codec=3),
        sealed(raw, claimed=2**31),
        sealed(b"", claimed=0),
    ):
        with pytest.raises(CorruptionError, match="not readable"):
            decode_block(stored, object_name="o")


@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.LZ4])
def test_a_decompression_bomb_is_bounded_by_the_claimed_length(codec: Compression) -> None:
    packed = compress(bytes(50_000_000), codec)
    assert packed is not None
    with pytest.raises(DecompressionError):
        decompress(packed, codec, 1000)
    with pytest.raises(CorruptionError, match="decompress"):
        decode_block(sealed(packed, codec, claimed=1000), object_name="o")
    with pytest.raises(CorruptionError, match="decompress"):
        decode_block(sealed(b"no compressor made this", codec, claimed=1000), object_name="o")


def test_a_frame_of_unknown_length_is_refused() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    with pytest.raises(DecompressionError):
        decompress(packed, Compression.ZSTD, 1000)


def test_rows_no_block_can_hold_are_invalid() -> None:
    good = columns_of([R(b"a"), R(b"b")])
    nulls = pa.array([b"a", None], pa.binary())
    wrong = [
        columns_of([R(b"a"), R(b"")]),
        columns_of([R(b"k" * 65_536)]),
        columns_of([R(b"a", kind=3)]),
        columns_of([R(b"a", seq=2**63)]),
        good.slice(1, 1),
        Columns(nulls, good.values, good.seqs, good.kinds, None, good.create_ms),
        Columns(good.keys.cast(pa.large_binary()), good.values, good.seqs, good.kinds, None, good.create_ms),
    ]
    for columns in wrong:
        with pytest.raises(InvalidError):
            encode_block(columns)
    encode_block(columns_of([R(b"k" * 65_535, b"")]))


def test_unknown_and_missing_codecs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidError, match="snappy"):
        encode_block(columns_of([R(b"a")]), "snappy")
    stored = encode_block(columns_of([R(b"a", b"a" * 500)]), "lz4")
    monkeypatch.setattr(compression_module, "_lz4", None)
    with pytest.raises(InvalidError, match=r"slate-async\[lz4\]"):
        encode_block(columns_of([R(b"a")]), "lz4")
    with pytest.raises(InvalidError, match=r"slate-async\[lz4\]"):
        decode_block(stored, object_name="o")


def test_worker_threads_may_encode_and_decode_at_once() -> None:
    rows = [R(b"%04d" % i, b"v" * 100, 9 + i) for i in range(2000)]

    def work(codec: str) -> bool:
        return rows_of(decode_block(encode_block(columns_of(rows), codec), object_name="o")) == rows

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, CODECS * 4))


def test_concatenated_blocks_keep_their_columns() -> None:
    parts = [[R(b"a", expire_ms=5)], [R(b"b")]]
    decoded = [decode_block(encode_block(columns_of(part)), object_name="o") for part in parts]
    assert rows_of(concat(decoded)) == parts[0] + parts[1]


def test_little_endian_machine() -> None:
    assert sys.byteorder == "little"
