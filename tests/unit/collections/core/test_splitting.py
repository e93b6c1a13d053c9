"""Key ranges that divide a snapshot."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.core.splitting import KeySplit, Span, split


@pytest.mark.parametrize(
    ("spans", "count", "cuts"),
    [
        ([], 4, []),
        ([Span(b"a", b"z", 100)], 1, []),
        ([Span(b"a", b"c", 10), Span(b"d", b"f", 10)], 2, [b"d"]),
        (
            [Span(b"a", b"a", 10), Span(b"b", b"b", 10), Span(b"c", b"c", 10), Span(b"d", b"d", 10)],
            4,
            [b"b", b"c", b"d"],
        ),
        ([Span(b"a", b"b", 90), Span(b"c", b"c", 5), Span(b"d", b"d", 5)], 2, [b"b"]),
        ([Span(b"a", b"a", 100)], 5, []),
    ],
)
def test_ranges_begin_where_spans_do(spans: list[Span[bytes]], count: int, cuts: list[bytes]) -> None:
    found = split(spans, count)
    assert [part.start for part in found[1:]] == cuts


SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 1000)).map(
        lambda drawn: Span(min(drawn[:2]), max(drawn[:2]), drawn[2])
    ),
    max_size=20,
)


@given(SPANS, st.integers(0, 9))
def test_every_key_is_in_one_range(spans: list[Span[int]], count: int) -> None:
    found = split(spans, count)
    assert 1 <= len(found) <= max(count, 1)
    assert found[0].start is None
    assert found[-1].end is None
    assert all(part.end == after.start for part, after in pairwise(found))
    starts = [part.start for part in found[1:] if part.start is not None]
    assert starts == sorted(set(starts))
    assert len(starts) == len(found) - 1


@given(st.integers(1, 12))
def test_even_weights_are_divided_evenly(count: int) -> None:
    spans = [Span(i, i, 10) for i in range(120)]
    found = split(spans, count)
    assert len(found) == count
    assert max(part.weight for part in found) - min(part.weight for part in found) <= 10
    assert sum(part.weight for part in found) == 1200


def test_overlapping_spans_share_what_lies_between() -> None:
    spans = [Span(0, 9, 100), Span(3, 6, 100)]
    assert split(spans, 2) == [KeySplit(None, 6, 100), KeySplit(6, None, 100)]
