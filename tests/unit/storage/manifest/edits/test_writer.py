"""Edits are pure, apply once, and know when they can never apply."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.errors import ConflictError, FencedError, InternalError, InvalidError
from slate_async.storage.manifest.edits.writer import AddL0, ClaimWriter, PassFences, PinWriter, WriterPin
from slate_async.storage.manifest.sst_names import SstNames
from slate_async.storage.manifest.state import THIS_VERSION, Checkpoint, ManifestState, SeqTime
from slate_async.storage.manifest.successor import check_successor
from tests.support.sst_refs import sst

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


def apply(edit: AddL0 | ClaimWriter | PassFences | PinWriter, state: ManifestState) -> ManifestState:
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
    assert [sst.location for sst in state.l0] == ["sst/2", "sst/1"]
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


# ---- the writer's own checkpoints


def pin(number: int, *, epoch: int = 1, owner: str = "writer") -> Checkpoint:
    return Checkpoint(UUID(int=number), THIS_VERSION, 0, owner, 1, epoch=epoch)  # type: ignore[arg-type]


def new_pin(number: int, *keep: int, **more: object) -> WriterPin:
    return WriterPin(UUID(int=number), 50, frozenset(UUID(int=identity) for identity in keep), **more)  # type: ignore[arg-type]


def pins_of(state: ManifestState) -> list[int]:
    return [checkpoint.id.int for checkpoint in state.checkpoints]


def test_a_claim_leaves_one_writer_checkpoint_its_own() -> None:
    user = pin(1, owner="user")
    state = replace(CLAIMED, log_start=7, checkpoints=(pin(2), user, pin(3, epoch=0)))
    claimed = apply(ClaimWriter("b", 1, new_pin(4)), state)
    assert claimed.checkpoints == (user, replace(pin(4, epoch=2), log_start=7, create_ms=50))


def test_a_claim_without_one_leaves_none() -> None:
    assert apply(ClaimWriter("b", 1), replace(CLAIMED, checkpoints=(pin(2),))).checkpoints == ()


def test_a_claim_writes_what_settings_say_and_leaves_what_they_do_not() -> None:
    first = apply(ClaimWriter("b", 1, retention_ms=9, compaction="leveled"), CLAIMED)
    assert (first.retention_ms, first.compaction) == (9, "leveled")
    second = apply(ClaimWriter("c", 1), first)
    assert (second.retention_ms, second.compaction) == (9, "leveled")
    assert apply(ClaimWriter("d", 1, retention_ms=0), second).retention_ms == 0


def test_adding_an_sst_pins_it_in_the_same_step() -> None:
    state = replace(CLAIMED, checkpoints=(pin(1), pin(2), pin(3, owner="reader")))
    added = apply(add(1, 1, 5, pin=new_pin(4, 2)), state)
    assert pins_of(added) == [2, 3, 4]
    assert added.checkpoints[-1].log_start == added.log_start == 6


def test_moving_the_logs_start_alone_pins_nothing() -> None:
    state = replace(CLAIMED, checkpoints=(pin(1),))
    assert apply(add(1, 1, 5, sst=None, pin=new_pin(4)), state).checkpoints == state.checkpoints


def test_a_pin_whose_ssts_the_new_one_holds_too_goes_with_it() -> None:
    first = sst(1)
    state = replace(CLAIMED, l0=(first,), checkpoints=(pin(1), pin(2)))
    merged = new_pin(4, 1, 2, instead_of=UUID(int=1), covering=SstNames(state))
    assert pins_of(apply(add(2, 1, 5, pin=merged), state)) == [2, 4]
    compacted = replace(state, l0=())
    assert pins_of(apply(add(2, 1, 5, pin=merged), compacted)) == [1, 2, 4]


def test_pinning_removes_what_nobody_reads_of_this_epoch_only() -> None:
    state = replace(CLAIMED, checkpoints=(pin(1), pin(2), pin(3, owner="clone"), pin(9, epoch=7)))
    assert pins_of(apply(PinWriter(1, new_pin(4, 1)), state)) == [1, 3, 9, 4]


def test_pinning_by_an_older_epoch_is_fenced_even_if_it_was_in() -> None:
    edit = PinWriter(1, new_pin(4))
    with pytest.raises(FencedError):
        edit.apply(replace(apply(edit, CLAIMED), writer_epoch=2))


def test_a_flush_says_when_its_rows_were_written() -> None:
    state = apply(add(1, 1, 5, last_write_ms=77), CLAIMED)
    assert state.seq_times == (SeqTime(19, 77),)
    assert apply(add(2, 6, 9), state).seq_times == state.seq_times


def test_a_claim_instead_of_a_writer_fences_nobody_else() -> None:
    for watched, state in (("me", CLAIMED), ("", NEW)):
        claimed = apply(ClaimWriter("b", 1, instead_of=watched, heartbeat_interval_ms=7), state)
        assert (claimed.writer_token, claimed.heartbeat_interval_ms) == ("b", 7)
        assert ClaimWriter("b", 1, instead_of=watched).apply(claimed) is None, "it is in"
        with pytest.raises(FencedError) as raised:
            ClaimWriter("c", 1, instead_of=watched).apply(claimed)
        assert raised.value.outcome == "not_applied"
    assert apply(ClaimWriter("d", 1), claimed).heartbeat_interval_ms is None


def test_fences_are_passed_over_with_the_floor_of_the_writer_that_saw_them() -> None:
    state = apply(PassFences("me", 12), replace(CLAIMED, writer_epoch=7, log_start=5, log_floor=3))
    assert (state.log_start, state.log_last_seen, state.log_floor) == (13, 12, 7)
    further = replace(state, log_start=20)
    assert PassFences("me", 12).apply(further) is None


@pytest.mark.parametrize("log_start", [5, 13])
def test_fences_are_passed_over_under_the_newest_claim_only_even_if_it_was_in(log_start: int) -> None:
    with pytest.raises(FencedError):
        PassFences("me", 12).apply(replace(CLAIMED, writer_token="another", log_start=log_start))
