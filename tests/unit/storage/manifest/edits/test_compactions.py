"""Edits of the compactor: each applies once, under its epoch only, and leaves the database's rows in age order."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from msgspec import structs

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError, FencedError, InternalError, InvalidError
from slate_async.storage.manifest.compaction_inputs import Inputs
from slate_async.storage.manifest.edits.compactions import (
    ClaimCompactor,
    CommitCompaction,
    DropCompaction,
    FinishRange,
    LogTaken,
    MoveSsts,
    RegisterCompaction,
    ReleaseCompactor,
)
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.edits.writer import AddL0, ClaimWriter
from slate_async.storage.manifest.state import (
    Compaction,
    ManifestState,
    RangeOutput,
    SeqTime,
    SortedRun,
    SstRef,
)
from slate_async.storage.manifest.successor import check_successor
from tests.support.sst_refs import sst


def keyed(number: int, first: bytes = b"a", last: bytes = b"z") -> SstRef:
    return structs.replace(sst(number), first_key=first, last_key=last)


L0 = (keyed(9), keyed(8), keyed(7))
RUNS = (SortedRun(2, (keyed(5, b"a", b"f"), keyed(6, b"g", b"z"))), SortedRun(1, (keyed(1),)))
STATE = ManifestState(
    database_id=UUID(int=1),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(20, "2" * 32),
    writer_epoch=3,
    compactor_epoch=4,
    compactor_token="mine",
    log_start=10,
    last_seq=99,
    last_run_id=2,
    l0=L0,
    runs=RUNS,
)
ONE, TWO = UUID(int=501), UUID(int=502)


def compaction(number: UUID = ONE, **more: object) -> Compaction:
    """The two oldest of L0 into a run of their own, unless ``more`` says otherwise."""
    values: dict[str, object] = {
        "epoch": 4,
        "base_version": 20,
        "expired_at_ms": 1_000,
        "keep_above": 99,
        "bottom": False,
        "l0": (L0[1].object_id, L0[2].object_id),
        "runs": (),
        "target_run": 3,
        "target_level": 0,
    }
    return Compaction(id=number, **{**values, **more})  # type: ignore[arg-type]


def apply(edit: Edit, state: ManifestState) -> ManifestState:
    new = edit.apply(state)
    assert new is not None
    check_successor(state, new)
    assert edit.apply(new) is None, "an edit that is in changes nothing"
    return new


def output(index: int, *ssts: SstRef) -> RangeOutput:
    return RangeOutput(index, ssts)


OUT = keyed(20, b"b", b"y")
REGISTERED = apply(RegisterCompaction(compaction()), STATE)
COMMIT = CommitCompaction(4, ONE, (output(0, OUT),))


# ---- the role


def test_a_claim_takes_the_next_epoch_and_what_the_older_one_left() -> None:
    claimed = apply(ClaimCompactor("other"), REGISTERED)
    assert (claimed.compactor_epoch, claimed.compactor_token) == (5, "other")
    assert claimed.compactions == (replace(compaction(), epoch=5),)


@pytest.mark.parametrize(
    "state", [replace(REGISTERED, l0=L0[:1]), replace(REGISTERED, l0=L0[:2]), replace(REGISTERED, sst_floor=21)]
)
def test_a_claim_forgets_what_cannot_go_on(state: ManifestState) -> None:
    assert apply(ClaimCompactor("other"), state).compactions == ()


@pytest.mark.parametrize("state", [replace(STATE, destroyed_at_ms=1), replace(STATE, initialized=False)])
def test_a_claim_refuses_what_cannot_be_opened(state: ManifestState) -> None:
    with pytest.raises(InvalidError):
        ClaimCompactor("other").apply(state)


def test_a_released_role_keeps_its_epoch_and_only_its_owner_releases_it() -> None:
    released = apply(ReleaseCompactor("mine"), STATE)
    assert (released.compactor_epoch, released.compactor_token) == (4, "")
    assert ReleaseCompactor("not mine").apply(STATE) is None
    assert apply(ClaimCompactor("mine"), released).compactor_epoch == 5


# ---- registering


def test_nothing_is_begun_in_a_destroyed_database() -> None:
    with pytest.raises(InvalidError):
        RegisterCompaction(compaction()).apply(replace(STATE, destroyed_at_ms=1))


def test_a_registered_compaction_reserves_its_run() -> None:
    assert REGISTERED.compactions == (compaction(),)
    assert REGISTERED.last_run_id == 3


@pytest.mark.parametrize(
    "wrong",
    [
        compaction(base_version=19),
        compaction(l0=(L0[0].object_id, L0[1].object_id)),
        compaction(l0=(b"?" * 16,)),
        compaction(runs=(1,)),
        compaction(l0=(), runs=(2, 1), ssts=(b"?" * 16,)),
        compaction(log_end=12),
        compaction(l0=tuple(sst.object_id for sst in L0), log_end=9),
        compaction(l0=tuple(sst.object_id for sst in L0), runs=(1,), log_end=12),
    ],
)
def test_inputs_that_are_not_there_or_no_neighbours_are_refused(wrong: Compaction) -> None:
    with pytest.raises(ConflictError) as raised:
        RegisterCompaction(wrong).apply(replace(STATE, sst_floor=20))
    assert raised.value.outcome == "not_applied"


@pytest.mark.parametrize("other", [compaction(TWO, target_run=4), compaction(TWO, l0=(L0[2].object_id,), target_run=4)])
def test_two_compactions_never_share_an_input(other: Compaction) -> None:
    with pytest.raises(InternalError):
        RegisterCompaction(other).apply(REGISTERED)


def test_what_is_being_compacted_does_not_move() -> None:
    with pytest.raises(InternalError):
        MoveSsts(4, Inputs((L0[2].object_id,), ()), 4, 0).apply(REGISTERED)


def test_two_compactions_never_make_one_run() -> None:
    others = compaction(TWO, l0=(), runs=(2, 1))
    with pytest.raises(ConflictError):
        RegisterCompaction(others).apply(REGISTERED)
    both = apply(RegisterCompaction(replace(others, target_run=4)), REGISTERED)
    assert len(both.compactions) == 2


# ---- progress


def test_a_finished_range_is_noted_once_and_outlives_its_epoch() -> None:
    state = apply(FinishRange(4, ONE, output(0, OUT)), REGISTERED)
    assert FinishRange(4, ONE, output(0, keyed(21))).apply(state) is None
    resumed = apply(ClaimCompactor("other"), state)
    assert resumed.compactions[0].finished == (output(0, OUT),)


def test_a_range_of_what_is_committed_changes_nothing() -> None:
    assert FinishRange(4, ONE, output(0, OUT)).apply(apply(COMMIT, REGISTERED)) is None


# ---- committing


def test_outputs_take_their_inputs_place() -> None:
    state = apply(COMMIT, REGISTERED)
    assert state.l0 == L0[:1]
    assert state.runs == (SortedRun(3, (OUT,)), *RUNS)
    assert (state.compactions, state.history_floor) == ((), 89)  # 89: the highest sequence number of the inputs


def test_ranges_noted_before_and_brought_along_are_joined_in_key_order() -> None:
    three = compaction(bounds=(b"h", b"p"))
    parts = [output(0, keyed(30, b"b", b"c")), output(1), output(2, keyed(32, b"q", b"r"))]
    state = apply(RegisterCompaction(three), STATE)
    state = apply(FinishRange(4, ONE, parts[2]), state)
    with pytest.raises(InternalError):
        CommitCompaction(4, ONE, (parts[0],)).apply(state)
    state = apply(CommitCompaction(4, ONE, (parts[1], parts[0], output(2, keyed(33)))), state)
    assert [sst.object_id for sst in state.runs[0].ssts] == [keyed(30).object_id, keyed(32).object_id]


def test_a_compaction_whose_rows_all_went_makes_no_run() -> None:
    assert apply(CommitCompaction(4, ONE, (output(0),)), REGISTERED).runs == RUNS


def test_history_is_exact_above_what_was_kept() -> None:
    state = apply(RegisterCompaction(compaction(keep_above=50)), replace(STATE, history_floor=10))
    assert apply(COMMIT, state).history_floor == 50
    state = apply(RegisterCompaction(compaction(keep_above=5)), replace(STATE, history_floor=10))
    assert apply(COMMIT, state).history_floor == 10


@pytest.mark.parametrize(("expires", "floor"), [(None, 500), (900, 1_000), (1_000, 1_000), (1_001, 500)])
def test_the_expiry_floor_rises_to_where_an_input_may_have_lost_expired_rows(expires: int | None, floor: int) -> None:
    before = replace(STATE, expiry_floor_ms=500, l0=(*L0[:2], structs.replace(L0[2], min_expire_ms=expires)))
    assert apply(COMMIT, apply(RegisterCompaction(compaction()), before)).expiry_floor_ms == floor
    no_wal = replace(NO_WAL, expiry_floor_ms=500)
    state = apply(RegisterCompaction(compaction(l0=(), log_end=15)), no_wal)
    log = replace(LOG, min_expire_ms=expires)
    assert apply(CommitCompaction(4, ONE, (output(0, OUT),), log), state).expiry_floor_ms == floor


def test_a_flush_and_a_new_writer_meanwhile_are_no_conflict() -> None:
    flush = AddL0(3, 10, 12, keyed(11), 119, 5, 3, 20)
    state = apply(ClaimWriter("writer", 1), apply(flush, REGISTERED))
    state = apply(COMMIT, state)
    assert [sst.object_id for sst in state.l0] == [keyed(11).object_id, keyed(9).object_id]
    assert flush.apply(replace(state, writer_epoch=3)) is None, "its mark is the log's start, not its SST"


def test_another_compactor_ends_the_role_even_if_the_commit_was_in() -> None:
    for state in (
        apply(ClaimCompactor("other"), REGISTERED),
        apply(ClaimCompactor("other"), apply(COMMIT, REGISTERED)),
    ):
        for edit in (
            COMMIT,
            FinishRange(4, ONE, output(0)),
            DropCompaction(4, ONE),
            RegisterCompaction(compaction(TWO)),
            MoveSsts(4, Inputs((), (2,)), 9, 0),
        ):
            with pytest.raises(FencedError):
                edit.apply(state)


@pytest.mark.parametrize("state", [replace(REGISTERED, l0=L0[:1]), replace(REGISTERED, sst_floor=21)])
def test_a_commit_whose_inputs_or_outputs_are_missing_never_applies(state: ManifestState) -> None:
    with pytest.raises(ConflictError):
        COMMIT.apply(state)
    assert apply(DropCompaction(4, ONE), state).compactions == ()


def test_a_commit_that_later_commits_covered_is_in_all_the_same() -> None:
    state = apply(COMMIT, REGISTERED)
    state = apply(RegisterCompaction(compaction(TWO, l0=(), runs=(3, 2, 1), target_run=4)), state)
    state = apply(CommitCompaction(4, TWO, (output(0, keyed(40)),)), state)
    assert COMMIT.apply(state) is None


def test_a_dropped_compaction_leaves_its_inputs() -> None:
    state = apply(DropCompaction(4, ONE), REGISTERED)
    assert (state.l0, state.runs, state.compactions) == (L0, RUNS, ())


# ---- without a WAL

NO_WAL = replace(STATE, wal_enabled=False, l0=())
LOG = LogTaken(start=10, floor=3, last_seq=140, last_tick_ms=77)


def test_taking_the_log_moves_its_start() -> None:
    taken = compaction(l0=(), runs=(2,), log_end=15, keep_above=140)
    state = apply(RegisterCompaction(taken), NO_WAL)
    state = apply(CommitCompaction(4, ONE, (output(0, OUT),), LOG), state)
    assert (state.log_start, state.log_last_seen, state.log_floor) == (16, 15, 3)
    assert (state.last_seq, state.last_tick_ms, state.history_floor) == (140, 77, 140)
    assert [run.id for run in state.runs] == [3, 1]
    assert state.seq_times == (SeqTime(140, 77),)


def test_the_log_goes_to_one_compaction_at_a_time() -> None:
    state = apply(RegisterCompaction(compaction(l0=(), log_end=15)), NO_WAL)
    with pytest.raises(InternalError):
        RegisterCompaction(compaction(TWO, l0=(), log_end=18, target_run=4)).apply(state)


@pytest.mark.parametrize("start", [9, 11])
def test_a_log_that_starts_elsewhere_was_taken_by_somebody_else(start: int) -> None:
    state = apply(RegisterCompaction(compaction(l0=(), log_end=15)), NO_WAL)
    with pytest.raises(ConflictError):
        CommitCompaction(4, ONE, (output(0),), LOG).apply(replace(state, log_start=start))


def test_the_log_is_never_forgotten_in_a_commit() -> None:
    state = apply(RegisterCompaction(compaction(l0=(), log_end=15)), NO_WAL)
    with pytest.raises(ConflictError):
        CommitCompaction(4, ONE, (output(0),)).apply(state)


# ---- moves


def test_a_move_changes_places_and_nothing_else() -> None:
    oldest = Inputs((L0[2].object_id,), ())
    state = apply(MoveSsts(4, oldest, 3, 0), STATE)
    assert (state.l0, state.runs) == (L0[:2], (SortedRun(3, (L0[2],)), *RUNS))
    assert (state.last_run_id, state.history_floor) == (3, 0)


def test_part_of_a_level_moves_to_the_next() -> None:
    levels = (SortedRun(5, (keyed(5, b"a", b"f"), keyed(6, b"g", b"z")), 1), SortedRun(4, (keyed(4, b"m", b"p"),), 2))
    state = replace(STATE, l0=(), runs=levels, last_run_id=5)
    moved = apply(MoveSsts(4, Inputs((), (5,), (keyed(5).object_id,)), 6, 2), state)
    assert [(run.id, run.level, len(run.ssts)) for run in moved.runs] == [(5, 1, 1), (4, 2, 2)]


def test_nothing_joins_a_run_that_another_compaction_takes_whole() -> None:
    state = replace(STATE, runs=(SortedRun(2, (keyed(5, b"a", b"f"),), 1), RUNS[1]), l0=(keyed(9, b"g", b"h"),))
    whole = compaction(l0=(), runs=(2,), target_level=1)
    joining = Inputs((keyed(9).object_id,), ())
    taken = apply(RegisterCompaction(whole), state)
    with pytest.raises(ConflictError, match="in the way"):
        MoveSsts(4, joining, 4, 1).apply(taken)
    with pytest.raises(ConflictError, match="in the way"):
        RegisterCompaction(compaction(TWO, l0=joining.l0, target_run=2)).apply(taken)
    begun = apply(RegisterCompaction(compaction(TWO, l0=joining.l0, target_level=1)), state)
    with pytest.raises(ConflictError, match="in the way"):
        RegisterCompaction(whole).apply(begun)
    some = apply(RegisterCompaction(replace(whole, ssts=(keyed(5).object_id,))), state)
    assert [sst.object_id for sst in apply(MoveSsts(4, joining, 4, 1), some).runs[0].ssts] == [
        keyed(5).object_id,
        keyed(9).object_id,
    ]
