"""`SstTables`: the SSTs of a manifest state as reads see them, from one state to the next.

Invariant: what a state has in common with the one before it keeps its tables and its readers, and costs nothing: a
hundred thousand SSTs do not make a flush slower.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from slate_async.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.read.sources import Run, Table
from slate_async.sst.locate import SstOpener
from slate_async.sst.reader import SstReader

_Shown: TypeAlias = tuple[SstRef, SstReader, Table]


class Levels(NamedTuple):
    """L0, newest first, and the runs below it."""

    l0: list[Table]
    runs: list[Run]


class SstTables:
    """Opens each SST once."""

    def __init__(self, ssts: SstOpener) -> None:
        self._opener = ssts
        self._l0: dict[bytes, _Shown] = {}
        self._runs: dict[int, tuple[SortedRun, list[_Shown], Run]] = {}  # by identity: to compare runs costs too much

    def levels(self, state: ManifestState) -> Levels:
        """What ``state`` names; nothing is read. Raises `CorruptionError` for an SST of an unknown parent."""
        known = dict(self._l0)
        there = {id(run) for run in state.runs}
        for name, (_, shown, _) in self._runs.items():
            if name not in there:
                known.update((one[0].object_id, one) for one in shown)
        l0 = [self._shown(sst, known, state) for sst in state.l0]
        self._l0 = {one[0].object_id: one for one in l0}
        self._runs = {id(run): self._runs.get(id(run)) or self._run(run, known, state) for run in state.runs}
        return Levels([table for _, _, table in l0], [run for _, _, run in self._runs.values()])

    def _run(
        self, run: SortedRun, known: dict[bytes, _Shown], state: ManifestState
    ) -> tuple[SortedRun, list[_Shown], Run]:
        shown = [self._shown(sst, known, state) for sst in run.ssts]
        return run, shown, Run(tuple(table for _, _, table in shown))

    def _shown(self, sst: SstRef, known: dict[bytes, _Shown], state: ManifestState) -> _Shown:
        before = known.get(sst.object_id)
        if before is not None and before[0] == sst:
            return before
        reader = self._opener.open(sst, state.parents) if before is None else before[1]
        return sst, reader, Table(sst.first_key, sst.last_key, reader, sst.min_expire_ms is not None)
