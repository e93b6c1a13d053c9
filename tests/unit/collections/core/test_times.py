"""Times: what users may write, their order, and advancing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slate_async.collections.core import times
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.errors import InvalidError

U64, PAIR = TimeKind.U64, TimeKind.U64X2


@pytest.mark.parametrize(
    ("kind", "value", "time"),
    [
        (U64, 0, (0,)),
        (U64, (7,), (7,)),
        (U64, np.uint64(TIME_END - 1), (TIME_END - 1,)),
        (PAIR, (3, 0), (3, 0)),
        (PAIR, [np.int64(3), 4], (3, 4)),
    ],
)
def test_a_time_is_taken_as_users_write_it(kind: TimeKind, value: Any, time: times.Time) -> None:
    assert kind.time(value) == time
    assert all(type(number) is int for number in kind.time(value))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (U64, -1, "-1 is outside"),
        (U64, TIME_END, f"{TIME_END} is outside the numbers of times, which are 0 to {TIME_END - 1}"),
        (U64, (3, 0), "takes an integer"),
        (U64, True, "True is no number"),
        (U64, 1.0, "1.0 is no number"),
        (U64, "3", "'3' is no number"),
        (U64, None, "None is no number"),
        (PAIR, 3, "takes a tuple of two integers"),
        (PAIR, (3, 0, 1), "takes a tuple of two integers"),
        (PAIR, (3, -1), "-1 is outside"),
    ],
)
def test_what_is_no_time_is_refused(kind: TimeKind, value: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        kind.time(value)


def test_kinds_say_their_columns_and_their_minimum() -> None:
    assert (U64.columns, PAIR.columns) == (("_time",), ("_time", "_time2"))
    assert (U64.minimum, PAIR.minimum) == ((0,), (0, 0))
    assert [TimeKind(name) for name in ("u64", "u64x2")] == [U64, PAIR]


def test_pairs_are_partly_ordered() -> None:
    assert times.less_equal((1, 2), (1, 2))
    assert times.less_equal((1, 2), (2, 2))
    assert not times.less_equal((1, 2), (2, 1))
    assert not times.less_equal((2, 1), (1, 2))
    assert (times.join((1, 2), (2, 1)), times.meet((1, 2), (2, 1))) == ((2, 2), (1, 1))


def test_advancing_meets_what_each_element_gives() -> None:
    """(1, 0) joined with the elements gives (3, 0) and (1, 5); a reader at (3, 0) still tells (1, 5) from (1, 0)."""
    assert times.advance((1, 0), [(3, 0), (0, 5)]) == (1, 0)
    assert times.advance((1, 1), [(3, 2), (2, 5)]) == (2, 2)
    assert times.advance((9,), [(4,)]) == (9,)
    assert times.advance((2,), [(4,)]) == (4,)
    assert times.advance((2,), []) == (2,)


def test_columns_are_advanced_as_times_are() -> None:
    rows = [(0, 0), (5, 1), (2, 9), (TIME_END - 1, 0)]
    columns = tuple(np.array(numbers, np.uint64) for numbers in zip(*rows, strict=True))
    since = [(3, 4), (2, 6)]
    advanced = times.advance_by(columns, since)
    assert [column.dtype for column in advanced] == [np.uint64, np.uint64]
    assert list(zip(*(column.tolist() for column in advanced), strict=True)) == [times.advance(t, since) for t in rows]
    assert times.advance_by(columns, []) is columns
