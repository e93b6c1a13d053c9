"""`SstTables`: the SSTs of a manifest state as reads see them, from one state to the next.

Invariant: what a state has in common with the one before it keeps its tables and its readers, and costs nothing: a
hundred thousand SSTs do not make a flush slower. Nor an opening: a table of a run is made when a read first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple, TypeAlias

from slate_async.engine.read.sources import Run, Table
from slate_async.storage.manifest.state import ManifestState, Parent, SortedRun, SstRef, l0_units
from slate_async.storage.sst.locate import SstOpener

_Shown: TypeAlias = tuple[SstRef, Table]


class Levels(NamedTuple):
    """L0, newest first, and the runs below it. From the newest ingest of several SSTs on, which is a run by itself, all
    of L0 is among the runs."""

    l0: list[Table]
    runs: list[Run]


class StoredRun(Run):
    """A run of the manifest. Its tables are those ``made`` already, by number, and what ``make`` makes of an SST."""

    __slots__ = ("_make_table", "_ssts")

    def __init__(self, ssts: Sequence[SstRef], made: Mapping[int, Table], make: Callable[[SstRef], Table]) -> None:
        super().__init__(())
        self._spans = self._ssts = ssts
        self._tables = list(map(made.get, range(len(ssts)))) if made else [None] * len(ssts)
        self._make_table = make

    def _make(self, number: int) -> Table:
        made = self._tables[number] = self._make_table(self._ssts[number])
        return made

    def extents(self, first: int, stop: int) -> tuple[list[bytes], list[int]]:
        ssts = self._ssts[first:stop]
        return [sst.first_key for sst in ssts], [sst.size for sst in ssts]

    @property
    def made(self) -> Iterator[_Shown]:
        """The tables that were needed so far, and their SSTs."""
        return ((sst, table) for sst, table in zip(self._ssts, self._tables, strict=True) if table is not None)

    @property
    def expires(self) -> bool:
        return any(sst.min_expire_ms is not None for sst in self._ssts)

    def reads(self, key: str) -> bool:
        return any(sst.location == key for sst in self._ssts)

    def same_as(self, other: Run) -> bool:
        return self is other  # to compare their SSTs costs too much


class SstTables:
    """Opens each SST once."""

    def __init__(self, ssts: SstOpener) -> None:
        self._opener = ssts
        self._l0: list[_Shown] = []
        self._runs: dict[int, tuple[SortedRun, StoredRun]] = {}  # by identity: to compare runs costs too much

    def levels(self, state: ManifestState) -> Levels:
        """What ``state`` names; nothing is read. Raises `CorruptionError` for an SST in L0 of an unknown parent."""
        known = {sst.object_id: (sst, table) for sst, table in self._l0}
        there = {id(run) for run in state.runs}
        for name, (_, run) in self._runs.items():
            if name not in there:
                known.update((sst.object_id, (sst, table)) for sst, table in run.made)
        self._l0 = [(sst, self._table(sst, known, state.parents)) for sst in state.l0]
        self._runs = {
            id(run): self._runs.get(id(run)) or (run, self._run(run, known, state.parents)) for run in state.runs
        }
        runs = [run for _, run in self._runs.values()]
        tables = iter([table for _, table in self._l0])
        units = [tuple(islice(tables, len(unit))) for unit in l0_units(state.l0)]
        singles = list(takewhile(lambda unit: len(unit) == 1, units))
        return Levels([table for (table,) in singles], [*map(Run, units[len(singles) :]), *runs])

    def _run(self, stored: SortedRun, known: Mapping[bytes, _Shown], parents: Sequence[Parent]) -> StoredRun:
        """``stored`` with the tables of the SSTs that are ``known``, which may be loaded."""
        ssts = enumerate(stored.ssts if known else ())
        made = {number: self._table(sst, known, parents) for number, sst in ssts if sst.object_id in known}
        return StoredRun(stored.ssts, made, lambda sst: self._table(sst, {}, parents))

    def _table(self, sst: SstRef, known: Mapping[bytes, _Shown], parents: Sequence[Parent]) -> Table:
        before = known.get(sst.object_id)
        if before is not None and before[0] == sst:
            return before[1]
        same = before is not None and _reads(sst) == _reads(before[0])
        source = before[1].source if before is not None and same else self._opener.open(sst, parents)
        return Table(sst.first_key, sst.last_key, source, sst.min_expire_ms is not None, sst.max_seq)


def _reads(sst: SstRef) -> tuple[object, ...]:
    """What a reader of ``sst`` was opened with: of others it would show something else."""
    return sst.location, sst.size, sst.database_id, sst.global_seq, sst.global_create_ms
