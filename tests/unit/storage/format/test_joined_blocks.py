"""Many blocks decoded together: the same rows, the same refusals as one by one."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.checksum import crc32c
from slate_async.codec.compression import VAIN_BLOCKS
from slate_async.errors import CorruptionError
from slate_async.storage.format import joined_blocks
from slate_async.storage.format.block import TRAILER_BYTES, decode_block, stored_crc
from slate_async.storage.format.block_encoding import encode_block, encode_blocks
from slate_async.storage.format.block_parts import StoredBlock
from slate_async.storage.format.joined_blocks import decode_blocks
from slate_async.storage.format.separate_blocks import open_each
from tests.support.rows import R, columns_of, row_lists, rows_of, sample_rows

CODECS = ["none", "zstd", "lz4"]


def laid_out(blocks: list[bytes]) -> list[StoredBlock]:
    """``blocks`` as they lie one after another in an object."""
    offsets = accumulate((len(block) for block in blocks), initial=80)
    return [StoredBlock(memoryview(block), at, stored_crc(block)) for at, block in zip(offsets, blocks, strict=False)]


def decoded(blocks: list[bytes]) -> list[list[R]]:
    return [rows_of(rows) for rows in decode_blocks(laid_out(blocks), object_name="o")]


@settings(deadline=None, max_examples=150)
@given(st.lists(row_lists, min_size=1, max_size=5), st.sampled_from(CODECS))
def test_the_rows_of_all_blocks(parts: list[list[R]], codec: str) -> None:
    blocks = [encode_block(columns_of(part), codec) for part in parts]
    assert decoded(blocks) == [[row for part in parts for row in part]]


@settings(deadline=None, max_examples=100)
@given(row_lists, st.sampled_from(CODECS), st.data())
def test_blocks_made_together_are_those_made_one_by_one(rows: list[R], codec: str, data: st.DataObject) -> None:
    inner = data.draw(st.sets(st.integers(1, len(rows)), max_size=VAIN_BLOCKS - 1))
    stops = sorted({*inner, len(rows)})
    whole = columns_of([R(b"before"), *rows], with_expire=True).slice(1, len(rows) + 1)
    starts = [0, *stops[:-1]]
    one_by_one = [encode_block(whole.slice(*cut), codec) for cut in zip(starts, stops, strict=True)]
    assert encode_blocks(whole, stops, codec) == one_by_one


def test_large_columns_are_joined_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sample_rows()
    blocks = [encode_block(columns_of(part)) for part in (rows[:2], rows[2:3], rows[3:])]
    monkeypatch.setattr(joined_blocks, "LARGE_BYTES", 1)
    assert decoded(blocks) == [rows]


def test_large_blocks_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_blocks, "MAX_JOINED_BYTES", 1000)
    parts = [[R(b"a", b"x" * 900)], [R(b"b")], [R(b"c")], [R(b"d", b"x" * 5000)], [R(b"e")]]
    blocks = [encode_block(columns_of(part)) for part in parts]
    assert decoded(blocks) == [parts[0], parts[1] + parts[2], parts[3], parts[4]]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_wrong_bytes_under_a_right_checksum_are_refused_alike(at: int, byte: int) -> None:
    good = encode_block(columns_of([R(b"before"), R(b"later", seq=5)]))
    raw = bytearray(encode_block(columns_of(sample_rows()))[:-TRAILER_BYTES])
    raw[at % len(raw)] = byte
    trailer = struct.pack("<BBHII", 0, 0, 0, len(raw), 0)
    bad = bytes(raw) + trailer + struct.pack("<I", crc32c(raw + trailer))
    blocks = [good, bad, good]

    def outcome(decode: Any) -> object:
        try:
            return decode()
        except CorruptionError as error:
            return str(error), error.offset

    alone = outcome(lambda: rows_of(decode_block(bad, object_name="o", offset=80 + len(good))))
    together = outcome(lambda: decoded(blocks)[0][2:-2])
    assert together == alone
    each = outcome(lambda: rows_of(open_each(laid_out(blocks), object_name="o")[1][0].columns()))
    assert each == alone


def test_a_block_of_another_place_is_corruption() -> None:
    one, two = laid_out([encode_block(columns_of([R(b"k%d" % number)])) for number in range(2)])
    strange = StoredBlock(one.data, two.offset, two.crc)
    with pytest.raises(CorruptionError) as caught:
        list(decode_blocks([one, strange], object_name="the-name"))
    assert (caught.value.object_name, caught.value.offset) == ("the-name", two.offset)
