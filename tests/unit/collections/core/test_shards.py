"""Which shard a reader follows, and when it looks at all of them."""

from __future__ import annotations

import itertools

import pytest

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.shards import Following, choose
from tests.support.merged_areas import ZERO, at


def shard(*ends: int) -> list[Bounds]:
    """Batches from each of ``ends`` to the next."""
    return [Bounds(at(lower), at(upper), ZERO) for lower, upper in itertools.pairwise(ends)]


@pytest.mark.parametrize(
    ("shards", "current", "chosen"),
    [
        ({}, None, None),
        ({}, "a", None),
        ({"a": shard(4, 9), "b": shard(5, 7)}, None, "a"),
        ({"a": shard(0, 9), "b": shard(6, 99)}, None, "a"),
        ({"a": shard(5, 6, 9), "b": shard(5, 9)}, None, "b"),
        ({"b": shard(5, 9), "a": shard(5, 9)}, None, "a"),
        ({"a": shard(5, 6), "b": shard(5, 6, 7, 8)}, "a", "a"),
        ({"a": shard(5, 6), "b": shard(5, 6, 7, 8, 9)}, "a", "b"),
        ({"a": shard(3, 5), "b": shard(5, 6)}, "a", "b"),
        ({"a": shard(3, 5), "b": shard(6, 7)}, "a", "a"),
        ({"b": shard(6, 7)}, "a", "b"),
    ],
)
def test_the_longest_reach_wins_but_a_reader_stays_while_its_shard_goes_on(
    shards: dict[str, list[Bounds]], current: str | None, chosen: str | None
) -> None:
    """From a coverage of 5, with a lag of two batches."""
    assert choose(at(5), shards, current, 2) == chosen


def test_all_shards_are_looked_at_when_one_has_been_quiet() -> None:
    following = Following(None, 0.0)
    assert following.is_due(0.0, 100.0)
    following = following.switched("a", 50.0)
    assert [following.is_due(now, 100.0) for now in (149.0, 150.0)] == [False, True]
    assert following.looked(False, 140.0).is_due(150.0, 100.0)
    assert not following.looked(True, 140.0).is_due(150.0, 100.0)
