"""Blocks that the store has in memory are read without waiting, one for a look, and checked as all others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.errors import CorruptionError
from slate_async.storage.format.filter import key_hash
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.passing import Passing
from slate_async.types import MAX_SEQ, NEEDS_IO
from tests.support.rows import R, sst_of
from tests.support.sst_readers import StoreAtHand, forget_blocks, reader_of
from tests.unit.storage.sst.test_reader import LATEST, big_rows, big_sst, hit

KEY, VALUE = 100, b"v" * 50


async def test_a_block_is_read_without_waiting_where_that_is_allowed_and_then_cached() -> None:
    store, rows, cache = StoreAtHand(), big_rows(), BlockCache(64 << 20)
    reader = reader_of(store, big_sst(rows), cache=cache)
    key, hashed = rows[KEY].key, key_hash(rows[KEY].key)
    assert reader.probe(key, hashed, LATEST, True) is NEEDS_IO
    await reader.load()
    assert reader.probe(key, hashed, LATEST) is NEEDS_IO
    assert store.read_at_once == 0
    assert reader.probe(key, hashed, LATEST, True) == hit(rows[KEY])
    assert reader.probe(key, hashed, LATEST) == hit(rows[KEY])
    assert (store.read_at_once, len(store.reads), cache.stats().misses) == (1, 1, 1)


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_short_scan_reads_a_block_without_waiting(reverse: bool) -> None:
    store, rows = StoreAtHand(), big_rows()
    reader = reader_of(store, big_sst(rows))
    bounds = (None, rows[KEY].key) if reverse else (rows[KEY].key, None)

    def look(reading: bool) -> list[bytes] | None:
        found = reader.first_rows(*bounds, 3, LATEST, 0, reverse, False, reading)
        return None if found is None else [key for key, _ in found[0]]

    assert look(True) is None
    await reader.load()
    assert look(False) is None
    wanted = [rows[number].key for number in ((KEY - 1, KEY - 2, KEY - 3) if reverse else (KEY, KEY + 1, KEY + 2))]
    assert look(True) == look(False) == wanted
    assert (store.read_at_once, len(store.reads)) == (1, 1)


BRIEF = st.integers(97, 116).map(lambda letter: bytes([letter]))


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(st.tuples(BRIEF, st.integers(1, 9)), min_size=1, max_size=20, unique=True),
    start=st.none() | BRIEF,
    end=st.none() | BRIEF,
    count=st.integers(1, 30),
    max_seq=st.integers(0, 10),
    reverse=st.booleans(),
    reading=st.integers(0, 8),
)
async def test_the_first_rows_of_several_blocks(
    rows: list[tuple[bytes, int]],
    start: bytes | None,
    end: bytes | None,
    count: int,
    max_seq: int,
    reverse: bool,
    reading: int,
) -> None:
    """What a look finds are the first live rows, however many blocks it may read; it ends only where they do."""
    stored = sorted(
        (R(key, b"%d" % seq, seq, kind=seq % 5 == 0) for key, seq in rows), key=lambda row: (row.key, -row.seq)
    )
    stored = [row._replace(value=b"") if row.kind else row for row in stored]
    reader = reader_of(StoreAtHand(), sst_of(stored, block_bytes=60), cache=BlockCache(64 << 20))
    await reader.load()
    forget_blocks(reader)
    newest = {row.key: row for row in sorted(stored, key=lambda row: row.seq) if row.seq <= max_seq}
    inside = [
        (key, None if row.kind else row.value)
        for key, row in sorted(newest.items(), reverse=reverse)
        if (start is None or key >= start) and (end is None or key < end)
    ]
    found = reader.first_rows(start, end, count, max_seq, 0, reverse, False, reading)
    if found is not None:
        pairs, hides, ended = found
        assert pairs == inside[: len(pairs)]
        assert len(pairs) <= count
        assert hides or None not in [value for _, value in pairs]
        assert len(pairs) == len(inside) or not ended
        assert pairs or (ended and not inside)


async def test_scans_read_without_waiting() -> None:
    store, rows = StoreAtHand(), big_rows()
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    first = await anext(reader.scan(rows[KEY].key, None))
    assert first.keys[0].as_py() == rows[KEY].key
    assert (store.read_at_once, len(store.reads)) == (1, 1)


async def test_an_object_of_another_size_is_read_the_long_way_which_tells() -> None:
    store, rows = StoreAtHand(), big_rows()
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    store.objects["sst/x"] += b"!"
    key, hashed = rows[KEY].key, key_hash(rows[KEY].key)
    assert reader.probe(key, hashed, LATEST, True) is NEEDS_IO
    with pytest.raises(CorruptionError, match="were written"):
        await reader.get(key, hashed, LATEST)


async def test_a_damaged_block_is_noticed() -> None:
    store, rows = StoreAtHand(), big_rows()
    reader = reader_of(store, big_sst(rows))
    index = (await reader.load()).index
    number = index.find(rows[KEY].key)
    assert number is not None
    damaged = bytearray(store.objects["sst/x"])
    damaged[index.offsets[number] + 30] ^= 1
    store.objects["sst/x"] = bytes(damaged)
    with pytest.raises(CorruptionError, match="checksum"):
        reader.probe(rows[KEY].key, key_hash(rows[KEY].key), LATEST, True)


async def test_one_block_is_read_for_a_look() -> None:
    versions = [R(b"key", VALUE, seq) for seq in range(3000, 0, -1)]
    store = StoreAtHand()
    reader = reader_of(store, big_sst(versions))
    assert len((await reader.load()).index) > 10
    for looks in (1, 2, 3):
        assert reader.probe(b"key", key_hash(b"key"), 5, True) is NEEDS_IO
        assert store.read_at_once == looks


@pytest.mark.parametrize("fits", [False, True])
async def test_many_keys_read_each_block_once_and_leave_the_cache_alone_if_it_cannot_hold_them(fits: bool) -> None:
    store, rows, cache = StoreAtHand(), big_rows(), BlockCache(64 << 20)
    reader = reader_of(store, big_sst(rows), cache=cache)
    blocks = len((await reader.load()).index)
    reader.drop_index()
    passing = Passing(1 if fits else 1 << 30)
    assert reader.probe(rows[0].key, key_hash(rows[0].key), LATEST, True, passing) is NEEDS_IO
    held = await reader.load()
    reader.drop_index()
    assert reader.probe(rows[0].key, key_hash(rows[0].key), LATEST, True) is NEEDS_IO, "it is not held for all"
    for row in rows:
        assert reader.probe(row.key, key_hash(row.key), LATEST, True, passing) == hit(row)
        assert reader.probe(row.key + b"!", key_hash(row.key + b"!"), LATEST, True, passing) is None
    assert store.read_at_once == cache.stats().misses == len(held.index) == blocks
    assert cache.stats().blocks == blocks * fits


async def test_a_large_block_is_not_decoded_on_the_loop() -> None:
    large = [R(b"%03d" % number, bytes(1 << 20), 1 + number) for number in range(3)]
    store = StoreAtHand()
    reader = reader_of(store, sst_of([*large, R(b"tail", VALUE * 4000, 9)], compression="zstd"))
    await reader.load()
    forget_blocks(reader)
    assert reader.probe(b"001", key_hash(b"001"), MAX_SEQ, True) is NEEDS_IO
    assert store.read_at_once == 1


async def test_nothing_is_read_at_once_that_could_not_be_kept() -> None:
    store, rows = StoreAtHand(), big_rows()
    reader = reader_of(store, big_sst(rows), cache=BlockCache(0))
    await reader.load()
    assert reader.probe(rows[KEY].key, key_hash(rows[KEY].key), LATEST, True) is NEEDS_IO
    assert store.read_at_once == 0
