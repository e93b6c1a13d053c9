"""What is written next for a critical hold, from what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.core.critical import downgrading, giving_up, is_registered, opening, standing
from slate_async.collections.core.errors import LeaseLostError, TokenMismatchError
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.errors import ClosedError, InvalidError
from tests.support.merged_areas import area_of, at

NEW = Hold(None, at(5), None, "n1", 1, "bills")
KEPT = replace(NEW, token="day 3", beat=7)
SENT = frozenset[str]()


def stored(hold: Hold) -> StoredHold:
    return StoredHold(hold, "e1")


def test_a_new_one_begins_at_the_bound_and_has_no_token_yet() -> None:
    assert opening("billing", None, area_of(bound=at(5)), "n1", "bills") == NEW
    assert not is_registered(NEW)


def test_it_is_registered_by_a_head_that_has_not_passed_it() -> None:
    """C11."""
    assert opening("billing", stored(NEW), area_of(bound=at(5)), "n2", "") == replace(NEW, token="", nonce="n2", beat=2)
    followed = opening("billing", stored(NEW), area_of(bound=at(8)), "n2", "")
    assert followed == replace(NEW, since=at(8), nonce="n2", beat=2)
    assert not is_registered(followed)


def test_one_that_is_registered_is_taken_as_it_is_wherever_the_bound_has_gone() -> None:
    assert opening("billing", stored(KEPT), area_of(bound=at(8)), "n2", "") is None


def test_one_that_was_given_up_begins_anew_over_the_same_object() -> None:
    """C10."""
    ended = giving_up(stored(KEPT), "n2")
    assert ended == replace(KEPT, revoked=True, nonce="n2", beat=8)
    assert giving_up(stored(ended), "n3") is None
    assert giving_up(None, "n3") is None
    assert opening("billing", stored(ended), area_of(bound=at(8)), "n3", "again") == replace(
        NEW, since=at(8), nonce="n3", beat=9, note="again"
    )


def test_a_deleted_collection_and_a_leased_hold_are_refused() -> None:
    with pytest.raises(ClosedError, match="was deleted"):
        opening("billing", None, area_of(deleted=True), "n1", "")
    with pytest.raises(InvalidError, match="billing is the hold of a reader with a lease"):
        opening("billing", stored(Hold(3, at(5), 1000, "n")), area_of(), "n1", "")


def test_a_downgrade_wants_the_token_that_is_stored() -> None:
    wanted = downgrading("billing", stored(KEPT), "day 3", "day 4", at(9), "n2", SENT)
    assert wanted == replace(KEPT, token="day 4", since=at(9), nonce="n2", beat=8)
    back = downgrading("billing", stored(KEPT), "day 3", "day 4", at(2), "n2", SENT)
    assert back is not None
    assert back.since == at(5)
    with pytest.raises(TokenMismatchError, match="has the token 'day 3' and since 5, not 'day 2'") as raised:
        downgrading("billing", stored(KEPT), "day 2", "day 4", at(9), "n2", SENT)
    assert (raised.value.token, raised.value.since, raised.value.outcome) == ("day 3", at(5), "not_applied")


def test_an_attempt_whose_answer_was_lost_is_known_by_its_nonce() -> None:
    """C10."""
    mine = replace(KEPT, token="day 4", nonce="n2")
    assert downgrading("billing", stored(mine), "day 3", "day 4", at(9), "n3", frozenset({"n2"})) is None
    with pytest.raises(TokenMismatchError) as raised:
        downgrading("billing", stored(replace(mine, nonce="x")), "day 3", "day 4", at(9), "n3", frozenset({"n2"}))
    assert raised.value.outcome == "unknown"


@pytest.mark.parametrize("found", [None, stored(NEW), stored(replace(KEPT, revoked=True))])
def test_one_that_does_not_stand_keeps_nothing(found: StoredHold | None) -> None:
    with pytest.raises(LeaseLostError, match="the critical hold billing was given up; open it again"):
        standing("billing", found)
    with pytest.raises(LeaseLostError):
        downgrading("billing", found, "", "day 1", at(9), "n2", SENT)
