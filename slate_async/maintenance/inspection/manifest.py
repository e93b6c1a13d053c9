"""The manifest and the sorted runs it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from metastores.protocol import VersionRef
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import CorruptionError
from slate_async.maintenance.inspection.range_deletes import count_over
from slate_async.metastore_errors import translated
from slate_async.storage.format.marker import Marker
from slate_async.storage.manifest.marker import read_marker
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.types import RangeDelete


@dataclass(frozen=True, slots=True)
class ManifestInspection:
    """The head as it is stored.

    base: the full version that it is a change to; ``None``: it is full itself
    versions: all that are stored, ascending
    marker: of a database whose metadata is elsewhere: the one in its place; it should carry the manifest's ids
    """

    state: ManifestState
    base: VersionRef | None
    versions: tuple[VersionRef, ...]
    marker: Marker | None


@dataclass(frozen=True, slots=True)
class RunInspection:
    """An SST of L0 (``run_id`` is ``None``), or a sorted run. Newest first in a list of them.

    size: bytes
    first_key, last_key: smallest and largest key, inclusive
    range_deletes: how many may hide rows of it
    """

    level: int
    run_id: int | None
    ssts: tuple[SstRef, ...]
    size: int
    rows: int
    tombstones: int
    first_key: bytes
    last_key: bytes
    min_seq: int
    max_seq: int
    range_deletes: int

    @classmethod
    def of(cls, ssts: Sequence[SstRef], *, level: int, run_id: int | None, deletes: Sequence[RangeDelete]) -> Self:
        """``ssts``, one or more, in key order. ``deletes``: all range deletes that the manifest names."""
        return cls(
            level,
            run_id,
            tuple(ssts),
            sum(sst.size for sst in ssts),
            sum(sst.rows for sst in ssts),
            sum(sst.tombstones for sst in ssts),
            ssts[0].first_key,
            ssts[-1].last_key,
            min(sst.min_seq for sst in ssts),
            max(sst.max_seq for sst in ssts),
            count_over(deletes, ssts),
        )

    @property
    def tombstone_share(self) -> float:
        """Part of the rows that only say that a key was deleted."""
        return self.tombstones / self.rows


async def inspect_manifest(database: StoredDatabase) -> ManifestInspection:
    """The newest version. Raises `InvalidError` if there is no database, `CorruptionError`, `UnavailableError`."""
    state = await database.head()
    stored = await database.driver.read_stored(state.ref)
    if stored is None:
        raise CorruptionError("was deleted while it was read", object_name=f"manifest version {state.version}")
    found = await read_marker(database.store) if database.ground.must_be_proved(state) else None
    versions = tuple(await translated(database.driver.metastore.versions()))
    return ManifestInspection(state, stored.base, versions, None if found is None else found.marker)


def inspect_runs(state: ManifestState) -> list[RunInspection]:
    """L0, SST by SST, then the runs, newest first."""
    deletes = state.range_deletes or ()
    l0 = [RunInspection.of([sst], level=0, run_id=None, deletes=deletes) for sst in state.l0]
    return l0 + [RunInspection.of(run.ssts, level=run.level, run_id=run.id, deletes=deletes) for run in state.runs]
