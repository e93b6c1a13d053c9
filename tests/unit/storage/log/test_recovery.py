"""The recovery functions on the examples of the source designs, word for word."""

from __future__ import annotations

import pytest

from slate_async.errors import CorruptionError
from slate_async.storage.log.names import contiguous_key, epoch_key, parse_contiguous, parse_epoch_prefixed
from slate_async.storage.log.recovery import (
    ContiguousWalk,
    EpochRange,
    Verdict,
    owner_of,
    recover_epoch_prefixed,
)


def pairs(text: str) -> list[tuple[int, int]]:
    return [(int(e), int(n)) for e, n in (item.split(".") for item in text.split())]


def test_manifest_design_example() -> None:
    objects = pairs("1.1 1.2 1.3 2.3 1.4 2.4 2.5 2.6 3.6 3.7")
    ranges = [EpochRange(1, 1), EpochRange(2, 3), EpochRange(3, 6)]
    assert recover_epoch_prefixed(objects, ranges, last_compacted=1) == pairs("3.7 3.6 2.5 2.4 2.3 1.2")


def test_compactor_that_starts_after_a_zombies_object_compacts_only_the_log() -> None:
    ranges = [EpochRange(1, 1), EpochRange(2, 3)]
    assert recover_epoch_prefixed(pairs("1.1 1.2 1.3"), ranges, last_compacted=1) == pairs("1.2")


def test_opens_after_that_compaction_never_see_the_zombies_objects() -> None:
    objects = pairs("1.1 1.2 1.3 2.3 1.4 2.4 2.5 2.6 3.6 3.7")
    ranges = [EpochRange(1, 1), EpochRange(2, 3), EpochRange(3, 6)]
    assert recover_epoch_prefixed(objects, ranges, last_compacted=2) == pairs("3.7 3.6 2.5 2.4 2.3")


def test_a_zombie_never_stands_in_for_a_lost_object() -> None:
    ranges = [EpochRange(1, 1), EpochRange(2, 3)]
    assert recover_epoch_prefixed(pairs("1.2 1.3 2.4"), ranges, last_compacted=1) == pairs("1.2")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ("", ""),
        ("1.1", "1.1"),
        ("1.2", ""),  # a gap right above what is compacted: nothing above it was acknowledged
        ("1.1 1.3", "1.1"),
        ("1.1 1.2 1.2 1.1", "1.2 1.1"),
    ],
)
def test_gaps_in_one_epoch(objects: str, expected: str) -> None:
    assert recover_epoch_prefixed(pairs(objects), [EpochRange(1, 1)], last_compacted=0) == pairs(expected)


def test_owner_of_a_position() -> None:
    ranges = [EpochRange(2, 3), EpochRange(5, 3), EpochRange(6, 9)]
    assert [owner_of(n, ranges) for n in (2, 3, 8, 9, 100)] == [None, 5, 5, 6, 6]


def valid(walk: ContiguousWalk, objects: dict[int, int]) -> list[int]:
    """The ids that count, of objects with their epochs, up to the first gap."""
    found: list[int] = []
    while (log_id := walk.next_id) in objects:
        if walk.offer(log_id, objects[log_id]) is Verdict.VALID:
            found.append(log_id)
    return found


def test_alternative_manifest_example() -> None:
    walk = ContiguousWalk(1, 0)
    assert valid(walk, {0: 1, 1: 1, 2: 2, 3: 1, 5: 3}) == [1, 2]
    assert (walk.next_id, walk.floor) == (4, 2)


def test_the_floor_of_the_manifest_unmasks_zombies_from_the_start() -> None:
    assert valid(ContiguousWalk(4, 2), {4: 1, 5: 2, 6: 3}) == [5, 6]


def test_walk_tells_the_walkers_own_fence_and_newer_writers() -> None:
    walk = ContiguousWalk(1, 0, epoch=3)
    assert walk.offer(1, 2) is Verdict.VALID
    assert walk.offer(2, 1) is Verdict.ZOMBIE
    assert walk.offer(3, 4) is Verdict.HIGHER
    assert walk.offer(3, 3) is Verdict.OWN
    assert (walk.next_id, walk.floor) == (3, 2)
    with pytest.raises(ValueError, match="stands at 3"):
        walk.offer(5, 2)


def test_names_round_trip_and_sort_by_position() -> None:
    assert parse_contiguous(contiguous_key(12)) == 12
    assert parse_epoch_prefixed(epoch_key(3, 12)) == (3, 12)
    assert contiguous_key(9) < contiguous_key(10)
    for strange in ("log/1.sst", "log/x", "log/00000000000000000001.sst.tmp"):
        with pytest.raises(CorruptionError):
            parse_contiguous(strange)
