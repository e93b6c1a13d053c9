"""Edits of the merged area: each applies once, under its epoch only, and takes nothing back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slate_async.collections.core.area import Area, Fuel, check_successor
from slate_async.collections.core.edits import (
    Absorb,
    Claim,
    Finalize,
    Publish,
    ReplaceMerged,
    Tombstone,
    raised,
)
from slate_async.collections.core.frontier import DONE, MAX_ELEMENTS, Frontier
from slate_async.errors import ClosedError, ConflictError, FencedError, InternalError
from tests.support.merged_areas import ZERO, area_of, at, merged, stacked

A, B, C = merged("a", 0, 3, 4), merged("b", 3, 4, 3), merged("c", 4, 9, 8)
AREA = area_of([A, B, C], bound=at(5))
ABSORB = Absorb(1, merged("d", 9, 12, 7), "token-d")
MERGE = ReplaceMerged(1, ("a", "b"), merged("ab", 0, 4, 5, diff_sum=7, since=at(3)))
EDITS = [
    Claim("next"),
    ABSORB,
    MERGE,
    Publish(1, at(6), 7),
    Publish(1, None, None, ABSORB),
    Tombstone("t"),
]


def applied(area: Area, edit: Any) -> Area:
    new = edit.apply(area)
    assert new is not None
    check_successor(area, new)
    return new


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_an_edit_is_in_once(edit: Any) -> None:
    new = applied(AREA, edit)
    assert edit.apply(new) is None


@pytest.mark.parametrize("edit", [*EDITS[1:-1], Finalize(1)], ids=lambda edit: type(edit).__name__)
def test_another_epoch_fences(edit: Any) -> None:
    """C20: judged on the head, an edit of an epoch that is over is not applied."""
    claimed = applied(AREA, Claim("next"))
    assert (claimed.epoch, claimed.token) == (2, "next")
    with pytest.raises(FencedError, match="epoch 2 took over from epoch 1"):
        edit.apply(claimed)


@pytest.mark.parametrize("edit", [*EDITS[:-1], Finalize(1)], ids=lambda edit: type(edit).__name__)
def test_nothing_is_committed_to_a_deleted_collection(edit: Any) -> None:
    deleted = applied(AREA, Tombstone("t"))
    edit = edit if isinstance(edit, Claim) else replace(edit, epoch=deleted.epoch)
    with pytest.raises(ClosedError):
        edit.apply(deleted)


def test_what_is_absorbed_extends_the_collection() -> None:
    new = applied(AREA, ABSORB)
    assert (new.upper, new.last, new.names()) == (at(12), "token-d", ["a", "b", "c", "d"])


def test_what_was_absorbed_from_elsewhere_is_not_applied() -> None:
    """C21: neither across a gap, nor over what is there."""
    with pytest.raises(ConflictError):
        Absorb(1, merged("d", 10, 12), "d").apply(AREA)
    with pytest.raises(ConflictError):
        Absorb(1, merged("d", 4, 12), "d").apply(AREA)


def test_what_was_absorbed_and_merged_since_is_in() -> None:
    """C21: its name is there no more, but the upper has passed it."""
    absorbed = applied(AREA, ABSORB)
    both = merged("cd", 4, 12, 9, diff_sum=15)
    merged_on = applied(absorbed, ReplaceMerged(1, ("c", "d"), both))
    assert ABSORB.apply(merged_on) is None


def test_absorbing_grants_fuel_and_a_merge_takes_its_own_along() -> None:
    paired = applied(stacked(64, 60, 8), Absorb(1, merged("d", 3, 4, 7), ""))
    assert paired.fuel == (Fuel("b0", "b1", 64), Fuel("b2", "d", 15))
    done = applied(paired, ReplaceMerged(1, ("b2", "d"), merged("x", 2, 4, 15)))
    assert done.fuel == (Fuel("b0", "b1", 64),)


def test_what_is_compacted_beyond_since_is_not_absorbed() -> None:
    with pytest.raises(InternalError, match="beyond since"):
        Absorb(1, merged("d", 9, 12, since=at(1)), "").apply(AREA)


def test_a_merge_takes_the_place_of_its_inputs_and_takes_since_along() -> None:
    new = applied(AREA, MERGE)
    assert (new.names(), new.since, new.upper) == (["ab", "c"], at(3), AREA.upper)


@pytest.mark.parametrize("batches", [(C,), (A, C), (merged("z", 0, 4, 7), C)])
def test_a_merge_whose_inputs_are_no_neighbours_any_more_is_not_applied(batches: tuple[Any, ...]) -> None:
    """C21."""
    with pytest.raises(ConflictError, match="merged already"):
        MERGE.apply(replace(AREA, batches=batches))


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (merged("ab", 0, 4, 8, diff_sum=7), "more rows"),
        (merged("ab", 0, 4, 5, diff_sum=6), "add up"),
        (merged("ab", 0, 3, 5, diff_sum=7), "times of its inputs"),
        (merged("ab", 1, 4, 5, diff_sum=7), "times of its inputs"),
        (merged("ab", 0, 4, 5, diff_sum=7, since=at(6)), "the bound is 5"),
    ],
)
def test_a_result_that_does_not_fit_its_inputs_is_a_bug(output: Any, complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint):
        ReplaceMerged(1, ("a", "b"), output).apply(AREA)


def test_a_result_is_not_less_compacted_than_its_inputs() -> None:
    area = area_of([merged("a", 0, 3, since=at(2)), merged("b", 3, 4)], bound=at(2))
    with pytest.raises(InternalError, match="its inputs to 2"):
        ReplaceMerged(1, ("a", "b"), merged("ab", 0, 4, 2, since=at(1))).apply(area)


@pytest.mark.parametrize(
    ("meet", "oldest", "bound", "floor"),
    [
        (at(7), 6, at(7), 6),
        (at(4), 6, at(5), 6),
        (at(7), 3, at(7), 5),
        (None, None, at(5), 10),
        (None, 6, at(5), 6),
        (at(6), None, at(6), 10),
        (DONE, None, DONE, 10),
    ],
)
def test_a_version_publishes_what_the_holds_allow_and_takes_nothing_back(
    meet: Frontier | None, oldest: int | None, bound: Frontier, floor: int
) -> None:
    """C16, C17, C26; without holds the bound stays (C29), and no version is needed but the new one."""
    new = applied(AREA, Publish(1, meet, oldest))
    assert (new.bound, new.floor) == (bound, floor)
    assert new.since == AREA.since


def test_an_idle_controller_publishes_nothing() -> None:
    assert Publish(1, at(5), 5).apply(AREA) is None
    assert Publish(1, at(2), 4).apply(AREA) is None
    newest = applied(AREA, Publish(1, None, None))
    assert Publish(1, None, None).apply(newest) is None


def test_a_hold_on_a_version_newer_than_the_head_known_makes_no_version_that_must_not_be() -> None:
    """Another controller went on, and a reader has its version: the commit shows that, and the edit is judged anew."""
    new = applied(AREA, Publish(1, None, AREA.version + 3))
    assert (new.version, new.floor) == (10, 10)


def test_a_round_is_one_version() -> None:
    new = applied(AREA, Publish(1, at(7), None, ABSORB))
    assert (new.version, new.floor, new.bound, new.upper) == (10, 10, at(7), at(12))


def test_what_is_absorbed_already_is_left_out_of_a_round() -> None:
    absorbed = applied(AREA, ABSORB)
    new = applied(absorbed, Publish(1, at(7), 5, ABSORB))
    assert (new.names(), new.bound) == (absorbed.names(), at(7))


def test_a_round_whose_batch_can_never_apply_is_refused() -> None:
    with pytest.raises(ConflictError):
        Publish(1, at(7), 5, Absorb(1, merged("d", 11, 12), "")).apply(AREA)


def test_a_bound_of_many_elements_stays_small() -> None:
    steps = Frontier((i, 40 - i) for i in range(40))
    bound = raised(Frontier([(0, 0)]), steps)
    assert len(bound.elements) == MAX_ELEMENTS
    assert bound <= steps
    other = Frontier((2 * i, 60 - 3 * i) for i in range(16))
    again = raised(bound, other)
    assert bound <= again
    assert len(again.elements) <= MAX_ELEMENTS


def test_a_deletion_is_refused_while_readers_hold_the_collection() -> None:
    with pytest.raises(ConflictError, match=r"readers hold the collection \(2\): "):
        Tombstone("t", ("billing", "jobs")).apply(AREA)
    deleted = applied(AREA, Tombstone("t"))
    assert (deleted.epoch, deleted.token, deleted.floor, deleted.batches) == (2, "t", 10, ())
    assert deleted.upper == deleted.since == deleted.bound == DONE
    assert Tombstone("another", ("billing",)).apply(deleted) is None


def test_a_closed_collection_ends_when_the_last_time_was_given_up() -> None:
    closed = replace(AREA, upper=DONE, batches=(A, B, replace(C, bounds=replace(C.bounds, upper=DONE))))
    assert Finalize(1).apply(closed) is None
    assert Finalize(1).apply(replace(AREA, bound=DONE)) is None
    given_up = applied(closed, Publish(1, DONE, 6))
    ended = applied(given_up, Finalize(1))
    assert ended.is_ended
    assert (ended.batches, ended.deleted, ended.floor) == ((), False, 6)
    assert Finalize(1).apply(ended) is None


def test_unknown_fields_survive() -> None:
    """C26."""
    newer = replace(AREA, unknown={"layers": 3}, batches=(replace(A, unknown={"bloom": b"x"}), B, C))
    for edit in (Claim("next"), ABSORB, Publish(1, at(6), 7)):
        new = applied(newer, edit)
        assert new.unknown == {"layers": 3}
        assert new.batches[0].unknown == {"bloom": b"x"}


def test_the_first_version_that_is_stored_is_a_claim() -> None:
    claimed = applied(Area.first(ZERO), Claim("first"))
    assert (claimed.version, claimed.epoch) == (1, 1)
