"""`JobDriver`: commits an ingest, waits until it is applied, and keeps it alive until then.

A job is committed once, by whichever of its drivers comes first; the others return what that one committed. Where no
writer applies a committed job, the driver becomes the writer until it is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Protocol

from slate_async.engine.context import DatabaseContext
from slate_async.engine.ingest import manage
from slate_async.engine.ingest.manage import IngestInfo
from slate_async.engine.ingest.open import IngestOptions, poll_s
from slate_async.engine.ingest.replacement import OpenOld
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import Batches, Replaced, write_deletes, write_ssts
from slate_async.errors import ConflictError, FencedError, SlateError, UnavailableError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.ingests import RenewIngest
from slate_async.storage.manifest.edits.writer import has_writer
from slate_async.types import RowLimits

logger = logging.getLogger(__name__)
RENEWALS = 3
"""An open job is renewed so often in its lifetime."""


class WriterStatus(Protocol):
    """What a driver that has become the writer looks at."""

    @property
    def state(self) -> str:
        """``"open"`` while it can go on."""

    @property
    def epoch(self) -> int:
        """Its writer epoch."""

    @property
    def last_seq(self) -> int:
        """The highest sequence number that is given."""

    @property
    def l0_stall(self) -> str | None:
        """Why it waits for compaction, if it does."""


class JobWriter(Protocol):
    """A database that is open as its writer."""

    def status(self) -> WriterStatus:
        """See `WriterStatus`."""

    def compact(self) -> Awaitable[int]:
        """Compact what is due."""


class OpenWriter(Protocol):
    """Opens the job's database as its writer; ``if_free``: only if no other process has."""

    def __call__(self, *, if_free: bool) -> AbstractAsyncContextManager[JobWriter]: ...


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
        writer: OpenWriter,
        old: OpenOld,
    ) -> None:
        self._context = context
        self._name = context.name
        self._clock = context.runtime.clock
        self._supervisor = supervisor
        self._driver = driver
        self._guard = guard
        self._lifetime_ms = options.lifetime_ms
        self._writer = writer
        self._old = old
        self._poll_s = poll_s(context.settings)
        self._committed = spec is None
        self.job_id = options.job_id
        self.spec = spec
        self.written: list[IngestedSst] = []

    async def write(self, spec: IngestSpec, batches: Batches, duplicates: Duplicates) -> list[IngestedSst]:
        """See `IngestJob.write`."""
        try:
            written = await write_job_ssts(self._context, spec, batches, duplicates, self._old)
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
        exclusive: bool,
    ) -> IngestInfo:
        """See `IngestJob.commit`."""
        replaced = await self._replaced(results)
        if replaced is not None and exclusive:
            return await self._as_writer(timeout_s, first=partial(self._commit_alone, results, replaced, batch))
        info = await self._commit(results, replaced, batch)
        if not info.done and exclusive:
            return await self._as_writer(timeout_s)
        if not info.done and wait and self.spec is not None and self.spec.writer_epoch == 0:
            return await self._among_first(timeout_s)
        return await self.until_applied(timeout_s) if wait else info

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

    async def _commit(
        self,
        results: list[IngestedSst],
        replaced: Replaced | None,
        batch: manage.StreamBatch | None,
        *,
        alone: tuple[int, int] | None = None,
    ) -> IngestInfo:
        if self.spec is None:
            info = await manage.info(self._driver, self.job_id)
        else:
            await manage.check_there(self._driver, self._context.store, self.job_id, results)
            made = [*self.written, *results, *(replaced.deletes if replaced is not None else ())]
            info = await manage.commit(self._driver, self._clock, self.spec, made, batch, alone)
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
        self, results: list[IngestedSst], replaced: Replaced, batch: manage.StreamBatch | None, db: JobWriter
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
                    " exclusive=True, which keeps rows that were put meanwhile",
                    outcome="not_applied",
                )
            await self._commit(results, replaced, batch, alone=(db.status().epoch, replaced.seq))
        except ConflictError:
            with suppress(SlateError):
                await self.abort(unless_committed=True)
            raise

    async def _among_first(self, timeout_s: float) -> IngestInfo:
        """No writer had ever opened the database when the job began, so perhaps none will apply it. Drivers of several
        first jobs take turns as the writer, because each of them may become the writer before it has seen this job."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - self._clock.monotonic())
            if not has_writer(await self._driver.existing(self._name)):
                try:
                    return await self._in_a_writer(left_s, if_free=True)
                except FencedError as fenced:
                    logger.info("%s: ingest %s: another writer was quicker: %s", self._name, self.job_id, fenced)
            try:
                return await self.until_applied(min(left_s, self._poll_s))
            except manage.IngestPendingError:
                if left_s <= self._poll_s:
                    raise

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
        self, timeout_s: float, *, if_free: bool = False, first: Callable[[JobWriter], Awaitable[None]] | None = None
    ) -> IngestInfo:
        async with self._writer(if_free=if_free) as db:
            if first is not None:
                await first(db)
            room = self._supervisor.spawn("make room for an ingest", self._make_room(db), critical=False)
            try:
                return await self.until_applied(timeout_s)
            finally:
                room.cancel()
                await asyncio.wait([room])

    async def _make_room(self, db: JobWriter) -> None:
        """Compact if L0 is full, because no compactor may be running; else leave that to the compactor."""
        while db.status().state == "open":
            if db.status().l0_stall is not None:
                try:
                    await db.compact()
                except SlateError as error:
                    logger.warning(
                        "%s: L0 is full, and compacting for ingest %s failed, trying again: %s",
                        self._name,
                        self.job_id,
                        error,
                    )
            await self._clock.sleep(self._poll_s)


async def write_job_ssts(
    context: DatabaseContext, spec: IngestSpec, batches: Batches, duplicates: Duplicates, old: OpenOld
) -> list[IngestedSst]:
    """Upload ``batches`` as SSTs of the job; see `IngestTask.write`."""
    return await write_ssts(
        context.store,
        spec,
        batches,
        context.runtime,
        duplicates=duplicates,
        open_old=old,
        limits=RowLimits(context.settings.max_key_bytes, context.settings.max_value_bytes),
    )
