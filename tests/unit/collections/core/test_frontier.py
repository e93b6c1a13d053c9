"""Frontiers: what users may write, text and back, their order."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from slate_async.collections.core.frontier import DONE, MAX_ELEMENTS, MAX_JOINED, Frontier, join_all, meet_all
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.errors import InvalidError

U64, PAIR = TimeKind.U64, TimeKind.U64X2
STAIRS = [(n, MAX_ELEMENTS - n) for n in range(MAX_ELEMENTS + 1)]
LONG = [(n, MAX_JOINED - n) for n in range(MAX_JOINED + 1)]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (U64, 120, "120"),
        (U64, [120, 7], "7"),
        (U64, TIME_END, str(TIME_END)),
        (U64, DONE, "done"),
        (U64, Frontier([(4,)]), "4"),
        (PAIR, (3, 0), "(3,0)"),
        (PAIR, [(3, 0), (0, 5)], "(0,5)|(3,0)"),
        (PAIR, ((3, 0), (0, 5), (3, 5), (3, 0)), "(0,5)|(3,0)"),
        (PAIR, DONE, "done"),
        (PAIR, Frontier(LONG[1:]), "|".join(f"({a},{b})" for a, b in LONG[1:])),
        (PAIR, STAIRS[1:], "|".join(f"({a},{b})" for a, b in STAIRS[1:])),
    ],
)
def test_a_frontier_is_taken_as_users_write_it_and_prints_and_parses(kind: TimeKind, value: Any, text: str) -> None:
    frontier = Frontier.of(value, kind)
    assert (str(frontier), repr(frontier)) == (text, f"Frontier({text})")
    assert Frontier.parse(text, kind) == frontier
    assert hash(Frontier.parse(text, kind)) == hash(frontier)
    assert pickle.loads(pickle.dumps(frontier)) == frontier


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (U64, (3, 0), "takes an integer"),
        (U64, TIME_END + 1, "is outside"),
        (U64, -1, "-1 is outside"),
        (U64, [], "written DONE"),
        (U64, "120", "'120' is no number"),
        (U64, Frontier([(3, 0)]), r"the frontier \(3,0\) has no u64 times"),
        (PAIR, 3, "takes a tuple of two integers"),
        (PAIR, [3, 0], "3 is no u64x2 time"),
        (PAIR, STAIRS, "at most 16 elements, not 17"),
        (PAIR, Frontier(LONG), "at most 256 elements, not 257"),
        (PAIR, Frontier([(3,)]), "has no u64x2 times"),
        (U64, Frontier([(TIME_END + 1,)]), "is outside"),
        (U64, Frontier([(-1,)]), "-1 is outside"),
    ],
)
def test_what_is_no_frontier_is_refused(kind: TimeKind, value: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        Frontier.of(value, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(U64, text) for text in ("", "007", "-1", "1|2", "(3,0)", "Done", "1 ", "9" * 20, str(TIME_END + 1), "٣")]
    + [(PAIR, str(Frontier(LONG)))]
    + [(PAIR, text) for text in ("", "3", "(3,0)|", "(3, 0)", "(3,0,1)", "(03,0)", f"({TIME_END + 1},0)")],
)
def test_text_that_is_no_frontier_is_refused(kind: TimeKind, text: str) -> None:
    with pytest.raises(InvalidError):
        Frontier.parse(text, kind)


def test_elements_are_minimal_and_sorted() -> None:
    assert Frontier([(3, 0), (0, 5), (4, 4), (0, 5), (3, 7)]).elements == ((0, 5), (3, 0))
    assert Frontier([(3, 0), (0, 5)]) == Frontier([(0, 5), (3, 0)])
    assert Frontier().elements == () == DONE.elements
    assert (DONE.is_done, Frontier.minimum(PAIR).is_done) == (True, False)


def test_order_is_partial() -> None:
    low, left, right = Frontier([(0, 5), (3, 0)]), Frontier([(0, 6)]), Frontier([(4, 0)])
    assert low < left < DONE
    assert right > low
    assert not left <= right
    assert not left >= right
    assert low <= Frontier([(0, 5), (3, 0)])
    assert not low < Frontier([(0, 5), (3, 0)])
    assert not left >= DONE
    assert DONE <= DONE


def test_join_and_meet() -> None:
    low, high = Frontier([(0, 5), (3, 0)]), Frontier([(2, 2)])
    assert low.join(high) == Frontier([(2, 5), (3, 2)])
    assert low.meet(high) == Frontier([(0, 5), (2, 2), (3, 0)])
    assert low.join(DONE) == DONE
    assert low.meet(DONE) == low
    assert join_all([high, Frontier([(9, 0)])], low) == Frontier([(9, 2)])
    assert meet_all([high, low]) == low.meet(high)
    assert meet_all([]) == DONE


def test_times_beyond_a_frontier() -> None:
    frontier = Frontier([(0, 5), (3, 0)])
    rows = [(0, 5), (2, 4), (3, 0), (9, 9), (0, 4), (TIME_END - 1, 0)]
    columns = tuple(np.array(numbers, np.uint64) for numbers in zip(*rows, strict=True))
    assert frontier.mask(columns).tolist() == [True, False, True, True, False, True]
    assert [frontier.less_equal(time) for time in rows] == frontier.mask(columns).tolist()
    assert not DONE.mask(columns).any()
    assert not Frontier([(TIME_END,)]).mask(columns[:1]).any()


def test_what_is_compacted_to_a_frontier_strictly_below_can_be_cut() -> None:
    assert Frontier([(4,)]).strictly_below(Frontier([(5,)]))
    assert not Frontier([(5,)]).strictly_below(Frontier([(5,)]))
    assert Frontier([(0,)]).strictly_below(Frontier([(0,)]))
    assert Frontier([(2, 0)]).strictly_below(Frontier([(3, 0)]))
    assert not Frontier([(2, 1)]).strictly_below(Frontier([(3, 1)]))
    assert not Frontier([(2, 0)]).strictly_below(Frontier([(0, 5), (3, 0)]))
    assert Frontier([(3, 0), (0, 5)]).step_back() == Frontier([(2, 0), (0, 4)])
    assert DONE.step_back() == DONE


def test_a_large_meet_is_coarsened_from_below() -> None:
    large = Frontier(STAIRS)
    small = large.coarsened()
    assert small.elements == (*STAIRS[:15], (15, 0))
    assert small < large
    assert small.coarsened() is small
