"""What a compaction takes, and where its output goes."""

from __future__ import annotations

from uuid import UUID

import pytest

from slate_async.errors import InternalError
from slate_async.storage.manifest.compaction_inputs import Inputs, replace_inputs
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef


def sst(name: str, keys: str = "az") -> SstRef:
    """An SST named ``name`` over the keys from the first to the last letter of ``keys``."""
    return SstRef(f"sst/{name}", name.encode(), 1, 1, 0, keys[0].encode(), keys[-1].encode(), 1, 1, 1)


def state(l0: str, *runs: SortedRun) -> ManifestState:
    ssts = tuple(sst(name) for name in l0)
    return ManifestState(
        database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0, l0=ssts, runs=runs
    )


def run(number: int, *ssts: str, level: int = 0) -> SortedRun:
    """SSTs given as ``name:keys``."""
    return SortedRun(number, tuple(sst(*drawn.split(":")) for drawn in ssts), level)


def shape(after: ManifestState) -> tuple[str, list[tuple[int, str]]]:
    """L0 and the runs by the names of their SSTs."""
    names = [(run.id, "".join(sst.object_id.decode() for sst in run.ssts)) for run in after.runs]
    return "".join(sst.object_id.decode() for sst in after.l0), names


BEFORE = state("ABC", run(3, "D:ac", "E:df"), run(2, "F:ac", "G:df", "H:gi"), run(1, "I:az"))


@pytest.mark.parametrize(
    "inputs",
    [
        Inputs((b"A", b"B"), ()),  # not the oldest of L0
        Inputs((b"X",), ()),
        Inputs((b"C",), (2,)),  # run 3 lies between
        Inputs((), (3, 1)),
        Inputs((), (2, 3)),  # not newest first
        Inputs((), (7,)),
        Inputs((), (3, 2), (b"D", b"X")),
    ],
)
def test_what_is_not_there_any_more(inputs: Inputs) -> None:
    assert inputs.find(BEFORE) is None
    with pytest.raises(InternalError):
        replace_inputs(BEFORE, inputs, [], target_run=9, target_level=0)


def test_the_sources() -> None:
    found = Inputs((b"B", b"C"), (3, 2), (b"E", b"G", b"H")).find(BEFORE)
    assert found is not None
    assert [[sst.object_id for sst in source] for source in found] == [[b"B"], [b"C"], [b"E"], [b"G", b"H"]]


def test_l0_becomes_a_run() -> None:
    after = replace_inputs(BEFORE, Inputs((b"B", b"C"), ()), [sst("X")], target_run=4, target_level=0)
    assert shape(after) == ("A", [(4, "X"), (3, "DE"), (2, "FGH"), (1, "I")])
    assert after.last_run_id == 4


def test_runs_become_one_in_their_place() -> None:
    after = replace_inputs(BEFORE, Inputs((), (3, 2)), [sst("X")], target_run=4, target_level=0)
    assert shape(after) == ("ABC", [(4, "X"), (1, "I")])


def test_nothing_is_left() -> None:
    after = replace_inputs(BEFORE, Inputs((), (3, 2)), [], target_run=4, target_level=0)
    assert shape(after) == ("ABC", [(1, "I")])


def test_a_part_joins_what_stays_of_the_lower_run() -> None:
    inputs = Inputs((), (3, 2), (b"E", b"G"))
    after = replace_inputs(BEFORE, inputs, [sst("Y", "ef"), sst("X", "dd")], target_run=2, target_level=0)
    assert shape(after) == ("ABC", [(3, "D"), (2, "FXYH"), (1, "I")])


def test_a_part_becomes_a_run_behind_what_stays() -> None:
    inputs = Inputs((), (3,), (b"E",))
    after = replace_inputs(BEFORE, inputs, [sst("X", "df")], target_run=4, target_level=0)
    assert shape(after) == ("ABC", [(3, "D"), (4, "X"), (2, "FGH"), (1, "I")])


def test_the_level_that_was_made_meanwhile_is_joined() -> None:
    before = state("", run(3, "D:ac", level=1), run(9, "E:df", level=2))
    after = replace_inputs(before, Inputs((), (3,), (b"D",)), [sst("X", "ac")], target_run=4, target_level=2)
    assert shape(after) == ("", [(9, "XE")])


def test_overlapping_output_is_refused() -> None:
    inputs = Inputs((), (2,), (b"G",))
    with pytest.raises(InternalError, match="overlap"):
        replace_inputs(BEFORE, inputs, [sst("X", "cf")], target_run=2, target_level=0)
