"""`Covers` against a look at every range delete, and the views that use it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.covers import Covers
from slate_async.types import MAX_SEQ, NO_END, RangeDelete
from tests.support.rows import R, columns_of

KEYS = [bytes([letter]) for letter in b"abcdefgh"]


@st.composite
def deletes(draw: st.DrawFn) -> list[RangeDelete]:
    """Some of them, of different numbers."""
    found: list[RangeDelete] = []
    for seq in draw(st.lists(st.integers(1, 20), unique=True, max_size=8)):
        start, end = sorted(draw(st.lists(st.sampled_from(KEYS), min_size=2, max_size=2, unique=True)))
        found.append(RangeDelete(seq, start, draw(st.sampled_from([end, NO_END])), 0))
    return found


def slow_floor(known: list[RangeDelete], key: bytes, max_seq: int) -> int:
    over = [delete.seq for delete in known if delete.start <= key < delete.end]
    return max((seq for seq in over if seq <= max_seq), default=0)


@given(known=deletes(), max_seq=st.integers(0, 25))
def test_the_floor_is_that_of_the_newest_range_delete_over_the_key(known: list[RangeDelete], max_seq: int) -> None:
    covers = Covers(known)
    for key in [b"\0", b"A", *KEYS, *(key + b"x" for key in KEYS)]:
        assert covers.floor(key, max_seq) == slow_floor(known, key, max_seq)


@given(known=deletes())
def test_newer_ones_one_by_one_are_the_same_as_all_at_once(known: list[RangeDelete]) -> None:
    known.sort(key=lambda delete: delete.seq)
    covers = Covers()
    for delete in known:
        covers = covers.with_newer(delete)
    for key in [b"\0", *KEYS, *(key + b"x" for key in KEYS)]:
        for max_seq in (*(delete.seq for delete in known), MAX_SEQ):
            assert covers.floor(key, max_seq) == slow_floor(known, key, max_seq)
    assert covers.newest_seq == max((delete.seq for delete in known), default=0)


@given(known=deletes(), seq=st.integers(0, 20))
def test_undone_ones_hide_nothing(known: list[RangeDelete], seq: int) -> None:
    covers = Covers(known).up_to(seq)
    for key in KEYS:
        assert covers.floor(key, MAX_SEQ) == slow_floor(known, key, seq)


@given(known=deletes(), bounds=st.lists(st.sampled_from(KEYS), min_size=2, max_size=2), max_seq=st.integers(0, 25))
def test_a_span_is_met_where_any_of_its_keys_may_be_hidden(
    known: list[RangeDelete], bounds: list[bytes], max_seq: int
) -> None:
    covers, (start, end) = Covers(known), sorted(bounds)
    if start < end:
        assert covers.meets(KeyRange(start, end)) == any(delete.start < end and start < delete.end for delete in known)
    assert covers.meets(KeyRange(None, None)) == bool(known)
    newest = 10
    hidden = all(slow_floor(known, key, max_seq) > newest for key in [start, start + b"x", end] if start <= key <= end)
    if covers.hide(start, end, newest, max_seq):
        assert hidden


@given(
    known=deletes(),
    rows=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 25)), unique=True, max_size=20),
    max_seq=st.integers(0, 25),
)
def test_rows_are_visible_unless_a_newer_range_delete_lies_over_them(
    known: list[RangeDelete], rows: list[tuple[bytes, int]], max_seq: int
) -> None:
    rows.sort(key=lambda row: (row[0], -row[1]))
    covers = Covers(known)
    batch = columns_of([R(key, b"v", seq) for key, seq in rows])
    seen = covers.visible(batch, max_seq)
    expected = [(key, seq) for key, seq in rows if seq >= slow_floor(known, key, max_seq)]
    assert list(zip(seen.keys.to_pylist(), seen.seqs.tolist(), strict=True)) == expected
