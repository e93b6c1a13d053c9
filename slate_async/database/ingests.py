"""`Ingests`: the bulk ingests of a database, as its administration sees them."""

from __future__ import annotations

import builtins

from slate_async.engine.context import DatabaseContext
from slate_async.engine.ingest.manage import (
    IngestApp,
    IngestInfo,
    abort,
    all_apps,
    all_jobs,
    check_job,
    forget_app,
)
from slate_async.engine.ingest.orphans import IngestObject, ingest_objects
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.storage.manifest.driver import ManifestDriver


class Ingests:
    """``admin.ingests``: the bulk ingests of all jobs. Errors of every method are those of `Admin`."""

    def __init__(self, context: DatabaseContext, driver: ManifestDriver, guard: LoopGuard) -> None:
        self._context = context
        self._driver = driver
        self._guard = guard

    async def list(self) -> builtins.list[IngestInfo]:
        """Bulk ingests on their way, the oldest first; then the last ones that have ended, the latest first."""
        self._guard.check()
        return all_jobs(await self._guard.while_open(self._driver.existing()))

    async def abort(self, job_id: str, *, unless_committed: bool = False) -> IngestInfo:
        """End an ingest that was not applied yet; see `IngestJob.abort`."""
        self._guard.check()
        check_job(job_id)
        clock = self._context.runtime.clock
        return await self._guard.while_open(abort(self._driver, clock, job_id, unless_committed=unless_committed))

    async def objects(self, job_id: str | None = None) -> builtins.list[IngestObject]:
        """SSTs that tasks of one ingest, or of all, have uploaded and that are still there: also those of attempts that
        failed, which a garbage collector deletes when the job has ended. Asks the store about each."""
        self._guard.check()
        state = await self._guard.while_open(self._driver.existing())
        return [stored async for stored in ingest_objects(self._context.store, state, job_id)]

    async def apps(self) -> builtins.list[IngestApp]:
        """Streams of which a batch is in, by name. A thousand are remembered, and none is forgotten by itself: see
        `forget_app`."""
        self._guard.check()
        return all_apps(await self._guard.while_open(self._driver.existing()))

    async def forget_app(self, app_id: str) -> None:
        """Forget a stream that has ended: its last batch, and the jobs of its batches. Then the app id is free, and a
        batch of it is taken again. Raises `ConflictError` while a batch of it waits to be applied."""
        self._guard.check()
        await self._guard.while_open(forget_app(self._driver, app_id))
