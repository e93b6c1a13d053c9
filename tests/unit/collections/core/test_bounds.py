"""Bounds of batches: what lies within, where a batch can be cut, and what neighbours have together."""

from __future__ import annotations

import numpy as np
import pytest

from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.errors import InvalidError


def at(*times: int) -> Frontier:
    return Frontier((time,) for time in times)


def test_lower_is_below_upper() -> None:
    assert Bounds(at(3), at(3), at(0)).is_empty
    assert not Bounds(at(3), DONE, at(0)).is_empty
    with pytest.raises(InvalidError, match="lower 4 is not at or below upper 3"):
        Bounds(at(4), at(3), at(0))
    with pytest.raises(InvalidError, match=r"lower \(0,5\) is not at or below upper \(3,0\)"):
        Bounds(Frontier([(0, 5)]), Frontier([(3, 0)]), Frontier([(0, 0)]))


def test_a_batch_is_about_times_beyond_lower_and_not_beyond_upper() -> None:
    bounds = Bounds(Frontier([(1, 1)]), Frontier([(1, 4), (3, 1)]), Frontier([(0, 0)]))
    rows = [(1, 1), (2, 3), (1, 4), (3, 1), (0, 9), (2, 9)]
    columns = tuple(np.array(numbers, np.uint64) for numbers in zip(*rows, strict=True))
    assert [bounds.contains(time) for time in rows] == [True, True, False, False, False, False]
    assert bounds.mask(columns).tolist() == [bounds.contains(time) for time in rows]


def test_times_as_written_can_be_cut_anywhere() -> None:
    bounds = Bounds(at(0), at(9), at(0))
    assert bounds.cut(at(5)) == Bounds(at(5), at(9), at(0))
    assert bounds.cut(at(0)) == bounds
    assert bounds.cut(at(12)) == Bounds(at(12), at(12), at(0))


def test_compacted_times_are_cut_above_their_since_only() -> None:
    bounds = Bounds(at(0), at(9), at(0)).compacted(at(5)).compacted(at(3))
    assert bounds.since == at(5)
    assert bounds.cut(at(6)).lower == at(6)
    with pytest.raises(InvalidError, match="compacted to 5 cannot be cut at 5"):
        bounds.cut(at(5))


def test_neighbours_span_from_the_first_lower_to_the_last_upper() -> None:
    first, second = Bounds(at(0), at(4), at(3)), Bounds(at(4), DONE, at(1))
    assert spanning([first, second]) == Bounds(at(0), DONE, at(3))
    assert spanning([second]) == second
    with pytest.raises(InvalidError, match="up to done and one from 0 are no neighbours"):
        spanning([second, first])
    with pytest.raises(InvalidError, match="no batch"):
        spanning([])
