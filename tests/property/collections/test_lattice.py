"""P2 and P3: times and frontiers are lattices, advancing keeps what readers see, and cuts are where they should be."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.core import times
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import Time, TimeKind
from tests.property.collections.strategies import KINDS, columns, frontiers, grid
from tests.property.collections.strategies import times as any_time

both_kinds = pytest.mark.parametrize("kind", KINDS)


def beyond(frontier: Frontier, kind: TimeKind) -> set[Time]:
    return {time for time in grid(kind) if frontier.less_equal(time)}


@both_kinds
@given(st.data())
def test_frontiers_are_the_lattice_of_what_is_beyond_them(kind: TimeKind, data: st.DataObject) -> None:
    """On the sets of times beyond: ``<=`` is containing, join is intersection, meet is union."""
    a, b = data.draw(frontiers(kind)), data.draw(frontiers(kind))
    assert (a <= b) == (beyond(a, kind) >= beyond(b, kind))
    assert beyond(a.join(b), kind) == beyond(a, kind) & beyond(b, kind)
    assert beyond(a.meet(b), kind) == beyond(a, kind) | beyond(b, kind)
    assert (a == b) == (beyond(a, kind) == beyond(b, kind))
    assert a <= DONE
    assert Frontier.minimum(kind) <= a
    assert a.meet(DONE) == a.join(a) == a.meet(a) == a
    assert (a < b, a > b, a >= b) == (a <= b and a != b, b <= a and a != b, b <= a)


@both_kinds
@given(st.data())
def test_elements_are_an_antichain_and_print_and_parse(kind: TimeKind, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(any_time(kind), max_size=9))
    frontier = Frontier(drawn)
    assert set(frontier.elements) <= set(drawn)
    assert all(not times.less_equal(a, b) for a in frontier.elements for b in frontier.elements if a != b)
    assert all(frontier.less_equal(time) for time in drawn)
    assert Frontier.parse(str(frontier), kind) == frontier
    if drawn:
        assert Frontier.of(drawn, kind) == frontier


@both_kinds
@given(st.data())
def test_advancing_gives_the_greatest_time_that_readers_cannot_tell_apart(kind: TimeKind, data: st.DataObject) -> None:
    since = data.draw(frontiers(kind, done=False))
    time = data.draw(any_time(kind))
    advanced = times.advance(time, since.elements)
    readers = beyond(since, kind)
    same = [
        other
        for other in grid(kind)
        if all(times.less_equal(time, at) == times.less_equal(other, at) for at in readers)
    ]
    assert advanced in same
    assert all(times.less_equal(other, advanced) for other in same)
    assert times.advance(advanced, since.elements) == advanced


@both_kinds
@given(st.data())
def test_advancing_follows_its_definition_in_columns_too(kind: TimeKind, data: st.DataObject) -> None:
    since, further = data.draw(frontiers(kind, done=False)), data.draw(frontiers(kind, done=False))
    rows = data.draw(st.lists(any_time(kind), max_size=8))
    expected = [functools.reduce(times.meet, (times.join(row, f) for f in since.elements)) for row in rows]
    assert [times.advance(row, since.elements) for row in rows] == expected
    advanced = since.advance_by(columns(rows, kind))
    assert list(zip(*(column.tolist() for column in advanced), strict=True)) == expected
    higher = since.join(further)
    for row, now in zip(rows, expected, strict=True):
        assert higher.is_done or times.less_equal(now, times.advance(row, higher.elements))
        assert higher.is_done or times.advance(now, higher.elements) == times.advance(row, higher.elements)


@both_kinds
@given(st.data())
def test_masks_are_the_same_as_single_times(kind: TimeKind, data: st.DataObject) -> None:
    frontier = data.draw(frontiers(kind))
    rows = data.draw(st.lists(any_time(kind), max_size=8))
    assert frontier.mask(columns(rows, kind)).tolist() == [frontier.less_equal(row) for row in rows]


@both_kinds
@given(st.data())
def test_times_compacted_strictly_below_a_cut_fall_on_the_same_side_of_it(kind: TimeKind, data: st.DataObject) -> None:
    """P3, and the definition of strictly below by elements."""
    cut = data.draw(frontiers(kind))
    since = data.draw(st.one_of(frontiers(kind), st.just(cut.step_back())))
    below = since.strictly_below(cut)
    assert below == all(
        any(all(x < y or x == 0 for x, y in zip(s, c, strict=True)) for s in since.elements) for c in cut.elements
    )
    assert cut.step_back().strictly_below(cut)
    assert not below or since <= cut.step_back()
    if not below or since.is_done:
        return
    for time in grid(kind):
        advanced = times.advance(time, since.elements)
        assert cut.less_equal(time) == cut.less_equal(advanced)
        assert not cut.less_equal(time) or advanced == time


@both_kinds
@given(st.data())
def test_a_coarsened_frontier_is_small_and_below(kind: TimeKind, data: st.DataObject) -> None:
    frontier = Frontier(data.draw(st.lists(any_time(kind), max_size=9)))
    limit = data.draw(st.integers(1, 4))
    coarse = frontier.coarsened(limit)
    assert coarse <= frontier
    assert len(coarse.elements) <= limit
    assert len(frontier.elements) > limit or coarse == frontier
