"""A handle: what it takes for its own hold, when it believes a new one, and what it means when something is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.holding import (
    Cover,
    Handle,
    Hold,
    Progress,
    StoredHold,
    Verdict,
    attempt,
    cloning,
    counts,
    covered,
    following_head,
    has_version,
    is_own,
    judge_missing,
    registered,
    registering,
    resolved,
    stands,
    to_write,
    written,
)
from slate_async.errors import ClosedError, InternalError
from tests.support.merged_areas import area_of, at

HEAD = replace(area_of(), bound=at(4))
HELD = written(attempt(registering("r", HEAD, 1000), "n1"), "e1")
CRITICAL = written(attempt(registering("billing", HEAD, None), "c1"), "x1")
OWN = StoredHold(to_write(HELD, "n1"), "e1")
REVOKED = StoredHold(replace(OWN.hold, revoked=True, nonce="s"), "e9")
GHOST = StoredHold(OWN.hold, "e7")


def test_a_new_handle_holds_the_head_and_its_bound() -> None:
    handle = registering("r", HEAD, 1000, "me")
    assert to_write(attempt(handle, "n"), "n") == Hold(9, at(4), 1000, "n", 1, "me")
    assert handle.etag is None


def test_a_critical_one_holds_since_only() -> None:
    hold = to_write(attempt(registering("r", HEAD, None), "n"), "n")
    assert (hold.version, hold.lease_ms, hold.is_critical) == (None, None, True)
    with pytest.raises(InternalError):
        attempt(CRITICAL, "n", version=3)


def test_a_move_gives_up_what_it_had_when_it_is_sent() -> None:
    """C13."""
    moving = attempt(HELD, "n2", version=12, since=at(7))
    assert (moving.version, moving.since, moving.etag) == (12, at(7), "e1")
    assert moving.attempts == {"n2"}
    assert to_write(moving, "n2").beat == OWN.hold.beat + 1


def test_a_hold_never_goes_back() -> None:
    with pytest.raises(InternalError, match="from version 9 to 8"):
        attempt(HELD, "n2", version=8)
    assert attempt(HELD, "n2", since=at(1)).since == at(4)


@pytest.mark.parametrize(
    ("handle", "stored", "progress", "etag"),
    [
        (attempt(registering("r", HEAD, 9), "n1"), None, Progress.AGAIN, None),
        (attempt(registering("r", HEAD, 9), "n1"), OWN, Progress.CONFIRMED, "e1"),
        (attempt(attempt(registering("r", HEAD, 9), "n1"), "n2"), OWN, Progress.CONFIRMED, "e1"),
        (attempt(registering("r", HEAD, 9), "n2"), OWN, Progress.LOST, None),
        (attempt(registering("r", HEAD, 9), "s"), REVOKED, Progress.LOST, None),
        (attempt(HELD, "n2"), None, Progress.LOST, "e1"),
        (attempt(HELD, "n2"), OWN, Progress.AGAIN, "e1"),
        (attempt(HELD, "n2"), StoredHold(replace(OWN.hold, nonce="n2"), "e2"), Progress.CONFIRMED, "e2"),
        (attempt(HELD, "n2"), REVOKED, Progress.LOST, "e1"),
        (attempt(HELD, "n2"), GHOST, Progress.LOST, "e1"),
        (attempt(HELD, "n2"), StoredHold(replace(OWN.hold, nonce="other"), "e2"), Progress.LOST, "e1"),
    ],
)
def test_an_attempt_is_in_iff_its_nonce_is_there(
    handle: Handle, stored: StoredHold | None, progress: Progress, etag: str | None
) -> None:
    """C10."""
    found, after = resolved(handle, stored)
    assert (found, after.etag) == (progress, etag)
    assert not after.attempts if found is Progress.CONFIRMED else after == handle


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(OWN, True), (None, False), (REVOKED, False), (GHOST, False)],
)
def test_a_hold_stands_by_the_etag_that_was_confirmed(stored: StoredHold | None, expected: bool) -> None:
    """C10: one of its name may be a ghost, made again by a registration that landed late."""
    assert stands(HELD, stored) is expected
    assert counts(HELD, stored) is expected


def test_a_move_whose_answer_is_awaited_is_ones_own() -> None:
    moving = attempt(HELD, "n2")
    landed = StoredHold(replace(OWN.hold, nonce="n2"), "e2")
    assert (stands(moving, landed), is_own(moving, landed)) == (False, True)
    assert not is_own(moving, StoredHold(replace(landed.hold, revoked=True), "e2"))
    assert is_own(moving, OWN)


@pytest.mark.parametrize(
    ("floor", "bound", "believed", "version"),
    [(9, 4, True, True), (5, 4, True, True), (10, 4, False, False), (9, 5, False, True)],
)
def test_a_registration_is_believed_by_a_head_read_after_it(
    floor: int, bound: int, believed: bool, version: bool
) -> None:
    """C11."""
    head = replace(HEAD, version=11, floor=floor, bound=at(bound))
    assert registered(HELD, head) is believed
    assert has_version(HELD, head) is version


def test_one_that_is_not_believed_follows_the_head() -> None:
    head = replace(HEAD, version=11, floor=11, bound=at(6))
    version, since = following_head(HELD, head)
    again = attempt(HELD, "n2", version=version, since=since)
    assert (again.version, again.since) == (11, at(6))
    assert registered(written(again, "e2"), head)
    assert following_head(HELD, head, since=False) == (11, None)
    assert following_head(CRITICAL, head) == (None, at(6))


def test_a_critical_registration_needs_no_version() -> None:
    assert registered(CRITICAL, replace(HEAD, floor=99))
    assert not registered(CRITICAL, replace(HEAD, bound=at(5)))


@pytest.mark.parametrize("handle", [HELD, CRITICAL, replace(HELD, since=DONE)])
def test_nothing_is_held_of_a_deleted_collection(handle: Handle) -> None:
    deleted = replace(HEAD, upper=DONE, since=DONE, bound=DONE, deleted=True)
    assert not registered(handle, deleted)
    assert not has_version(handle, deleted)
    with pytest.raises(ClosedError):
        following_head(handle, deleted)


CLONE = cloning("clone", HELD, HEAD, 1000)


@pytest.mark.parametrize(
    ("stored", "cover"),
    [
        (OWN, Cover.ALL),
        (None, Cover.NOTHING),
        (REVOKED, Cover.NOTHING),
        (GHOST, Cover.NOTHING),
        (StoredHold(replace(OWN.hold, version=10), "e1"), Cover.NOTHING),
        (StoredHold(replace(OWN.hold, since=at(5)), "e1"), Cover.NOTHING),
        (StoredHold(replace(OWN.hold, version=3, since=at(1)), "e1"), Cover.ALL),
    ],
)
def test_a_clone_is_believed_by_its_source(stored: StoredHold | None, cover: Cover) -> None:
    """C12: by what the source holds, not by what the head has published, which may be past both."""
    assert (CLONE.version, CLONE.since, CLONE.etag) == (9, at(4), None)
    assert covered(CLONE, HELD, stored) is cover


def test_a_critical_source_covers_since_only() -> None:
    stored = StoredHold(to_write(CRITICAL, "c1"), "x1")
    reader = cloning("reader", CRITICAL, replace(HEAD, version=30), 1000)
    assert reader.version == 30
    assert covered(reader, CRITICAL, stored) is Cover.SINCE
    assert covered(cloning("other", CRITICAL, HEAD, None), CRITICAL, stored) is Cover.ALL
    assert covered(cloning("pin", HELD, HEAD, None), HELD, OWN) is Cover.ALL


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [(OWN, Verdict.CORRUPTED), (None, Verdict.LOST), (REVOKED, Verdict.LOST), (GHOST, Verdict.LOST)],
)
def test_what_is_missing_under_a_hold_that_stands_is_corruption(stored: StoredHold | None, verdict: Verdict) -> None:
    """C15."""
    assert judge_missing(HELD, stored, HEAD) is verdict


def test_what_a_deletion_took_is_no_corruption() -> None:
    deleted = replace(HEAD, upper=DONE, since=DONE, bound=DONE, deleted=True)
    assert judge_missing(HELD, OWN, deleted) is Verdict.DELETED
