"""`slate_async.storage.format.raw_block`: rows where they lie, against the same rows as columns."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY
from slate_async.errors import CorruptionError
from slate_async.storage.format import raw_block
from slate_async.storage.format.block import TRAILER_BYTES, decode_block, open_block
from slate_async.storage.format.block_encoding import encode_block
from slate_async.storage.format.raw_block import RawBlock
from slate_async.types import PUT, RowHit
from tests.support.rows import R, columns_of, row_lists, rows_of
from tests.unit.storage.format.test_block import CODECS, sealed


def opened(rows: list[R], codec: str = "none") -> RawBlock:
    """A block of ``rows``."""
    return open_block(encode_block(columns_of(rows), codec), object_name="o")


@settings(deadline=None, max_examples=150)
@given(rows=row_lists, codec=st.sampled_from(CODECS), low=st.integers(0, 12), stop=st.integers(0, 12))
def test_rows_are_those_of_the_columns(rows: list[R], codec: str, low: int, stop: int) -> None:
    raw = opened(rows, codec)
    decoded = rows_of(decode_block(encode_block(columns_of(rows), codec), object_name="o"))
    assert rows_of(raw.columns()) == decoded == rows
    for number, row in enumerate(decoded):
        assert (raw.key(number), raw.seq(number), raw.hit(number)) == (row.key, row.seq, RowHit(*row[1:]))
    low, stop = min(low, len(rows)), max(min(low, len(rows)), stop)
    part = decoded[low:stop]
    assert raw.keys(low, stop) == [row.key for row in part]
    assert raw.values(low, stop) == [row.value for row in part]
    assert raw.seqs(low, stop) == [row.seq for row in part]
    assert raw.hits(low, stop) == [RowHit(*row[1:]) for row in part]
    assert raw.newest == max(row.seq for row in rows)
    assert not raw.plain or all(row.kind == PUT and row.expire_ms == NO_EXPIRY for row in rows)


@settings(deadline=None, max_examples=60)
@given(keys=st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=40), wanted=st.binary(max_size=4))
def test_a_key_is_found_where_it_belongs(keys: list[bytes], wanted: bytes) -> None:
    keys.sort()
    raw = opened([R(key) for key in keys])
    assert raw.lower_bound(wanted) == bisect_left(keys, wanted)


def test_keys_and_values_are_bytes_of_their_own() -> None:
    raw = opened([R(b"a", b"1"), R(b"b", b"2")])
    assert type(raw.key(0)) is type(raw.hit(0).value) is type(raw.values(0, 2)[1]) is bytes


@pytest.mark.parametrize("few", [0, 2, 1_000])
@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("lengths", [[3, 3, 3, 3], [3, 3, 3, 4], [0, 0, 0, 0], [3, 0, 5, 3], [2, 3, 3, 4]])
def test_items_of_one_length_and_of_several(
    lengths: list[int], most: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_block, "MOST_COPIED_BYTES", most)
    monkeypatch.setattr(raw_block, "FEW_ROWS", few)
    rows = [R(b"%d" % at * max(1, length), b"%d" % at * length) for at, length in enumerate(lengths)]
    raw = opened(rows)
    for each in (raw, RawBlock(raw.data, raw.raw_bytes, checked=True)):
        for low in range(6):
            for stop in range(6):
                assert each.keys(low, stop) == [row.key for row in rows[low:stop]]
                assert each.values(low, stop) == [row.value for row in rows[low:stop]]


@pytest.mark.parametrize("few", [0, 1_000])
def test_many_rows_are_checked_like_few(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy and without: the same rows, and the same refusals of wrong bytes under a right checksum."""
    monkeypatch.setattr(raw_block, "FEW_ROWS", few)
    rows = [R(b"%03d" % number, b"v" * number, seq=900 - 3 * number) for number in range(20)]
    assert rows_of(opened(rows).columns()) == rows
    good = encode_block(columns_of(rows))[:-TRAILER_BYTES]
    keys_at = raw_block.RAW_HEADER_BYTES
    values_at = keys_at + 4 * 21 + 4
    seqs_at = values_at + 4 * 21 + 4
    for at, why in ((keys_at + 4, "out of order|no key has"), (values_at + 8, "out of order"), (seqs_at + 4, "range")):
        bad = bytearray(good)
        bad[at : at + 4] = b"\xff\xff\xff\xff"
        with pytest.raises(CorruptionError, match=why):
            open_block(sealed(bytes(bad)), object_name="o")
    same = bytearray(good)
    same[keys_at + 4 : keys_at + 8] = bytes(4)
    with pytest.raises(CorruptionError, match="no key has"):
        open_block(sealed(bytes(same)), object_name="o")


def test_renumbered_rows_show_nothing_of_what_is_stored() -> None:
    raw = opened([R(b"a", b"1", 7, create_ms=5), R(b"b", b"2", 3, create_ms=6)])
    raw.renumber(40, 1234)
    assert raw.hits(0, 2) == [RowHit(b"1", 40, PUT, NO_EXPIRY, 1234), RowHit(b"2", 40, PUT, NO_EXPIRY, 1234)]
    assert (raw.seq(1), raw.seqs(0, 2), raw.newest) == (40, [40, 40], 40)
    assert rows_of(raw.columns()) == [R(b"a", b"1", 40, create_ms=1234), R(b"b", b"2", 40, create_ms=1234)]
