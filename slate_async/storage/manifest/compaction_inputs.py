"""What a compaction takes out of the database, and what the database is with its output in their place.

Age order, newest first: log objects (without a WAL), L0, runs. A compaction takes neighbours in it: L0 SSTs from the
oldest end only, and, when it takes L0 SSTs and runs, the newest runs. Of a run it may take some SSTs only; then it
takes, going from the newest input to the oldest, every SST that overlaps the keys taken so far, so nothing newer
comes to lie below something older.

Its output joins run ``target_run``, or the run of ``target_level`` unless that is 0, or else becomes a run of its own
right behind what is left of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, Self

from slate_async.errors import InternalError
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef, l0_units


class NamesInputs(Protocol):
    """A registered `Compaction`, or a planned one."""

    @property
    def l0(self) -> tuple[bytes, ...]: ...
    @property
    def runs(self) -> tuple[int, ...]: ...
    @property
    def ssts(self) -> tuple[bytes, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """See the module docstring. Each list newest first.

    l0: object ids; the oldest ones of L0
    runs: run ids
    ssts: object ids of the SSTs taken out of ``runs``; ``None`` = all of theirs
    """

    l0: tuple[bytes, ...]
    runs: tuple[int, ...]
    ssts: tuple[bytes, ...] | None = None

    @classmethod
    def of(cls, compaction: NamesInputs) -> Self:
        """The inputs ``compaction`` names."""
        return cls(compaction.l0, compaction.runs, compaction.ssts)

    def find(self, state: ManifestState) -> tuple[tuple[SstRef, ...], ...] | None:
        """The sorted sources in ``state``, newest first: those of L0 (see `l0_units`), then of each run what is taken,
        in key order. ``None`` if any of it is missing or they are neighbours no more: another compaction was there."""
        if self.l0 and self.l0 != tuple(sst.object_id for sst in state.l0[-len(self.l0) :]):
            return None
        place = {run.id: index for index, run in enumerate(state.runs)}
        if not all(run in place for run in self.runs):
            return None
        places = [place[run] for run in self.runs]
        if any(later != earlier + 1 for earlier, later in pairwise(places)) or (self.l0 and places and places[0]):
            return None
        sources = l0_units(state.l0[len(state.l0) - len(self.l0) :])
        taken = [self.of_run(state.runs[index]) for index in places]
        if self.ssts is not None and sum(map(len, taken)) != len(self.ssts):
            return None
        return (*sources, *(ssts for ssts in taken if ssts))

    def of_run(self, run: SortedRun) -> tuple[SstRef, ...]:
        """What is taken of ``run``, one of `runs`."""
        if self.ssts is None:
            return run.ssts
        named = frozenset(self.ssts)
        return tuple(sst for sst in run.ssts if sst.object_id in named)


def replace_inputs(
    state: ManifestState, inputs: Inputs, outputs: Sequence[SstRef], *, target_run: int, target_level: int
) -> ManifestState:
    """``state`` with ``outputs`` (disjoint key ranges, in any order) where ``inputs`` were; only L0 and runs change.

    Raises `InternalError` if the inputs are not there, or the run would have SSTs with overlapping keys."""
    if inputs.find(state) is None:
        raise InternalError("a compaction was committed without its inputs being there")
    runs = list(state.runs)
    behind = 0
    for index, run in enumerate(state.runs):
        if run.id in inputs.runs:
            taken = {sst.object_id for sst in inputs.of_run(run)}
            runs[index] = replace(run, ssts=tuple(sst for sst in run.ssts if sst.object_id not in taken))
            behind = index + 1
    at = next((index for index, run in enumerate(runs) if _is_target(run, target_run, target_level)), None)
    if at is None:
        runs.insert(behind, SortedRun(target_run, (), target_level))
        at = behind
    runs[at] = _joined(runs[at], outputs)
    l0 = state.l0[: len(state.l0) - len(inputs.l0)]
    return replace(
        state,
        l0=l0,
        runs=tuple(run for run in runs if run.ssts),
        last_run_id=max(state.last_run_id, target_run),
    )


def _is_target(run: SortedRun, target_run: int, target_level: int) -> bool:
    return run.id == target_run or (target_level > 0 and run.level == target_level)


def _joined(run: SortedRun, outputs: Sequence[SstRef]) -> SortedRun:
    ssts = sorted((*run.ssts, *outputs), key=lambda sst: sst.first_key)
    for before, after in pairwise(ssts):
        if before.last_key >= after.first_key:
            raise InternalError(f"a run would hold {before.location} and {after.location}, whose keys overlap")
    return replace(run, ssts=tuple(ssts))
