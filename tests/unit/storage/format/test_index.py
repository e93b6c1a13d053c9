"""`slate_async.storage.format.index`."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.errors import CorruptionError
from slate_async.storage.format.index import BlockEntry, Index, decode_index, encode_index


def index_of(blocks: list[list[bytes]]) -> Index:
    """An index of blocks that hold these keys."""
    last = [b""] + [block[-1] for block in blocks]
    entries = [
        BlockEntry(80 + 64 * i, 64, len(block), i, block[0], block[0] == last[i]) for i, block in enumerate(blocks)
    ]
    data = encode_index(entries, blocks[-1][-1])
    assert len(data) % 8 == 0
    return decode_index(data, data_end=80 + 64 * len(blocks), object_name="o")


SAMPLE = [[b"b", b"d"], [b"d", b"d"], [b"d", b"f"], [b"h"]]


def test_fields() -> None:
    index = index_of(SAMPLE)
    assert (len(index), index.first_key, index.last_key) == (4, b"b", b"h")
    assert [*index.offsets] == [80, 144, 208, 272]
    assert [*index.rows] == [2, 2, 2, 1]
    assert list(index.continues) == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("key", "block"),
    [(b"a", None), (b"b", 0), (b"c", 0), (b"d", 0), (b"e", 2), (b"g", 2), (b"h", 3), (b"i", None), (b"h\0", None)],
)
def test_find(key: bytes, block: int | None) -> None:
    assert index_of(SAMPLE).find(key) == block


def test_versions_that_go_on_in_the_next_block() -> None:
    index = index_of(SAMPLE)
    assert [index.continues_with(block, b"d") for block in range(5)] == [False, True, True, False, False]
    assert not index.continues_with(1, b"c")


key_lists = st.lists(st.binary(min_size=1, max_size=2), min_size=1, max_size=12).map(sorted)


@settings(deadline=None)
@given(key_lists, st.integers(1, 3), st.binary(max_size=2), st.none() | st.binary(max_size=2), st.booleans())
def test_range_and_find_miss_nothing(
    keys: list[bytes], per_block: int, start: bytes, end: bytes | None, unbounded: bool
) -> None:
    blocks = [keys[i : i + per_block] for i in range(0, len(keys), per_block)]
    index = index_of(blocks)
    found = index.range(None if unbounded else start, end)
    low = 0 if unbounded else bisect_left(keys, start)
    high = len(keys) if end is None else bisect_left(keys, end)
    wanted = {at // per_block for at in range(low, high)}
    assert wanted <= set(found)
    assert len(found) <= len(wanted) + 1
    at = bisect_left(keys, start)
    if at < len(keys) and keys[at] == start:
        assert index.find(start) == at // per_block
    elif bisect_right(keys, start) in (0, len(keys)):
        assert index.find(start) is None


def test_wrong_bytes_are_corruption_or_an_index() -> None:
    entries = [BlockEntry(80, 64, 2, 5, b"a", False), BlockEntry(144, 64, 1, 6, b"c", False)]
    data = encode_index(entries, b"d")
    for at in range(len(data)):
        for new in (0, 0xFF, data[at] ^ 1):
            damaged = bytearray(data)
            damaged[at] = new
            with suppress(CorruptionError):
                assert len(decode_index(damaged, data_end=208, object_name="o")) == 2
        with pytest.raises(CorruptionError):
            decode_index(data[:at], data_end=208, object_name="o")
    with pytest.raises(CorruptionError, match="outside"):
        decode_index(data, data_end=200, object_name="o")
    with pytest.raises(CorruptionError):
        decode_index(struct.pack("<II", 0, 0), data_end=200, object_name="o")
