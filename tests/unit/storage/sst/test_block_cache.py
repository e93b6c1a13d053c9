"""`slate_async.storage.sst.cache` and the blocks it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY
from slate_async.errors import InvalidError
from slate_async.storage.format.block import open_block
from slate_async.storage.format.block_encoding import encode_block
from slate_async.storage.sst.cache import BLOCKS_PER_INDEX, BlockCache
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.types import PUT, RowHit
from tests.support.rows import R, columns_of, row_lists, sample_rows, sorted_rows


def block_of(rows: list[R]) -> LoadedBlock:
    return LoadedBlock(open_block(encode_block(columns_of(rows)), object_name="o"))


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


def test_owners_do_not_share() -> None:
    one, two = blocks(2)
    cache = BlockCache(1 << 20)
    cache.put(b"a", 0, one)
    cache.put(b"b", 0, two)
    assert cache.get(b"a", 0) is one
    assert cache.get(b"b", 0) is two
    assert cache.get(b"c", 0) is None
    assert cache.stats().bytes == one.nbytes + two.nbytes


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
    for lookup in (used, unused, more):
        cache.keep(lookup)
    used.used = True
    for number in range(4):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [lookup.dropped for lookup in (used, unused, more)] == [False, True, False]
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
    for lookup in old:
        cache.keep(lookup)
    for lookup in old:
        lookup.retired = True
    cache.retire(sum(lookup.nbytes for lookup in old))
    assert not any(lookup.dropped for lookup in old), "all at once would take long"
    cache.keep(Made(block.nbytes // 4))
    assert [lookup.dropped for lookup in old] == [True, False, False, False]
    for number in range(3):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [cache.get(b"o", number) is not None for number in range(3)] == [True] * 3
    cache.forget(old[3])
    for number in range(3, 6):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    assert [lookup.dropped for lookup in old] == [True, True, True, False]
    assert cache.stats().blocks == 3


class Held:
    """An index of somebody."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.used = False
        self.dropped = False

    def drop_index(self) -> None:
        self.dropped = True


def test_indexes_count_and_go_when_there_are_too_many() -> None:
    cache = BlockCache(10_000)
    indexes = [Held(2_500) for _ in range(4)]
    for index in indexes[:3]:
        cache.keep_index(index)
    assert (cache.stats().bytes, cache.stats().index_bytes) == (7_500, 7_500)
    indexes[0].used = indexes[2].used = True
    indexes[1].used = False
    cache.keep_index(indexes[3])
    assert [index.dropped for index in indexes] == [False, True, False, False]
    assert (cache.stats().index_bytes, cache.stats().index_evictions) == (7_500, 1)
    cache.keep_index(indexes[3])
    assert cache.stats().index_bytes == 7_500, "the same one is kept once"


def test_blocks_make_room_for_indexes_and_keep_a_quarter() -> None:
    (block,) = blocks(1)
    cache = BlockCache(4 * block.nbytes)
    for number in range(4):
        cache.put(b"o", number, block_of([R(b"k%03d" % number, b"v" * 1000)]))
    cache.keep_index(Held(2 * block.nbytes))
    assert (cache.stats().blocks, cache.stats().bytes) == (2, 4 * block.nbytes)
    large = Held(100 * block.nbytes)
    cache.keep_index(large)
    assert not large.dropped, "one alone stays, or every read would read it anew"
    assert cache.stats().blocks == 1


def test_an_index_nobody_uses_goes_as_blocks_come_and_go() -> None:
    (block,) = blocks(1)
    used, idle = Held(100), Held(100)
    cache = BlockCache(2 * block.nbytes + 200)
    cache.keep_index(idle)
    cache.keep_index(used)
    for number in range(4 * BLOCKS_PER_INDEX):
        used.used = True
        cache.put(b"o", number, block_of([R(b"k%06d" % number, b"v" * 997)]))
    assert (used.dropped, idle.dropped) == (False, True)
    assert cache.stats().index_bytes == 100
    for number in range(4 * BLOCKS_PER_INDEX):
        cache.put(b"p", number, block_of([R(b"k%06d" % number, b"v" * 997)]))
    assert not used.dropped, "the last one stays"


def test_a_cache_without_capacity_counts_no_index() -> None:
    cache, index = BlockCache(0), Held(100)
    cache.keep_index(index)
    assert (cache.stats().bytes, index.dropped) == (0, False)


def test_a_lookup_larger_than_its_share_is_not_kept() -> None:
    cache, large = BlockCache(1000), Made(501)
    cache.keep(large)
    assert large.dropped
    assert cache.stats().bytes == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=80))
def test_bytes_stay_within_the_capacity(steps: list[tuple[int, int, bool]]) -> None:
    cache = BlockCache(6000)
    for owner, number, puts in steps:
        name = b"%d" % owner
        if puts:
            cache.put(name, number, block_of([R(b"k", b"v" * 300 * number)]))
        else:
            cache.get(name, number)
        assert 0 <= cache.stats().bytes <= 6000
    kept = [
        block for owner in range(4) for number in range(6) if (block := cache.get(b"%d" % owner, number)) is not None
    ]
    assert (cache.stats().bytes, cache.stats().blocks) == (sum(block.nbytes for block in kept), len(kept))


@settings(deadline=None, max_examples=80)
@given(row_lists, st.binary(max_size=3), st.integers(0, 2**63 - 1))
def test_lookups_agree_with_a_search_by_hand(unsorted: list[R], probe: bytes, max_seq: int) -> None:
    rows = sorted_rows(unsorted)
    block = block_of(rows)
    for key in {probe, *(row.key for row in rows)}:
        assert block.raw.lower_bound(key) == sum(row.key < key for row in rows)
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
