"""Rule C4: what extends a coverage, and in which order."""

from __future__ import annotations

import pytest

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.coverage import Reach, extend, reach
from slate_async.collections.core.frontier import DONE, Frontier


def at(*times: int) -> Frontier:
    return Frontier((time,) for time in times)


def batch(lower: int, upper: int | None) -> Bounds:
    return Bounds(at(lower), DONE if upper is None else at(upper), at(0))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (5, 9, Reach.EXTENDS),
        (2, 9, Reach.EXTENDS),
        (2, 5, Reach.COVERED),
        (5, 5, Reach.COVERED),
        (6, 9, Reach.GAP),
        (5, None, Reach.EXTENDS),
        (6, None, Reach.GAP),
    ],
)
def test_a_batch_extends_coverage_iff_it_begins_at_or_below_and_ends_beyond(
    lower: int, upper: int | None, expected: Reach
) -> None:
    found = batch(lower, upper)
    assert reach(at(5), found.lower, found.upper) is expected


def test_nothing_extends_what_is_done() -> None:
    assert reach(DONE, at(3), DONE) is Reach.COVERED
    assert extend(DONE, [batch(0, None)]).taken == ()


def test_the_longest_reach_is_taken_first_and_rows_below_the_coverage_are_not() -> None:
    extension = extend(at(5), [batch(5, 6), batch(3, 8), batch(6, 7), batch(8, 9), batch(10, 12), batch(0, 5)])
    assert extension.coverage == at(9)
    assert [(taken.batch, taken.start, taken.end, taken.is_whole) for taken in extension.taken] == [
        (batch(3, 8), at(5), at(8), False),
        (batch(8, 9), at(8), at(9), True),
    ]


def test_a_limit_bounds_what_is_taken_at_once() -> None:
    chain = [batch(n, n + 1) for n in range(9)]
    extension = extend(at(2), chain, limit=3)
    assert (extension.coverage, [taken.batch for taken in extension.taken]) == (at(5), chain[2:5])
    assert extend(at(2), chain, limit=0).coverage == at(2)


def test_pairs_that_were_blocked_are_looked_at_again() -> None:
    """The first batch ranks below coverage, but begins beyond a part of it until the other one is in."""
    zero = Frontier([(0, 0)])
    covered, moved = Frontier([(0, 6), (6, 0)]), Frontier([(1, 6), (6, 1)])
    blocked = Bounds(Frontier([(1, 1)]), Frontier([(9, 9)]), zero)
    assert reach(covered, blocked.lower, blocked.upper) is Reach.GAP
    assert extend(covered, [blocked]).coverage == covered
    extension = extend(covered, [blocked, Bounds(covered, moved, zero)])
    assert [taken.end for taken in extension.taken] == [moved, Frontier([(9, 9)])]


def test_a_long_chain_in_any_order_is_followed_to_its_end() -> None:
    chain = [batch(n, n + 1) for n in range(3000)]
    assert extend(at(0), [*chain[::-2], *chain[::2]]).coverage == at(3000)
