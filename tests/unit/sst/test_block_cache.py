"""`slate_async.sst.cache` and the blocks it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.format.block import decode_block
from slate_async.format.block_encoding import encode_block
from slate_async.format.columns import NO_EXPIRY
from slate_async.sst.cache import BlockCache
from slate_async.sst.loaded_block import LoadedBlock
from slate_async.types import PUT, RowHit
from tests.unit.format.rows import R, columns_of, row_lists, sample_rows, sorted_rows


def block_of(rows: list[R]) -> LoadedBlock:
    return LoadedBlock(decode_block(encode_block(columns_of(rows)), object_name="o"))


def blocks(count: int) -> list[LoadedBlock]:
    return [block_of([R(b"k%03d" % i, b"v" * 1000)]) for i in range(count)]


def test_the_block_unused_longest_goes_first() -> None:
    one, two, three, four = blocks(4)
    cache = BlockCache(3 * one.nbytes)
    for number, block in enumerate((one, two, three)):
        cache.put(b"o", number, block)
    assert cache.get(b"o", 0) is one
    cache.put(b"o", 3, four)
    assert cache.get(b"o", 1) is None
    assert [cache.get(b"o", n) for n in (0, 2, 3)] == [one, three, four]
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.evictions, stats.blocks) == (4, 1, 1, 3)
    assert stats.bytes == 3 * one.nbytes


def test_owners_do_not_share_and_are_dropped_apart() -> None:
    one, two = blocks(2)
    cache = BlockCache(1 << 20)
    cache.put(b"a", 0, one)
    cache.put(b"b", 0, two)
    assert cache.get(b"b", 0) is two
    cache.drop(b"a")
    cache.drop(b"nobody")
    assert cache.get(b"a", 0) is None
    assert cache.stats().bytes == two.nbytes
    cache.drop(b"b")
    assert (cache.stats().bytes, cache.stats().blocks) == (0, 0)


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    small, *_ = blocks(1)
    cache = BlockCache(small.nbytes)
    cache.put(b"o", 0, small)
    cache.put(b"o", 1, block_of([R(b"k", b"v" * 5000)]))
    assert cache.get(b"o", 0) is small
    assert cache.get(b"o", 1, count_miss=False) is None
    assert cache.stats().misses == 0
    BlockCache(0).put(b"o", 0, small)
    with pytest.raises(InvalidError):
        BlockCache(-1)


def test_replacing_a_block_charges_it_once() -> None:
    one, two = blocks(2)
    cache = BlockCache(1 << 20)
    cache.put(b"o", 0, one)
    cache.put(b"o", 0, two)
    assert cache.get(b"o", 0) is two
    assert cache.stats().bytes == two.nbytes


class Made:
    """Something made of blocks."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.used = False
        self.dropped = False
        self.retired = False

    def drop(self) -> None:
        self.dropped = True


def test_lookups_fill_what_blocks_leave_free_and_go_first_beyond_their_share() -> None:
    (block,) = blocks(1)
    cache = BlockCache(4 * block.nbytes)
    used, unused, more = (Made(block.nbytes) for _ in range(3))
    for one in (used, unused, more):
        cache.keep(one)
    used.used = True
    for number in range(4):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [one.dropped for one in (used, unused, more)] == [False, True, False]
    assert cache.get(b"o", 0, count_miss=False) is None
    assert [cache.get(b"o", number) is not None for number in (2, 3)] == [True, True]
    cache.forget(more)
    cache.forget(more)
    assert not more.dropped
    assert cache.stats().bytes == 3 * block.nbytes


def test_retired_lookups_go_before_blocks_and_others_bit_by_bit() -> None:
    (block,) = blocks(1)
    cache = BlockCache(4 * block.nbytes)
    old = [Made(block.nbytes // 4) for _ in range(4)]
    for one in old:
        cache.keep(one)
    for one in old:
        one.retired = True
    cache.retire(sum(one.nbytes for one in old))
    assert not any(one.dropped for one in old), "all at once would take long"
    cache.keep(Made(block.nbytes // 4))
    assert [one.dropped for one in old] == [True, False, False, False]
    for number in range(3):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [cache.get(b"o", number) is not None for number in range(3)] == [True] * 3
    cache.forget(old[3])
    for number in range(3, 6):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [one.dropped for one in old] == [True, True, True, False]
    assert cache.stats().blocks == 3


def test_a_lookup_larger_than_its_share_is_not_kept() -> None:
    cache, large = BlockCache(1000), Made(501)
    cache.keep(large)
    assert large.dropped
    assert cache.stats().bytes == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from(["get", "put", "drop"])), max_size=80))
def test_bytes_stay_within_the_capacity(steps: list[tuple[int, int, str]]) -> None:
    cache = BlockCache(6000)
    for owner, number, step in steps:
        name = b"%d" % owner
        if step == "put":
            cache.put(name, number, block_of([R(b"k", b"v" * 300 * number)]))
        elif step == "get":
            cache.get(name, number)
        else:
            cache.drop(name)
        assert 0 <= cache.stats().bytes <= 6000
    for owner in range(4):
        cache.drop(b"%d" % owner)
    assert (cache.stats().bytes, cache.stats().blocks) == (0, 0)


@settings(deadline=None, max_examples=80)
@given(row_lists, st.binary(max_size=3), st.integers(0, 2**63 - 1))
def test_lookups_agree_with_a_search_by_hand(unsorted: list[R], probe: bytes, max_seq: int) -> None:
    rows = sorted_rows(unsorted)
    block = block_of(rows)
    for key in {probe, *(row.key for row in rows)}:
        assert block.lower_bound(key) == sum(row.key < key for row in rows)
        visible = [at for at, row in enumerate(rows) if row.key == key and row.seq <= max_seq]
        found = block.find(key, max_seq)
        if visible:
            assert found == visible[0]
        else:
            assert found == (len(rows) if rows[-1].key == key else -1)


def test_hits_carry_the_whole_row() -> None:
    block = block_of(sample_rows())
    row = block.find(b"a", 2**63 - 1)
    assert block.hit(row) == RowHit(b"new", 30, 0, 99_000, 1000)
    assert block.hit(block.find(b"a", 29)) == RowHit(b"", 20, 1, NO_EXPIRY, 1000)
    assert block.hit(block.find(b"\x00", 5)) == RowHit(b"nul", 3, 0, NO_EXPIRY, 5)
    assert all(type(field) in (int, bytes) for field in block.hit(0))
    assert block_of([R(b"a")]).hit(0).expire_ms == NO_EXPIRY


@settings(deadline=None, max_examples=80)
@given(row_lists, st.binary(max_size=2), st.binary(max_size=2))
def test_laying_a_block_over_others_shows_its_newest_versions(unsorted: list[R], start: bytes, end: bytes) -> None:
    rows = sorted_rows(unsorted)
    found: dict[bytes, bytes | RowHit] = {b"other": b"stays", rows[0].key: b"older"}
    expected = dict(found)
    inside = [row for row in rows if start <= row.key < end]
    for row in reversed(inside):
        plain = row.kind == PUT and row.expire_ms == NO_EXPIRY
        expected[row.key] = row.value if plain else RowHit(row.value, row.seq, row.kind, row.expire_ms, row.create_ms)
    highest = block_of(rows).lay_over(found, start, end)
    assert found == expected
    assert highest == max((row.seq for row in inside), default=0)
