"""`JobDriver`: commits an ingest, waits until it is applied, and keeps it alive until then.

A job is committed once, by whichever of its drivers comes first; the others return what that one committed. Where no
writer applies a committed job, the driver becomes the writer until it is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from slate_async.engine.context import DatabaseContext
from slate_async.engine.ingest import manage
from slate_async.engine.ingest.digest import job_digest
from slate_async.engine.ingest.ending import Ending
from slate_async.engine.ingest.manage import IngestInfo
from slate_async.engine.ingest.open import IngestOptions, poll_s
from slate_async.engine.ingest.replacement import OpenOld
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import Batches, Replaced, write_deletes, write_ssts
from slate_async.engine.ingest.takeover import JobWriter, OwnWriter
from slate_async.engine.ingest.watch import IngestMode, WriterWatch
from slate_async.errors import ConflictError, FencedError, SlateError, UnavailableError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.ingests import RenewIngest, RenewLease
from slate_async.types import RowLimits

logger = logging.getLogger(__name__)
SHOWN_S = 30.0
"""A writer that applied an ingest shows it with its next commit."""
RENEWALS = 3
"""An open job is renewed so often in its lifetime, and what is committed of a leased one in its lease."""


class JobDriver:
    """``spec`` is what tasks must know, ``None`` of a job that has ended already; ``written`` are SSTs uploaded here.

    guard: raises if the job's handle can no longer answer
    """

    def __init__(
        self,
        context: DatabaseContext,
        supervisor: Supervisor,
        driver: ManifestDriver,
        spec: IngestSpec | None,
        options: IngestOptions,
        guard: LoopGuard,
        *,
        own: OwnWriter,
        old: OpenOld,
    ) -> None:
        self._context = context
        self._name = context.name
        self._clock = context.runtime.clock
        self._supervisor = supervisor
        self._driver = driver
        self._guard = guard
        self._lifetime_ms = options.lifetime_ms
        self._mode = options.mode
        self._leased = options.leased
        self._own = own
        self._old = old
        self._poll_s = poll_s(context.settings)
        self._committed = spec is None
        self.job_id = options.job_id
        self.spec = spec
        self.written: list[IngestedSst] = []

    async def write(
        self, spec: IngestSpec, batches: Batches, duplicates: Duplicates, *, digest: bool
    ) -> list[IngestedSst]:
        """See `IngestJob.write`."""
        try:
            written = await write_job_ssts(self._context, spec, batches, duplicates, self._old, digest=digest)
        except ConflictError:
            await self._check_committed()
            return []
        self.written += written
        return written

    async def commit(
        self,
        results: list[IngestedSst],
        batch: manage.StreamBatch | None,
        *,
        wait: bool,
        timeout_s: float,
        mode: IngestMode | None,
    ) -> IngestInfo:
        """See `IngestJob.commit`."""
        chosen = self._mode if mode is None else mode
        if not self._leased or batch is not None:
            return await self._commit_and_wait(results, batch, None, wait=wait, timeout_s=timeout_s, mode=chosen)
        lease_ms = self._context.settings.ingest_lease_ms if wait else None
        try:
            async with self._lease_renewed(lease_ms):
                return await self._commit_and_wait(
                    results, batch, lease_ms, wait=wait, timeout_s=timeout_s, mode=chosen
                )
        except (Exception, asyncio.CancelledError) as error:
            ending = Ending(self._name, self._driver, self._clock, self.job_id)
            await run_to_completion(ending.run())
            if isinstance(error, asyncio.CancelledError):
                raise
            info = ending.check(error)
        return await self._until_shown(info, max(timeout_s, SHOWN_S))

    async def _until_shown(self, info: IngestInfo, timeout_s: float) -> IngestInfo:
        """It came in before its abort; the writer that applied it may have to show it yet."""
        try:
            return await self.until_applied(timeout_s)
        except SlateError as error:
            raise manage.IngestPendingError(
                f"ingest {info.job_id!r} was applied under sequence number {info.seq}. No writer has said yet that its"
                f" own reads show it: {error}",
                info,
            ) from error

    async def _commit_and_wait(
        self,
        results: list[IngestedSst],
        batch: manage.StreamBatch | None,
        lease_ms: int | None,
        *,
        wait: bool,
        timeout_s: float,
        mode: IngestMode,
    ) -> IngestInfo:
        exclusive = mode == "exclusive"
        replaced = await self._replaced(results)
        if replaced is not None and exclusive:
            return await self._as_writer(
                timeout_s, first=partial(self._commit_alone, results, replaced, batch, lease_ms)
            )
        info = await self._commit(results, replaced, batch, lease_ms)
        if not info.done and exclusive:
            return await self._as_writer(timeout_s)
        if not wait:
            return info
        return await self._with_or_as_writer(timeout_s) if mode == "auto" else await self.until_applied(timeout_s)

    async def until_applied(self, timeout_s: float) -> IngestInfo:
        """Wait until what was committed is in the database. Raises as `IngestJob.commit` does."""
        return await manage.until_applied(
            self._driver, self._clock, self.job_id, timeout_s=timeout_s, poll_s=self._poll_s
        )

    async def abort(self, *, unless_committed: bool) -> IngestInfo:
        """See `IngestJob.abort`."""
        self._guard.check()
        self._committed = True
        base_version = None if self.spec is None else self.spec.base_version
        return await manage.abort(
            self._driver, self._clock, self.job_id, unless_committed=unless_committed, base_version=base_version
        )

    async def info(self) -> IngestInfo:
        """See `IngestJob.info`."""
        self._guard.check()
        return await manage.info(self._driver, self.job_id)

    async def renew(self) -> None:
        """Keep the job alive until it is committed. `commit` reports one that could not be renewed."""
        while True:
            await self._clock.sleep(self._lifetime_ms / 1000 / RENEWALS)
            if self._committed:
                return
            try:
                await self._driver.commit(RenewIngest(self.job_id, self._clock.now_ms() + self._lifetime_ms))
            except UnavailableError as error:
                logger.warning("%s: ingest %s could not be renewed, trying again: %s", self._name, self.job_id, error)
            except ConflictError as error:
                logger.warning("%s: ingest %s is not renewed any more: %s", self._name, self.job_id, error)
                return

    @asynccontextmanager
    async def _lease_renewed(self, lease_ms: int | None) -> AsyncGenerator[None, None]:
        """Inside the block nobody lets the lease of what is committed end, as long as this process lives."""
        if lease_ms is None:
            yield
            return
        renewing = self._supervisor.spawn("renew lease", self._renew_lease(lease_ms), critical=False)
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew_lease(self, lease_ms: int) -> None:
        while True:
            await self._clock.sleep(lease_ms / 1000 / RENEWALS)
            if self.spec is None or not self._committed:
                continue
            until_ms = self._clock.now_ms() + lease_ms
            try:
                await self._driver.commit(RenewLease(self.job_id, self.spec.base_version, until_ms))
            except UnavailableError as error:
                logger.warning("%s: the lease of ingest %s could not be renewed: %s", self._name, self.job_id, error)
            except ConflictError as error:
                logger.warning("%s: %s", self._name, error)
                return

    async def _commit(
        self,
        results: list[IngestedSst],
        replaced: Replaced | None,
        batch: manage.StreamBatch | None,
        lease_ms: int | None,
        *,
        alone: tuple[int, int] | None = None,
    ) -> IngestInfo:
        if self.spec is None:
            info = await manage.info(self._driver, self.job_id)
        else:
            await manage.check_there(self._driver, self._context.store, self.job_id, results)
            digest = job_digest([*self.written, *results])
            made = [*self.written, *results, *(replaced.deletes if replaced is not None else ())]
            info = await manage.commit(self._driver, self._clock, self.spec, made, batch, alone, lease_ms, digest)
        self._committed = True
        manage.check_same(info, batch)
        return info

    async def _replaced(self, results: list[IngestedSst]) -> Replaced | None:
        """What the job replaces, with the deletes that no task has made; ``None`` if it only adds, or is committed."""
        spec, context = self.spec, self._context
        if spec is None or spec.replaces is None:
            return None
        try:
            return await write_deletes(context.store, spec, [*self.written, *results], self._old, context.runtime)
        except ConflictError:
            await self._check_committed()
            return None

    async def _check_committed(self) -> None:
        """What a job replaces is kept no longer. Raise `ConflictError` unless the reason is that the job was
        committed."""
        info = await manage.info(self._driver, self.job_id)
        if info.state in ("pending", "applied", "duplicate"):
            logger.info("%s: ingest %s was committed by another driver", self._name, self.job_id)
            return
        expired = info.state in ("registered", "expired")
        why = (
            "has expired: its driver did not renew it in time, or its checkpoint was deleted"
            if expired
            else f"was {info.state}"
        )
        raise ConflictError(f"ingest {self.job_id!r} {why}; begin again", outcome="not_applied")

    async def _commit_alone(
        self,
        results: list[IngestedSst],
        replaced: Replaced,
        batch: manage.StreamBatch | None,
        lease_ms: int | None,
        db: JobWriter,
    ) -> None:
        """Commit, unless something was written since the job began: then it can no longer be committed so, and it is
        aborted, so that it may begin anew."""
        await self._driver.load()  # what it knows may be older than the writer's claim
        newest = db.status().last_seq
        try:
            if newest != replaced.seq and (await self.info()).state == "registered":
                raise ConflictError(
                    f"ingest {self.job_id!r} replaces all rows as of sequence number {replaced.seq}, but the database"
                    f" is at {newest} now. The ingest was aborted: begin it again, or commit it without"
                    " mode='exclusive', which keeps rows that were put meanwhile",
                    outcome="not_applied",
                )
            await self._commit(results, replaced, batch, lease_ms, alone=(db.status().epoch, replaced.seq))
        except ConflictError:
            with suppress(SlateError):
                await self.abort(unless_committed=True)
            raise

    async def _with_or_as_writer(self, timeout_s: float) -> IngestInfo:
        """Wait for a writer that lives; without one, become it. Several drivers may do so at once: one that was the
        writer may have closed before it saw this job, so all take turns. A writer that is silent is watched until it is
        known to have died, however short ``timeout_s`` is."""
        watch, began = WriterWatch(self._context, self._driver, self._poll_s), self._clock.monotonic()
        while True:
            life = await watch.look()
            if life.free:
                dead = watch.token if life.state == "dead" else None
                try:
                    return await self._in_a_writer(timeout_s, if_free=dead is None, instead_of=dead)
                except FencedError as fenced:
                    logger.info("%s: ingest %s: another writer was quicker: %s", self._name, self.job_id, fenced)
            left_s = began + max(timeout_s, watch.silence_s(life)) - self._clock.monotonic()
            try:
                return await self.until_applied(max(0.0, min(left_s, watch.pause_s)))
            except manage.IngestPendingError as pending:
                if left_s <= watch.pause_s:
                    raise manage.still_pending(pending.info, timeout_s) from None

    async def _as_writer(
        self, timeout_s: float, *, first: Callable[[JobWriter], Awaitable[None]] | None = None
    ) -> IngestInfo:
        """Become the writer until the job is applied; ``first`` is done before. A writer that fences this one applies
        committed jobs, too."""
        try:
            return await self._in_a_writer(timeout_s, first=first)
        except FencedError as fenced:
            if not self._committed:
                raise
            logger.info("%s: ingest %s is left to another writer: %s", self._name, self.job_id, fenced)
            return await self.until_applied(timeout_s)

    async def _in_a_writer(
        self,
        timeout_s: float,
        *,
        if_free: bool = False,
        instead_of: str | None = None,
        first: Callable[[JobWriter], Awaitable[None]] | None = None,
    ) -> IngestInfo:
        async def work(db: JobWriter) -> IngestInfo:
            if first is not None:
                await first(db)
            return await self.until_applied(timeout_s)

        return await self._own.for_as_long_as(work, if_free=if_free, instead_of=instead_of)


async def write_job_ssts(
    context: DatabaseContext, spec: IngestSpec, batches: Batches, duplicates: Duplicates, old: OpenOld, *, digest: bool
) -> list[IngestedSst]:
    """Upload ``batches`` as SSTs of the job; see `IngestTask.write`."""
    return await write_ssts(
        context.store,
        spec,
        batches,
        context.runtime,
        duplicates=duplicates,
        digest=digest,
        open_old=old,
        limits=RowLimits(context.settings.max_key_bytes, context.settings.max_value_bytes),
    )
