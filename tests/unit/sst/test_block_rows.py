"""`slate_async.sst.block_rows`: the first rows of a range in one block, against the rows themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slate_async.format.columns import NO_EXPIRY
from slate_async.sst import block_rows
from slate_async.sst.block_rows import WORTH_LOOKS, BlockRows, Keys
from slate_async.sst.cache import BlockCache
from slate_async.types import DELETE, MAX_SEQ, MERGE, NO_KEYS, PUT
from tests.read_model import Version, columns, newest_first, visible
from tests.unit.format.rows import R, sst_of
from tests.unit.sst.support import CountingStore, reader_of

KEYS = st.binary(max_size=2)
PUTS = st.tuples(KEYS, st.binary(max_size=3), st.integers(1, 20)).map(lambda row: Version(*row))
MORTAL = st.tuples(KEYS, st.just(b""), st.integers(1, 20), st.sampled_from([PUT, DELETE]), st.just(5))
ROWS = st.lists(
    PUTS | MORTAL.map(lambda row: Version(*row)),
    min_size=1,
    max_size=60,
    unique_by=lambda row: (row.key, row.seq),
)
DISTINCT_PUTS = st.lists(PUTS, min_size=1, max_size=60, unique_by=lambda row: row.key)


def shown(rows: list[Version], max_seq: int, now_ms: int) -> dict[bytes, bytes | None]:
    """What a source shows: the newest visible version of each key, ``None`` where it hides the key."""
    live = visible(rows, max_seq, now_ms)
    keys = sorted({row.key for row in rows if row.seq <= max_seq})
    return {key: live[key].value if key in live else None for key in keys}


@given(
    rows=ROWS | DISTINCT_PUTS,
    start=st.none() | KEYS,
    end=st.none() | KEYS,
    count=st.integers(1, 40),
    max_seq=st.integers(0, 21),
    now_ms=st.sampled_from([4, 5]),
    last=st.booleans(),
)
def test_first_rows(
    rows: list[Version], start: bytes | None, end: bytes | None, count: int, max_seq: int, now_ms: int, last: bool
) -> None:
    if start is not None and end is not None and start >= end:
        return
    found = BlockRows(columns(newest_first(rows))).first(start, end, count, max_seq, now_ms, last=last)
    inside = {
        key: value
        for key, value in shown(rows, max_seq, now_ms).items()
        if (start is None or key >= start) and (end is None or key < end)
    }
    if found is None:
        assert any(row.seq > max_seq for row in rows)
        return
    keys, values, hides, ended = found
    assert len(keys) == len(values) <= count
    assert list(zip(keys, values, strict=True)) == list(inside.items())[: len(keys)]
    assert hides or None not in values
    if ended:
        assert len(keys) == len(inside)
    elif not keys:
        assert not last
        assert start is not None
        assert all(row.key < start for row in rows)


def test_what_every_reader_sees() -> None:
    plain = [Version(b"%d" % i, b"", 10 - i) for i in range(5)]
    assert BlockRows(columns(plain)).columns.seen_from == 10
    assert BlockRows(columns(plain, with_expiry=True)).columns.seen_from == 10
    for odd in (Version(b"9", b"", 1, DELETE), Version(b"9", b"", 1, PUT, 5), Version(b"4", b"", 1)):
        assert BlockRows(columns([*plain, odd])).columns.seen_from is None


def test_few_rows_become_objects() -> None:
    rows = [Version(b"%04d" % i, b"v", 1) for i in range(1000)]
    found = BlockRows(columns(rows)).first(b"0500", None, 3, MAX_SEQ, 0, last=True)
    assert found == ([b"0500", b"0501", b"0502"], [b"v"] * 3, False, False)
    assert block_rows.SAMPLE_EVERY < 1000


def test_a_merge_operand_is_not_for_a_look() -> None:
    rows = columns([Version(b"a", b"+1", 5, MERGE, NO_EXPIRY)])
    assert BlockRows(rows).first(None, None, 1, 9, 0, last=True) is None


def test_kept_keys_say_the_same() -> None:
    rows = [Version(b"%02d" % i, b"v%d" % i, 1) for i in range(0, 60, 2)]
    plain, keeping = BlockRows(columns(rows)), BlockRows(columns(rows))
    keeping.keys = Keys(keeping)
    for last in (False, True):
        for start in (None, b"", b"10", b"11", b"58", b"59"):
            for end in (None, b"12", b"58", b"59", b"99"):
                if start is not None and end is not None and start >= end:
                    continue
                for count in (1, 3, 100):
                    found = keeping.first(start, end, count, MAX_SEQ, 0, last=last)
                    assert found == plain.first(start, end, count, MAX_SEQ, 0, last=last)


async def test_a_block_that_is_often_read_in_part_keeps_its_keys() -> None:
    cache = BlockCache(1 << 20)
    reader = reader_of(
        CountingStore(), sst_of([R(b"%03d" % i, b"v") for i in range(20)], block_bytes=4000), cache=cache
    )
    assert reader.first_rows(None, None, 1, MAX_SEQ, 0) is None
    (block,) = await reader.load_blocks([0], fill_cache=True)
    rows, before = block.for_scans(), cache.stats().bytes
    for _ in range(WORTH_LOOKS):
        assert rows.keys is None
        assert reader.first_rows(b"005", None, 1, MAX_SEQ, 0) == ([b"005"], [b"v"], False, False)
    kept = rows.keys
    assert kept is not None
    assert cache.stats().bytes == before + kept.nbytes
    assert reader.first_rows(b"005", None, 1, MAX_SEQ, 0) == ([b"005"], [b"v"], False, False)
    assert kept.used
    assert reader.first_rows(b"005", None, 1, 0, 0) is None, "not for readers from before the newest row"
    kept.drop()
    assert rows.keys is None
    assert reader.first_rows(b"0190", None, 1, MAX_SEQ, 0) == NO_KEYS


async def test_keys_that_the_cache_has_no_room_for_are_not_kept() -> None:
    rows = [R(b"%0500d" % i, b"v") for i in range(20)]
    cache = BlockCache(15_000)
    reader = reader_of(CountingStore(), sst_of(rows, block_bytes=40_000), cache=cache)
    (block,) = await reader.load_blocks([0], fill_cache=True)
    assert cache.stats().blocks == 1
    for _ in range(WORTH_LOOKS + 1):
        assert reader.first_rows(rows[5].key, None, 1, MAX_SEQ, 0) == ([rows[5].key], [b"v"], False, False)
    assert block.for_scans().keys is None
