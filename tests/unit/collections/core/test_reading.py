"""Which version may be read for what."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.reading import (
    after,
    is_skipped,
    is_worth_moving,
    may_adopt,
    may_read,
    may_restart,
    to_restart_from,
    too_early,
    until_first,
)
from slate_async.collections.core.times import Time, less_equal
from tests.support.merged_areas import ZERO, area_of, at, merged

AREA = area_of([merged("a", 0, 8, since=at(5))])
PAIRS = replace(area_of(), upper=Frontier([(9, 9)]), since=Frontier([(0, 5)]))


@pytest.mark.parametrize(
    ("coverages", "may"),
    [([], True), ([at(8)], True), ([at(9), at(8)], True), ([at(9), at(7)], False), ([DONE], True)],
)
def test_listeners_move_to_a_version_whose_upper_they_have_passed(coverages: list[Frontier], may: bool) -> None:
    """C2."""
    assert may_adopt(AREA, coverages) is may


@pytest.mark.parametrize(("as_of", "may"), [(5, True), (6, True), (4, False)])
def test_a_version_answers_at_and_after_its_since(as_of: int, may: bool) -> None:
    """C3: its own, whatever the handle's is."""
    assert may_read(AREA, (as_of,)) is may


@pytest.mark.parametrize(("coverage", "may"), [(5, False), (6, True), (8, True), (4, False), (9, True)])
def test_a_restart_needs_a_since_strictly_before_it(coverage: int, may: bool) -> None:
    """C2: what was compacted to 5 may have been written before it."""
    assert may_restart(AREA, at(coverage)) is may


def test_what_lies_beyond_the_version_can_always_be_restarted_from() -> None:
    assert may_restart(replace(AREA, since=at(9), bound=at(9)), at(8))


@pytest.mark.parametrize(("coverage", "may"), [((0, 6), True), ((3, 6), True), ((3, 5), False), ((7, 3), False)])
def test_a_restart_in_pairs_is_strict_in_every_coordinate_but_at_zero(coverage: tuple[int, int], may: bool) -> None:
    """C2."""
    assert may_restart(PAIRS, Frontier([coverage])) is may


def test_the_since_to_hold_for_a_restart() -> None:
    assert to_restart_from(at(8)) == at(7)
    assert to_restart_from(ZERO) == ZERO
    for coverage in (at(3), Frontier([(0, 4), (2, 1)])):
        assert to_restart_from(coverage).strictly_below(coverage)


def test_batches_that_a_listener_has_passed_are_skipped() -> None:
    bounds = Bounds(at(3), at(6), ZERO)
    assert [is_skipped(bounds, at(end)) for end in (5, 6, 7)] == [False, True, True]


@pytest.mark.parametrize(
    ("head", "unwritten_ms", "worth"),
    [(9, 0.0, False), (16, 499.0, False), (17, 0.0, True), (9, 500.0, True)],
)
def test_a_hold_is_written_when_it_is_far_behind_or_half_its_lease_is_over(
    head: int, unwritten_ms: float, worth: bool
) -> None:
    assert is_worth_moving(9, head, unwritten_ms, 1000) is worth


@pytest.mark.parametrize(
    ("as_of", "begins"),
    [((4,), Frontier([(5,)])), ((4, 0), Frontier([(5, 0), (0, 1)])), ((0, 0), Frontier([(1, 0), (0, 1)]))],
)
def test_a_listener_begins_with_what_is_not_at_or_before_its_time(as_of: Time, begins: Frontier) -> None:
    assert after(as_of) == begins
    for time in itertools.product(range(7), repeat=len(as_of)):
        assert begins.less_equal(time) is not less_equal(time, as_of)


@pytest.mark.parametrize("lower", [Frontier([(0, 0)]), Frontier([(0, 4), (2, 1)]), Frontier([(3, 0)])])
@pytest.mark.parametrize("upper", [Frontier([(5, 0), (4, 3)]), DONE, Frontier([(9, 9)])])
@pytest.mark.parametrize("first", [0, 2, 3, 5, 12])
def test_a_gap_is_cut_at_a_first_coordinate(lower: Frontier, upper: Frontier, first: int) -> None:
    upper = lower.join(upper)
    end = until_first(lower, upper, first)
    assert lower <= end <= upper
    for time in itertools.product(range(14), repeat=2):
        if lower.less_equal(time) and not upper.less_equal(time):
            assert end.less_equal(time) is (time[0] >= first)


def test_what_is_too_early_is_said_in_words() -> None:
    assert too_early((1,), Frontier([(5,)])) == "as_of 1 is before since 5"
    since = Frontier([(3, 0), (0, 5)])
    assert too_early((1, 2), since) == "as_of (1,2) is not at or beyond any time of since (0,5)|(3,0)"
