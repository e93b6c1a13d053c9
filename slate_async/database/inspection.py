"""`Inspection`: what is stored of a database, as its administration shows it."""

from __future__ import annotations

from slate_async.engine.context import DatabaseContext
from slate_async.engine.stored_database import OpenStored
from slate_async.maintenance.inspection.log import LogInspection, inspect_log
from slate_async.maintenance.inspection.manifest import (
    ManifestInspection,
    RunInspection,
    inspect_manifest,
    inspect_runs,
)
from slate_async.maintenance.inspection.sst import SstInspection, inspect_sst
from slate_async.runtime.loop_guard import LoopGuard


class Inspection:
    """``admin.inspect``: looks at what is stored, and changes nothing. Errors of every method are those of `Admin`."""

    def __init__(self, context: DatabaseContext, open_stored: OpenStored, guard: LoopGuard) -> None:
        self._context = context
        self._open_stored = open_stored
        self._guard = guard

    async def manifest(self) -> ManifestInspection:
        """The newest version of the manifest as it is stored."""
        self._guard.check()
        async with self._open_stored(self._context.name) as database:
            return await inspect_manifest(database)

    async def log(self) -> LogInspection:
        """Every object of the log and what it is to the database, and the writer's register."""
        self._guard.check()
        async with self._open_stored(self._context.name) as database:
            return await inspect_log(database, self._context.cache.decoding)

    async def sst(self, wanted: str) -> SstInspection:
        """One SST, by its key or its object id (32 hexadecimal digits)."""
        self._guard.check()
        async with self._open_stored(self._context.name) as database:
            return await inspect_sst(database, wanted, self._context.ssts)

    async def runs(self) -> list[RunInspection]:
        """L0, SST by SST, then the sorted runs, newest first."""
        return inspect_runs((await self.manifest()).state)
