"""`SstTables`: the SSTs of a manifest state as reads see them, from one state to the next.

Invariant: what a state has in common with the one before it keeps its tables and its readers, and costs nothing: a
hundred thousand SSTs do not make a flush slower.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from slate_async.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.read.sources import Run, Table
from slate_async.sst.locate import SstOpener

_Shown: TypeAlias = tuple[SstRef, Table]


class Levels(NamedTuple):
    """L0, newest first, and the runs below it."""

    l0: list[Table]
    runs: list[Run]


class SstTables:
    """Opens each SST once."""

    def __init__(self, ssts: SstOpener) -> None:
        self._opener = ssts
        self._l0: list[_Shown] = []
        self._runs: dict[int, tuple[SortedRun, Run]] = {}  # by identity: to compare runs costs too much

    def levels(self, state: ManifestState) -> Levels:
        """What ``state`` names; nothing is read. Raises `CorruptionError` for an SST of an unknown parent."""
        known = {sst.object_id: (sst, table) for sst, table in self._l0}
        there = {id(run) for run in state.runs}
        for name, (stored, run) in self._runs.items():
            if name not in there:
                known.update((sst.object_id, (sst, table)) for sst, table in zip(stored.ssts, run.tables, strict=True))
        self._l0 = [(sst, self._table(sst, known, state)) for sst in state.l0]
        self._runs = {
            id(run): self._runs.get(id(run)) or (run, Run(tuple(self._table(sst, known, state) for sst in run.ssts)))
            for run in state.runs
        }
        return Levels([table for _, table in self._l0], [run for _, run in self._runs.values()])

    def _table(self, sst: SstRef, known: dict[bytes, _Shown], state: ManifestState) -> Table:
        before = known.get(sst.object_id)
        if before is not None and before[0] == sst:
            return before[1]
        source = self._opener.open(sst, state.parents) if before is None else before[1].source
        return Table(sst.first_key, sst.last_key, source, sst.min_expire_ms is not None)
