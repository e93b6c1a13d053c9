"""Which holds stand, and what they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slate_async.collections.core.frontier import DONE, MAX_ELEMENTS, Frontier
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.collections.core.sweep import (
    LOOKS_A_LEASE,
    Allowed,
    Leases,
    Listing,
    allowed,
    compaction_target,
    may_end,
    revoking,
    to_remove,
)
from tests.support.merged_areas import area_of, at, merged

LEASED = Hold(7, at(5), 100, "n1")
CRITICAL = Hold(None, at(3), None, "n2")


def test_holds_are_listed_until_no_name_is_new() -> None:
    """C18: a clone may come while its source is read, after which that may move on."""
    listing = Listing().listed(["a", "b"])
    assert (listing.unread, listing.complete) == ({"a", "b"}, False)
    listing = listing.read().listed(["b", "c"])
    assert (listing.unread, listing.complete) == ({"c"}, False)
    listing = listing.read().listed(["c", "a"])
    assert (listing.unread, listing.complete) == (set(), True)
    assert Listing().listed([]).complete


def test_a_lease_runs_out_by_the_clock_of_the_process_that_looks() -> None:
    """C19: what counts is how long the etag was seen unchanged."""
    held = {"r": StoredHold(LEASED, "e1"), "c": StoredHold(CRITICAL, "x1")}
    leases = Leases().noted(held, 50.0)
    for now in (75.0, 100.0, 125.0, 149.0):
        assert leases.expired(held, now) == []
        leases = leases.noted(held, now)
    renewed = {**held, "r": StoredHold(LEASED, "e2")}
    assert leases.expired(renewed, 150.0) == []
    assert leases.noted(renewed, 150.0).expired(renewed, 175.0) == []
    assert leases.expired(held, 150.0) == ["r"]


def test_of_the_time_in_which_nobody_looked_a_part_of_a_lease_counts() -> None:
    """C19: the reader may have been cut off as well, and is heard before the rest is over."""
    held = {"r": StoredHold(LEASED, "e1")}
    leases = Leases().noted(held, 0.0).noted(held, 25.0).noted(held, 50.0).noted(held, 9_000.0)
    assert leases.expired(held, 9_020.0) == []
    assert leases.expired(held, 9_025.0) == ["r"]


def test_a_lease_ends_however_rarely_somebody_looks() -> None:
    held, leases = {"r": StoredHold(LEASED, "e1")}, Leases()
    for look in range(LOOKS_A_LEASE):
        assert leases.expired(held, look * 1_000.0) == []
        leases = leases.noted(held, look * 1_000.0)
    assert leases.expired(held, LOOKS_A_LEASE * 1_000.0) == ["r"]


def test_a_hold_that_was_not_seen_before_has_its_whole_lease() -> None:
    assert Leases().expired({"r": StoredHold(LEASED, "e1")}, 9999.0) == []


def test_what_is_not_there_any_more_is_forgotten() -> None:
    held = {"r": StoredHold(LEASED, "e1")}
    assert Leases().noted(held, 0.0).noted({}, 50.0).noted(held, 60.0).expired(held, 159.0) == []


def test_what_is_revoked_is_not_revoked_again() -> None:
    held = {"r": StoredHold(revoking(LEASED, "s"), "e1")}
    assert held["r"].hold == replace(LEASED, revoked=True, nonce="s")
    assert Leases().noted(held, 0.0).expired(held, 999.0) == []


def test_revoked_holds_may_be_removed_and_all_of_a_deleted_collection() -> None:
    held = {"r": StoredHold(revoking(LEASED, "s"), "e1"), "c": StoredHold(CRITICAL, "x1")}
    assert to_remove(area_of(), held) == ["r"]
    assert to_remove(area_of(deleted=True), held) == ["r", "c"]


def test_a_critical_hold_that_was_given_up_stays_because_its_name_may_be_taken_again() -> None:
    held = {"c": StoredHold(revoking(CRITICAL, "s"), "e1")}
    assert to_remove(area_of(), held) == []
    assert to_remove(area_of(deleted=True), held) == ["c"]


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([], Allowed(None, None)),
        ([LEASED], Allowed(at(5), 7)),
        ([LEASED, CRITICAL], Allowed(at(3), 7)),
        ([CRITICAL], Allowed(at(3), None)),
        ([LEASED, replace(LEASED, version=4, since=at(9))], Allowed(at(5), 4)),
        ([replace(LEASED, revoked=True), CRITICAL], Allowed(at(3), None)),
        ([replace(LEASED, revoked=True)], Allowed(None, None)),
        ([replace(LEASED, since=DONE)], Allowed(DONE, 7)),
    ],
)
def test_all_holds_that_stand_are_asked(holds: Sequence[Hold], expected: Allowed) -> None:
    """C16, C17, C29."""
    assert allowed(holds) == expected


@pytest.mark.parametrize(
    ("bound", "meet", "target"),
    [
        (6, at(9), at(6)),
        (6, at(4), at(4)),
        (6, None, at(6)),
        (None, DONE, at(2)),
        (None, at(8), at(8)),
        (6, DONE, at(6)),
    ],
)
def test_compaction_goes_to_what_was_published_and_is_still_allowed(
    bound: int | None, meet: Frontier | None, target: Frontier
) -> None:
    """C16. Where no time is left to advance to, since stays."""
    head = area_of([merged("a", 0, 9, since=at(2))], bound=DONE if bound is None else at(bound))
    assert compaction_target(head, meet) == target


def test_a_target_has_few_elements() -> None:
    meet = Frontier((i, 40 - i) for i in range(40))
    target = compaction_target(replace(area_of(), bound=meet), meet)
    assert len(target.elements) == MAX_ELEMENTS
    assert target <= meet


@pytest.mark.parametrize(
    ("bound", "meet", "ends"),
    [(DONE, DONE, True), (DONE, None, True), (at(5), DONE, False), (DONE, at(5), False)],
)
def test_a_collection_ends_by_what_was_published_and_the_holds_listed_after_that(
    bound: Frontier, meet: Frontier | None, ends: bool
) -> None:
    """C16."""
    assert may_end(replace(area_of(), bound=bound), meet) == ends
