"""`IngestJob` and `IngestTask`: a bulk ingest as its driver and its tasks see it. Wiring only.

See `slate_async.engine.ingest`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Protocol

from slate_async.arguments import Duration, seconds
from slate_async.database.db import Db
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.metrics import shared_counters
from slate_async.engine.ingest import manage
from slate_async.engine.ingest.manage import IngestInfo
from slate_async.engine.ingest.open import WAIT_S, IngestOptions, poll_s, register_job
from slate_async.engine.ingest.replacement import OpenOld
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import Batches, Replaced, write_deletes, write_ssts
from slate_async.errors import ConflictError, FencedError, InvalidError, SlateError, UnavailableError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.ingests import RenewIngest
from slate_async.storage.manifest.edits.writer import has_writer
from slate_async.types import RowLimits

logger = logging.getLogger(__name__)
DAY_S = 86_400.0
RENEWALS = 3
"""An open job is renewed so often in its lifetime."""


class OpenWriter(Protocol):
    """Opens the job's database as its writer; ``if_free``: only if nobody else has."""

    def __call__(self, *, if_free: bool) -> AbstractAsyncContextManager[Db]: ...


class IngestTask(Handle):
    """Made by `slate_async.open_ingest_task` or `Environment.open_ingest_task`, never directly.

    Writes a part of an ingest's SSTs, in any process: it claims nothing, and reads metadata only if the job replaces
    what was there. Memory: two SSTs and two batches."""

    _noun = "ingest task"

    def __init__(
        self,
        resources: HandleResources,
        spec: IngestSpec,
        *,
        old: OpenOld,
    ) -> None:
        Handle.__init__(self, resources)
        self._old = old
        self.spec = spec

    async def write(self, batches: Batches, *, duplicates: Duplicates = "error") -> list[IngestedSst]:
        """Upload ``batches`` as SSTs; the results for the job's `IngestJob.commit`, none for no rows.

        batches: record batches or tables of pyarrow, one or many, sorted by key over all of them. Columns: ``key``,
        ``value``, and if wanted ``op`` (``"put"`` or ``"delete"``) and ``expire_time`` (a timestamp, or milliseconds
        since the Unix epoch; null for never)
        duplicates: equal keys are an ``"error"``, or the ``"last"`` of them counts

        A job that replaces what was there also deletes the other keys of then, from the first of the batches to the
        last; so what one call is given must be all the job has of that range.

        Raises `InvalidError` for rows that cannot be taken, naming the first, `ConflictError` if the job replaces and
        was committed or has ended, `UnavailableError`."""
        self._check()
        context = self._context
        return await write_ssts(
            context.store,
            self.spec,
            batches,
            context.runtime,
            duplicates=duplicates,
            open_old=self._old,
            limits=RowLimits(context.settings.max_key_bytes, context.settings.max_value_bytes),
        )

    def __repr__(self) -> str:
        return f"<IngestTask {self._name} {self.spec.job_id!r} {self._state}>"


class IngestJob(Handle):
    """Made by `slate_async.open_ingest` or `Environment.open_ingest`, never directly: the driver of a bulk ingest.

    While it is open the job is renewed; closing it ends nothing: it can be opened again, by its id, until it expires.
    Errors of every method: `InvalidError`, `ClosedError` after closing, `UnavailableError`, `CorruptionError`."""

    _noun = "ingest"

    def __init__(
        self,
        resources: HandleResources,
        options: IngestOptions,
        driver: ManifestDriver,
        spec: IngestSpec | None,
        *,
        writer: OpenWriter,
        old: OpenOld,
    ) -> None:
        Handle.__init__(self, resources)
        self._clock = resources.context.runtime.clock
        self.job_id = options.job_id
        self._driver = driver
        self._spec = spec
        self._lifetime_ms = options.lifetime_ms
        self._writer = writer
        self._old = old
        self._written: list[IngestedSst] = []
        self._committed = self._spec is None
        if self._spec is not None:
            resources.supervisor.spawn("renew ingest", self._renew())

    @property
    def spec(self) -> IngestSpec:
        """What tasks must know. Raises `InvalidError` if the job has ended already."""
        if self._spec is None:
            raise InvalidError(f"ingest {self.job_id!r} is in the database already; a new one needs another id")
        return self._spec

    async def write(self, batches: Batches, *, duplicates: Duplicates = "error") -> list[IngestedSst]:
        """Upload ``batches`` here, as `IngestTask.write` does elsewhere; `commit` takes them along. Ranges of keys of
        several calls must not overlap. Of a job that replaces, and that another driver has committed, nothing is
        written."""
        self._check()
        spec, place = self.spec, self._context
        try:
            written = await write_ssts(
                place.store,
                spec,
                batches,
                place.runtime,
                duplicates=duplicates,
                open_old=self._old,
                limits=RowLimits(place.settings.max_key_bytes, place.settings.max_value_bytes),
            )
        except ConflictError:
            await self._check_committed()
            return []
        self._written += written
        return written

    async def commit(
        self,
        ssts: Iterable[IngestedSst] = (),
        *,
        batch: tuple[str, int] | None = None,
        wait: bool = True,
        timeout: Duration = WAIT_S,
        exclusive: bool = False,
    ) -> IngestInfo:
        """Let everything that tasks have written into the database, as one step for every reader; what became of it.

        ssts: the results that tasks elsewhere reported; what `write` wrote here goes along
        batch: ``(app id, number)`` of the batch of a stream that this is. If that one, or a later one of the same app,
        is in the database or waits to be, nothing happens (``state`` is ``"duplicate"``)
        wait: until the live writer has applied it; else it may be ``"pending"`` still
        timeout: seconds or a timedelta to wait
        exclusive: become the writer, which fences one that lives, apply, and give up. So does who waits, without
        fencing anybody, if nobody had ever opened the database to write when the job began. If the job replaces what
        was there, nothing may have been written since it began, so that its rows are all there is

        Asked again, by whomever, the same job is the same: the first answer stands. Raises `IngestPendingError` when no
        writer has applied it in time; it stays pending. `ConflictError` if the job has ended: it expired, or was
        aborted; or if it was committed as another batch, or as none; or if something was written that it would have
        to replace, too, and ``exclusive``. `FencedError` if that one lost the writer's role before its commit.
        `InvalidError` if SSTs overlap, are another job's, or are not there. `UnavailableError`: unknown; ask again."""
        self._check()
        manage.check_job(self.job_id, batch)
        limit = seconds(timeout, "timeout")
        results = list(ssts)
        replaced = await self._replaced(results)
        if replaced is not None and exclusive:
            return await self._as_writer(limit, first=partial(self._commit_alone, results, replaced, batch))
        info = await self._commit(results, replaced, batch)
        if not info.done and exclusive:
            return await self._as_writer(limit)
        if not info.done and wait and self._spec is not None and self._spec.writer_epoch == 0:
            return await self._among_first(limit)
        return await self._until_applied(limit) if wait else info

    async def _commit(
        self,
        results: list[IngestedSst],
        replaced: Replaced | None,
        batch: tuple[str, int] | None,
        *,
        alone: tuple[int, int] | None = None,
    ) -> IngestInfo:
        if self._spec is None:
            info = await manage.info(self._driver, self.job_id)
        else:
            await manage.check_there(self._driver, self._context.store, self.job_id, results)
            made = [*self._written, *results, *(replaced.deletes if replaced is not None else ())]
            info = await manage.commit(self._driver, self._clock, self._spec, made, batch, alone)
        self._committed = True
        manage.check_same(info, batch)
        return info

    async def _replaced(self, results: list[IngestedSst]) -> Replaced | None:
        """What the job replaces, with the deletes that no task has made; ``None`` if it only adds, or is committed."""
        spec, place = self._spec, self._context
        if spec is None or spec.replaces is None:
            return None
        try:
            return await write_deletes(place.store, spec, [*self._written, *results], self._old, place.runtime)
        except ConflictError:
            await self._check_committed()
            return None

    async def _check_committed(self) -> None:
        """What a job replaces is kept no longer. Raise `ConflictError` unless that is so since somebody committed
        it."""
        info = await manage.info(self._driver, self.job_id)
        if info.state in ("pending", "applied", "duplicate"):
            logger.info("%s: ingest %s was committed by another driver", self._name, self.job_id)
            return
        expired = info.state in ("registered", "expired")
        why = (
            "has expired: nobody renewed it in time, or its checkpoint was deleted" if expired else f"was {info.state}"
        )
        raise ConflictError(f"ingest {self.job_id!r} {why}; begin again", outcome="not_applied")

    async def _commit_alone(
        self, results: list[IngestedSst], replaced: Replaced, batch: tuple[str, int] | None, db: Db
    ) -> None:
        """Commit, unless something was written since the job began: then nobody can commit it so any more, and it is
        aborted, so that it may begin anew."""
        await self._driver.load()  # what it knows may be older than the writer's claim
        newest = db.status().last_seq
        try:
            if newest != replaced.seq and (await self.info()).state == "registered":
                raise ConflictError(
                    f"ingest {self.job_id!r} was to replace everything, and began at sequence number {replaced.seq}; by"
                    f" now {newest} is given. It was aborted: begin anew, or beside the writer, where what is first"
                    " put meanwhile stays",
                    outcome="not_applied",
                )
            await self._commit(results, replaced, batch, alone=(db.status().epoch, replaced.seq))
        except ConflictError:
            with suppress(SlateError):
                await self.abort(unless_committed=True)
            raise

    async def _among_first(self, timeout_s: float) -> IngestInfo:
        """Nobody had ever opened the database to write when the job began, so perhaps nobody will apply it. Others may
        be in the same place: whoever is the writer for a moment may not have seen this job, so all take turns."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - self._clock.monotonic())
            if not has_writer(await self._driver.existing(self._name)):
                try:
                    return await self._in_a_writer(left_s, if_free=True)
                except FencedError as fenced:
                    logger.info("%s: ingest %s: another writer was quicker: %s", self._name, self.job_id, fenced)
            try:
                return await self._until_applied(min(left_s, self._poll_s))
            except manage.IngestPendingError:
                if left_s <= self._poll_s:
                    raise

    async def _as_writer(self, timeout_s: float, *, first: Callable[[Db], Awaitable[None]] | None = None) -> IngestInfo:
        """Become the writer until the job is applied; ``first`` is done before. Who fences this one applies what is
        committed, too."""
        try:
            return await self._in_a_writer(timeout_s, first=first)
        except FencedError as fenced:
            if not self._committed:
                raise
            logger.info("%s: ingest %s is left to another writer: %s", self._name, self.job_id, fenced)
            return await self._until_applied(timeout_s)

    async def _in_a_writer(
        self, timeout_s: float, *, if_free: bool = False, first: Callable[[Db], Awaitable[None]] | None = None
    ) -> IngestInfo:
        async with self._writer(if_free=if_free) as db:
            if first is not None:
                await first(db)
            room = self._supervisor.spawn("make room for an ingest", self._make_room(db), critical=False)
            try:
                return await self._until_applied(timeout_s)
            finally:
                room.cancel()
                await asyncio.wait([room])

    async def _make_room(self, db: Db) -> None:
        """Compact where L0 is full, for perhaps nobody else does; else leave that to whoever compacts."""
        while db.status().state == "open":
            if db.status().l0_stall is not None:
                try:
                    await db.compact()
                except SlateError as error:
                    logger.warning("%s: no room for ingest %s yet: %s", self._name, self.job_id, error)
            await self._clock.sleep(self._poll_s)

    async def wait(self, timeout: Duration = WAIT_S) -> IngestInfo:
        """Wait until what was committed is in the database. Raises as `commit` does."""
        self._check()
        return await self._until_applied(seconds(timeout, "timeout"))

    async def _until_applied(self, timeout_s: float) -> IngestInfo:
        return await manage.until_applied(
            self._driver, self._clock, self.job_id, timeout_s=timeout_s, poll_s=self._poll_s
        )

    @property
    def _poll_s(self) -> float:
        return poll_s(self._context.settings)

    async def abort(self, *, unless_committed: bool = False) -> IngestInfo:
        """End the job; what became of it: ``"aborted"``, unless it was applied before. Nothing is deleted here:
        collectors take what nothing names. A job of its name that was begun anew since is left alone. Raises
        `ConflictError` if a later batch of its stream waits.

        unless_committed: leave it alone once it is committed, by this driver or another one"""
        self._check()
        self._committed = True
        base_version = None if self._spec is None else self._spec.base_version
        return await manage.abort(
            self._driver, self._clock, self.job_id, unless_committed=unless_committed, base_version=base_version
        )

    async def info(self) -> IngestInfo:
        """The job as it is now. Raises `ConflictError` if nothing is known of it any more."""
        self._check()
        return await manage.info(self._driver, self.job_id)

    async def _renew(self) -> None:
        """Keep the job alive until it is committed. `commit` reports one that could not be renewed."""
        while True:
            await self._clock.sleep(self._lifetime_ms / 1000 / RENEWALS)
            if self._committed:
                return
            try:
                await self._driver.commit(RenewIngest(self.job_id, self._clock.now_ms() + self._lifetime_ms))
            except UnavailableError as error:
                logger.warning("%s: ingest %s could not be renewed: %s", self._name, self.job_id, error)
            except ConflictError as error:
                logger.warning("%s: %s", self._name, error)
                return

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``."""
        return {
            "ingest.ssts": len(self._written),
            "ingest.rows": sum(one.rows for one in self._written),
            "ingest.written_bytes": sum(one.size for one in self._written),
            **shared_counters(self._context, self._driver, None),
        }

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._driver.close]

    def __repr__(self) -> str:
        return f"<IngestJob {self._name} {self.job_id!r} {self._state}>"


async def begin_ingest(
    resources: HandleResources,
    options: IngestOptions,
    writer: OpenWriter,
    old: OpenOld,
) -> IngestJob:
    """Register the job; see `Environment.open_ingest`."""
    driver, spec = await register_job(resources.context, resources.supervisor, options)
    return IngestJob(resources, options, driver, spec, writer=writer, old=old)
