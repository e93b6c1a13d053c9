"""Edits about range deletes: how long one stays, and which SSTs may go whole."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from msgspec import structs

from metastores.protocol import VersionRef
from slate_async.errors import FencedError
from slate_async.storage.manifest.edits.range_deletes import (
    AllowRangeDeletes,
    DropHidden,
    with_range_deletes,
    without_swept,
)
from slate_async.storage.manifest.features import RANGE_DELETES_FEATURE
from slate_async.storage.manifest.state import Compaction, ManifestState, SortedRun, SstRef
from slate_async.types import NO_END, RangeDelete
from tests.support.sst_refs import sst


def keyed(number: int, keys: bytes, seqs: tuple[int, int], swept: int | None = None) -> SstRef:
    first, last = keys[:1], keys[1:]
    changes = {"first_key": first, "last_key": last, "min_seq": seqs[0], "max_seq": seqs[1], "swept_seq": swept}
    return structs.replace(sst(number), **changes)


LOW = SortedRun(1, (keyed(1, b"ac", (1, 9)), keyed(2, b"dm", (1, 9)), keyed(3, b"xz", (1, 9))))
STATE = ManifestState(
    database_id=UUID(int=1),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(20, "2" * 32),
    writer_epoch=3,
    compactor_epoch=4,
    last_seq=30,
    history_floor=5,
    l0=(keyed(9, b"bb", (20, 21)),),
    runs=(SortedRun(2, (keyed(5, b"ak", (10, 19)),)), LOW),
)


def left(state: ManifestState, *deletes: RangeDelete) -> list[int]:
    return [delete.seq for delete in with_range_deletes(state, deletes).range_deletes or ()]


def test_one_stays_until_no_sst_may_hold_what_it_hides() -> None:
    assert left(STATE, RangeDelete(15, b"a", b"b", 0)) == [15]
    assert left(STATE, RangeDelete(15, b"n", b"x", 0)) == [], "between two SSTs"
    assert left(STATE, RangeDelete(15, b"m", b"n", 0)) == [15], "the last key of one"
    assert left(STATE, RangeDelete(15, b"z", NO_END, 0)) == [15]
    only_low = replace(STATE, l0=(), runs=(LOW,))
    assert left(only_low, RangeDelete(15, b"y", NO_END, 0), RangeDelete(16, b"q", b"r", 0)) == [15], "at the bottom"
    newer = replace(STATE, l0=(), runs=(SortedRun(2, (keyed(5, b"ak", (15, 19)),)),))
    assert left(newer, RangeDelete(15, b"a", b"b", 0)) == [], "all its rows are newer"


@pytest.mark.parametrize(("swept", "stays"), [(None, [15]), (14, [15]), (15, []), (16, [])])
def test_a_swept_sst_needs_those_above_its_number_only(swept: int | None, stays: list[int]) -> None:
    state = replace(STATE, l0=(), runs=(SortedRun(1, (keyed(1, b"az", (1, 9), swept),)),))
    assert left(state, RangeDelete(15, b"a", b"b", 0)) == stays
    assert [delete.seq for delete in without_swept(state).range_deletes or ()] == []


def test_ssts_that_go_whole_raise_the_floor_of_history() -> None:
    delete = RangeDelete(25, b"d", NO_END, 0)
    state = with_range_deletes(STATE, [delete])
    dropped = DropHidden(4, ((LOW.ssts[1].object_id, 25), (LOW.ssts[2].object_id, 25))).apply(state)
    assert dropped is not None
    assert [run.ssts for run in dropped.runs] == [STATE.runs[0].ssts, LOW.ssts[:1]]
    assert (dropped.l0, dropped.history_floor) == (STATE.l0, 25)
    assert dropped.range_deletes == (delete,), "the run above holds rows that it hides"
    assert DropHidden(4, ((LOW.ssts[1].object_id, 25),)).apply(dropped) is None
    alone = replace(state, l0=(), runs=(SortedRun(1, (LOW.ssts[1],)),))
    dropped = DropHidden(4, ((LOW.ssts[1].object_id, 25),)).apply(alone)
    assert dropped is not None
    assert (dropped.runs, dropped.range_deletes) == ((), None)


@pytest.mark.parametrize("named", [True, False])
def test_what_a_compaction_takes_does_not_go(named: bool) -> None:
    taken = LOW.ssts[1].object_id
    compaction = Compaction(UUID(int=7), 4, 10, 0, 30, True, (), (1,), 3, 0, ssts=(taken,) if named else None)
    state = with_range_deletes(replace(STATE, compactions=(compaction,)), [RangeDelete(25, b"d", NO_END, 0)])
    dropped = DropHidden(4, ((taken, 25), (LOW.ssts[2].object_id, 25))).apply(state)
    if named:
        assert dropped is not None
        assert [run.ssts for run in dropped.runs] == [STATE.runs[0].ssts, LOW.ssts[:2]]
    else:
        assert dropped is None


def test_only_the_role_that_has_the_epoch_commits_them() -> None:
    with pytest.raises(FencedError):
        DropHidden(3, ((LOW.ssts[1].object_id, 25),)).apply(STATE)
    with pytest.raises(FencedError):
        AllowRangeDeletes(2).apply(STATE)
    allowed = AllowRangeDeletes(3).apply(STATE)
    assert allowed is not None
    assert RANGE_DELETES_FEATURE in allowed.required_features
    assert AllowRangeDeletes(3).apply(allowed) is None
