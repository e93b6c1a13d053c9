"""Appends of ``compare`` collections: where the chain ends, and which append is part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.core.chain import Link, Put, Walk, is_acknowledged, is_dead, judge_put
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.errors import CorruptionError
from tests.support.merged_areas import ZERO, area_of, at, merged

HEAD = area_of([merged("a", 0, 5)], last="t5")
MINE = Link(at(5), at(9), "mine")


def test_a_walk_goes_from_the_head_along_the_chain() -> None:
    walk = Walk.from_head(HEAD)
    assert walk == Walk(at(5), at(5))
    walk = walk.past(MINE, "x")
    walk = walk.past(Link(at(9), DONE, "last"), "y")
    assert (walk.began, walk.at, walk.last) == (at(5), DONE, Link(at(9), DONE, "last"))


@pytest.mark.parametrize(
    "link", [Link(at(4), at(9), "t"), Link(at(5), at(5), "t"), Link(at(5), at(3), "t"), Link(at(6), at(9), "t")]
)
def test_what_lies_under_a_name_begins_there_and_leads_on(link: Link) -> None:
    with pytest.raises(CorruptionError, match="batch-5"):
        Walk.from_head(HEAD).past(link, "batch-5")


@pytest.mark.parametrize(("upper", "counts"), [(5, True), (6, False), (9, False)])
def test_an_end_counts_iff_the_head_has_not_moved_on(upper: int, counts: bool) -> None:
    """C9: else what was not found may have been collected."""
    walk = Walk.from_head(HEAD).past(MINE, "x")
    assert walk.counts(area_of([merged("a", 0, upper)])) is counts


@pytest.mark.parametrize(
    ("lower", "merged_upper", "dead"),
    [
        (at(4), at(5), True),
        (at(5), at(5), False),
        (at(6), at(5), False),
        (ZERO, DONE, True),
        (Frontier([(0, 4)]), Frontier([(0, 4), (2, 0)]), False),
        (Frontier([(0, 4), (2, 0)]), Frontier([(0, 4)]), True),
        (Frontier([(3, 0)]), Frontier([(0, 3)]), True),
    ],
)
def test_a_batch_from_before_the_merged_upper_is_dead(lower: Frontier, merged_upper: Frontier, dead: bool) -> None:
    """C7: wherever it ends."""
    assert is_dead(lower, merged_upper) is dead


def test_what_lies_there_says_what_became_of_a_put() -> None:
    assert judge_put(MINE, None) is Put.UNKNOWN
    assert judge_put(MINE, MINE) is Put.OWN
    assert judge_put(MINE, replace(MINE, token="theirs")) is Put.TAKEN


@pytest.mark.parametrize(
    ("upper", "last", "acknowledged"),
    [(3, "t3", True), (5, "t5", True), (9, "mine", True), (9, "theirs", False), (6, "t6", False), (12, "mine", False)],
)
def test_an_append_is_acknowledged_by_a_head_read_after_its_put(upper: int, last: str, acknowledged: bool) -> None:
    """C8."""
    assert is_acknowledged(MINE, area_of([merged("a", 0, upper)], last=last)) is acknowledged
