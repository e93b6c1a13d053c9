"""Numbers that no row has: noted once, merged, dropped below the history that is kept, and known to feeds."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import slate_async as slate
from metastores.protocol import VersionRef
from slate_async.codec.columns import Columns
from slate_async.engine.changes.order import check_gapless
from slate_async.storage.manifest import codec
from slate_async.storage.manifest.edits.skipped import SkipSeqs
from slate_async.storage.manifest.state import ManifestState, SkippedSeqs

STATE = ManifestState(UUID(int=1), "contiguous", True, 5, writer_epoch=3, ref=VersionRef(1, "a"))


def skipped(state: ManifestState, *ranges: tuple[int, int]) -> ManifestState:
    for first, last in ranges:
        new = SkipSeqs(3, first, last).apply(state)
        assert new is not None
        state = new
    return state


def test_ranges_are_noted_once_and_merged() -> None:
    state = skipped(STATE, (11, 20), (21, 25), (31, 40))
    assert state.skipped == (SkippedSeqs(11, 25), SkippedSeqs(31, 40))
    assert state.required_features == ("seq_gaps",)
    assert SkipSeqs(3, 31, 40).apply(state) is None
    assert [state.rows_up_to(seq) for seq in (10, 11, 25, 26, 30, 35, 41)] == [10, 10, 10, 11, 15, 15, 16]
    assert state.skipped_end == 40
    state = skipped(replace(state, history_floor=30), (51, 60))
    assert state.skipped == (SkippedSeqs(31, 40), SkippedSeqs(51, 60))


def test_only_the_writer_of_the_epoch_notes_them() -> None:
    with pytest.raises(slate.FencedError):
        SkipSeqs(2, 11, 20).apply(STATE)


def test_they_are_stored() -> None:
    state = skipped(STATE, (11, 20))
    full = codec.decode(codec.encode_full(state), object_name="full")
    assert isinstance(full, ManifestState)
    assert full.skipped == state.skipped
    delta = codec.decode(codec.encode_delta(STATE, state), object_name="delta")
    assert isinstance(delta, codec.Delta)
    assert codec.apply_delta(STATE, delta, object_name="delta").skipped == state.skipped


def rows(*seqs: int) -> Columns:
    count = len(seqs)
    data = pa.array([b"k"] * count, pa.binary())
    zeros = np.zeros(count, np.uint8)
    return Columns(data, data, np.array(seqs, np.uint64), zeros, None, np.zeros(count, np.int64))


@pytest.mark.parametrize(
    ("after", "seqs", "good"),
    [
        (9, (10, 21, 22), True),
        (10, (21,), True),
        (10, (22,), False),
        (8, (10, 21), False),
        (10, (21, 23), False),
        (40, (41,), True),
    ],
)
def test_other_gaps_are_lost_rows(after: int, seqs: tuple[int, ...], good: bool) -> None:
    known = [SkippedSeqs(11, 20)]
    if good:
        return check_gapless(rows(*seqs), after, shared_until=0, skipped=known, source="x")
    with pytest.raises(slate.CorruptionError):
        check_gapless(rows(*seqs), after, shared_until=0, skipped=known, source="x")
