"""Checkpoint edits: pure, applied once, never from what is missing or expired."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.errors import InvalidError
from slate_async.storage.manifest.edits.checkpoints import (
    CreateCheckpoint,
    DeleteCheckpoints,
    RefreshCheckpoint,
    find_checkpoint,
)
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.state import ManifestState, settle
from slate_async.storage.manifest.successor import check_successor
from tests.support.sst_refs import sst

STATE = ManifestState(
    database_id=UUID(int=1),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(8, "8" * 32),
    log_start=5,
    l0=(sst(1),),
)
ONE, TWO, MISSING = (UUID(int=number) for number in (101, 102, 103))


def commit(edit: Edit, state: ManifestState) -> ManifestState:
    new = edit.apply(state)
    assert new is not None
    check_successor(state, new)
    ref = VersionRef(state.version + 1, f"{state.version + 1:032x}")
    new = replace(settle(new, ref), ref=ref)
    assert edit.apply(new) is None, "an edit that is in changes nothing"
    return new


def make(number: UUID, **more: object) -> CreateCheckpoint:
    values: dict[str, object] = {"owner": "user", "now_ms": 1_000, "expire_ms": 2_000, "log_end": 9}
    return CreateCheckpoint(number, **{**values, **more})  # type: ignore[arg-type]


def test_a_checkpoint_names_the_version_that_holds_it_and_its_part_of_the_log() -> None:
    state = commit(make(ONE), STATE)
    made = state.checkpoint(ONE)
    assert made is not None
    assert (made.ref, made.log_start, made.log_end) == (state.ref, 5, 9)
    assert state.log_last_seen == 9


def test_a_log_that_was_compacted_meanwhile_leaves_an_empty_part() -> None:
    made = commit(make(ONE, log_end=2), STATE).checkpoint(ONE)
    assert made is not None
    assert (made.log_start, made.log_end) == (5, 4)


def test_a_checkpoint_of_a_checkpoint_keeps_what_the_source_keeps() -> None:
    first = commit(make(ONE, log_ranges=((1, 3),)), STATE)
    later = replace(first, log_start=20, ref=VersionRef(20, "2" * 32))
    second = commit(make(TWO, source=ONE, expire_ms=None, log_end=None), later)
    source, copy = second.checkpoint(ONE), second.checkpoint(TWO)
    assert source is not None
    assert copy is not None
    assert (copy.ref, copy.log_start, copy.log_end, copy.log_ranges) == (source.ref, 5, 9, ((1, 3),))
    assert copy.expire_ms is None


def test_one_without_an_end_of_the_log_is_no_source() -> None:
    state = commit(make(ONE, owner="reader", log_end=None), STATE)
    with pytest.raises(InvalidError, match="reader's own"):
        make(TWO, source=ONE).apply(state)


@pytest.mark.parametrize("edit", [make(TWO, source=MISSING), RefreshCheckpoint(MISSING, 0, None)])
def test_a_missing_source_is_an_error(edit: Edit) -> None:
    with pytest.raises(InvalidError, match="no checkpoint"):
        edit.apply(commit(make(ONE), STATE))


@pytest.mark.parametrize("edit", [make(TWO, source=ONE, now_ms=2_000), RefreshCheckpoint(ONE, 2_000, None)])
def test_an_expired_source_is_an_error(edit: Edit) -> None:
    with pytest.raises(InvalidError, match="expired"):
        edit.apply(commit(make(ONE), STATE))


@pytest.mark.parametrize("unusable", [replace(STATE, destroyed_at_ms=1), replace(STATE, initialized=False)])
def test_no_checkpoint_of_what_cannot_be_opened(unusable: ManifestState) -> None:
    with pytest.raises(InvalidError):
        make(ONE).apply(unusable)


def test_a_name_that_has_expired_differs_from_one_that_never_was() -> None:
    state = commit(make(ONE, name="nightly"), STATE)
    assert find_checkpoint(state, "nightly", 1_999).id == ONE
    with pytest.raises(InvalidError, match="'nightly' has expired"):
        find_checkpoint(state, "nightly", 2_000)
    with pytest.raises(InvalidError, match="there is no checkpoint 'weekly'"):
        find_checkpoint(state, "weekly", 1_000)


def test_refresh_and_delete() -> None:
    state = commit(make(ONE), STATE)
    longer = commit(RefreshCheckpoint(ONE, 1_500, 9_000), state)
    found = longer.checkpoint(ONE)
    assert found is not None
    assert found.expire_ms == 9_000
    assert found.ref == state.ref
    assert commit(DeleteCheckpoints(frozenset({ONE, MISSING})), longer).checkpoints == ()


def test_a_new_one_takes_the_place_of_others_in_one_step() -> None:
    state = commit(make(TWO, instead_of=(ONE, MISSING)), commit(make(ONE), STATE))
    assert [checkpoint.id for checkpoint in state.checkpoints] == [TWO]
