"""Edits are pure, apply once, and know when they can never apply."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.errors import ConflictError, FencedError, InternalError, InvalidError
from slate_async.manifest.edits import AddL0, ClaimWriter
from slate_async.manifest.state import ManifestState, check_successor
from tests.unit.manifest.test_codec import sst

NEW = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)
CLAIMED = replace(NEW, writer_epoch=1, writer_token="me")


def add(number: int, first: int, last: int, **changes: object) -> AddL0:
    values: dict[str, object] = {
        "epoch": 1,
        "from_position": first,
        "to_position": last,
        "sst": sst(number),
        "last_seq": number * 10 + 9,
        "last_tick_ms": 100 * number,
        "log_floor": 1,
        "base_version": 0,
    }
    return AddL0(**{**values, **changes})  # type: ignore[arg-type]


def apply(edit: AddL0 | ClaimWriter, state: ManifestState) -> ManifestState:
    new = edit.apply(state)
    assert new is not None
    check_successor(state, new)
    assert edit.apply(new) is None, "an edit that is in changes nothing"
    return new


def test_claim_takes_the_next_epoch_and_widens_the_fence() -> None:
    first = apply(ClaimWriter("a", 4), NEW)
    assert (first.writer_epoch, first.writer_token, first.fence_width) == (1, "a", 4)
    second = apply(ClaimWriter("b", 2), first)
    assert (second.writer_epoch, second.writer_token, second.fence_width) == (2, "b", 4)


@pytest.mark.parametrize("state", [replace(NEW, destroyed_at_ms=1), replace(NEW, initialized=False)])
def test_claim_refuses_what_cannot_be_opened(state: ManifestState) -> None:
    with pytest.raises(InvalidError):
        ClaimWriter("a", 1).apply(state)


def test_add_moves_the_log_start_and_puts_the_newest_first() -> None:
    state = apply(add(2, 6, 9), apply(add(1, 1, 5), CLAIMED))
    assert [one.location for one in state.l0] == ["sst/2", "sst/1"]
    assert (state.log_start, state.log_floor, state.last_seq, state.last_tick_ms) == (10, 1, 29, 200)


def test_an_added_sst_that_compaction_ate_is_not_added_again() -> None:
    eaten = replace(apply(add(1, 1, 5), CLAIMED), l0=())
    assert add(1, 1, 5).apply(eaten) is None


def test_add_by_an_older_epoch_is_fenced_even_if_it_was_in() -> None:
    with pytest.raises(FencedError):
        add(1, 1, 5).apply(replace(CLAIMED, writer_epoch=2))


def test_add_that_would_leave_a_gap_or_go_back_is_a_bug() -> None:
    with pytest.raises(InternalError):
        add(2, 6, 9).apply(CLAIMED)


def test_add_of_an_sst_that_may_be_deleted_already_is_refused() -> None:
    floored = replace(CLAIMED, sst_floor=7)
    with pytest.raises(ConflictError):
        add(1, 1, 5, base_version=6).apply(floored)
    assert add(1, 1, 5, base_version=7).apply(floored) is not None


def test_positions_without_rows_move_without_an_sst() -> None:
    state = apply(add(0, 1, 4, sst=None, last_seq=0), CLAIMED)
    assert (state.log_start, state.l0) == (5, ())


@pytest.mark.parametrize(
    "broken",
    [
        replace(CLAIMED, writer_epoch=0),
        replace(CLAIMED, log_start=0),
        replace(CLAIMED, database_id=UUID(int=2)),
        replace(CLAIMED, wal_enabled=False),
        replace(CLAIMED, l0=(sst(1), sst(2))),
        replace(CLAIMED, l0=(sst(1), sst(1))),
    ],
)
def test_successors_that_break_an_invariant_are_refused(broken: ManifestState) -> None:
    with pytest.raises(InternalError):
        check_successor(CLAIMED, broken)
