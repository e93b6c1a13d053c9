"""The edit of a garbage collection: what it takes out, how far the floor rises, and when it does nothing."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.state import Checkpoint, Compaction, ManifestState
from slate_async.storage.manifest.successor import check_successor
from tests.support.sst_refs import sst

STATE = ManifestState(
    database_id=UUID(int=7),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(20, "a" * 32),
    writer_epoch=1,
    compactor_epoch=3,
    sst_floor=5,
)


def checkpoint(number: int, expire_ms: int | None) -> Checkpoint:
    return Checkpoint(UUID(int=number), VersionRef(number, "b" * 32), 0, "user", 1, expire_ms)


def compaction(base: int) -> Compaction:
    return Compaction(UUID(int=base), 3, base, 0, 0, False, (), (), 1, 0)


def applied(edit: AdvanceGc, state: ManifestState = STATE) -> ManifestState:
    """What the edit makes of the state; applied again it changes nothing."""
    new = edit.apply(state)
    assert new is not None
    check_successor(state, new)
    assert edit.apply(replace(new, ref=VersionRef(state.version + 1, "c" * 32))) is None
    return new


def test_expired_checkpoints_go_once_every_clock_agrees() -> None:
    state = replace(STATE, checkpoints=(checkpoint(1, 1_000), checkpoint(2, None), checkpoint(3, 1_200)))
    assert AdvanceGc(1_099, skew_ms=100).apply(state) is None
    assert [checkpoint.id.int for checkpoint in applied(AdvanceGc(1_100, skew_ms=100), state).checkpoints] == [2, 3]


@pytest.mark.parametrize(
    ("wanted", "bases", "floor"),
    [
        (12, [], 12),
        (12, [9, 15], 9),  # a registered compaction holds it down
        (12, [15], 12),
        (12, [3], None),  # nor does it fall
        (4, [], None),
    ],
)
def test_the_floor_rises_as_far_as_compactions_let_it(wanted: int, bases: list[int], floor: int | None) -> None:
    state = replace(STATE, compactions=tuple(map(compaction, bases)))
    if floor is None:
        assert AdvanceGc(0, 0, floor=wanted).apply(state) is None
    else:
        assert applied(AdvanceGc(0, 0, floor=wanted), state).sst_floor == floor


def test_a_version_above_is_made_though_nothing_changes() -> None:
    assert AdvanceGc(0, 0, above=19).apply(STATE) is None
    assert applied(AdvanceGc(0, 0, above=20)) == STATE


def test_it_collects_what_was_destroyed_too() -> None:
    assert applied(AdvanceGc(0, 0, floor=9), replace(STATE, destroyed_at_ms=1)).sst_floor == 9


def test_a_flush_begun_below_the_floor_is_refused() -> None:
    flush = AddL0(1, 1, 1, sst(1), last_seq=19, last_tick_ms=0, log_floor=1, base_version=9)
    assert flush.apply(STATE) is not None
    with pytest.raises(ConflictError):
        flush.apply(applied(AdvanceGc(0, 0, floor=10)))
