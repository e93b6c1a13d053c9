"""A version of the merged area: what each one must be, and what no edit may take back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slate_async.collections.core.area import (
    Area,
    check_area,
    check_history,
    check_successor,
    find_neighbours,
    level_of,
)
from slate_async.collections.core.frontier import DONE
from slate_async.errors import InternalError
from tests.support.merged_areas import ZERO, area_of, at, merged

A, B, C = merged("a", 0, 3, 5), merged("b", 3, 4, 2, since=at(2)), merged("c", 4, 9)
AREA = area_of([A, B, C], bound=at(4))


@pytest.mark.parametrize(
    ("rows", "level"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (2**20, 20), (2**20 + 1, 21)]
)
def test_a_layer_has_at_most_two_to_its_number_rows(rows: int, level: int) -> None:
    assert level_of(rows) == level == merged("x", 0, 1, rows).level


def test_a_life_begins_empty() -> None:
    first = Area.first(ZERO)
    check_area(first)
    assert (first.version, first.epoch, first.rows, first.names(), first.is_ended) == (0, 0, 0, [], False)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a", "b"], slice(0, 2)),
        (["b", "c"], slice(1, 3)),
        (["c"], slice(2, 3)),
        (["a", "c"], None),
        (["b", "a"], None),
        (["c", "d"], None),
        (["d"], None),
        ([], None),
    ],
)
def test_neighbours_are_found_by_their_names(names: list[str], found: slice | None) -> None:
    assert find_neighbours(AREA.batches, names) == found


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batches": (A, C)}, "begins at 4"),
        ({"batches": (A, B)}, "end at 4"),
        ({"batches": (A, B, replace(C, name="a"))}, "twice"),
        ({"batches": (B, C)}, "begins at 3"),
        ({"since": at(1)}, "beyond since 1"),
        ({"since": at(5)}, "beyond its bound 4"),
        ({"floor": 10}, "later version"),
        ({"deleted": True}, "has ended"),
    ],
)
def test_what_is_no_version_is_refused(changes: dict[str, Any], complaint: str) -> None:
    check_area(AREA)
    with pytest.raises(InternalError, match=complaint):
        check_area(replace(AREA, **changes))


NEXT = AREA.following(epoch=2, floor=7, bound=at(6), since=at(3))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 9},
        {"version": 11},
        {"epoch": 0},
        {"floor": 4},
        {"since": at(1), "batches": (A, replace(B, bounds=replace(B.bounds, since=ZERO)), C)},
        {"bound": at(3)},
        {"upper": at(4), "batches": (A, B)},
        {"unknown": {"new": 1}},
        {"lower": at(3), "batches": (B, C)},
    ],
)
def test_what_goes_back_is_refused(changes: dict[str, Any]) -> None:
    """C26."""
    check_successor(AREA, NEXT)
    with pytest.raises(InternalError):
        check_successor(AREA, replace(NEXT, **changes))


def test_a_deletion_is_not_undone() -> None:
    ended = AREA.following(upper=DONE, since=DONE, bound=DONE, batches=(), deleted=True)
    check_history([AREA, ended, ended.following()])
    with pytest.raises(InternalError, match="deletion"):
        check_history([AREA, ended, ended.following(deleted=False)])


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({"deleted": True}, True),
        ({"upper": DONE, "since": DONE}, True),
        ({"upper": DONE}, False),
        ({"since": DONE}, False),
    ],
)
def test_a_collection_ends_deleted_or_closed_and_given_up(changes: dict[str, Any], ended: bool) -> None:
    assert replace(AREA, **changes).is_ended is ended
