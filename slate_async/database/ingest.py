"""`IngestJob` and `IngestTask`: a bulk ingest as its driver and its tasks see it. Wiring only.

See `slate_async.engine.ingest`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from slate_async.arguments import Duration, seconds
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.metrics import shared_counters
from slate_async.engine.ingest import manage
from slate_async.engine.ingest.driver import JobDriver, write_job_ssts
from slate_async.engine.ingest.manage import IngestInfo, StreamBatch
from slate_async.engine.ingest.open import WAIT_S, IngestOptions, poll_s, register_job
from slate_async.engine.ingest.replacement import OpenOld
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.ingest.sst_writer import Batches
from slate_async.engine.ingest.takeover import OpenWriter, OwnWriter
from slate_async.engine.ingest.watch import IngestMode, check_mode
from slate_async.errors import InvalidError
from slate_async.storage.manifest.driver import ManifestDriver

DAY_S = 86_400.0


class IngestTask(Handle):
    """Made by `slate_async.open_ingest_task` or `Environment.open_ingest_task`, never directly.

    Writes a part of an ingest's SSTs, in any process: it claims nothing, and reads metadata only if the job replaces
    what was there. Memory: two SSTs and two batches."""

    spec: IngestSpec
    """What the task knows of its job, as `IngestJob.spec` gave it."""

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

    async def write(
        self, batches: Batches, *, duplicates: Duplicates = "error", digest: bool = False
    ) -> list[IngestedSst]:
        """Upload ``batches`` as SSTs; the results for the job's `IngestJob.commit`, none for no rows.

        batches: record batches or tables of pyarrow, one or many, sorted by key over all of them. Columns: ``key``,
        ``value``, and if wanted ``op`` (``"put"`` or ``"delete"``) and ``expire_time`` (a timestamp, or milliseconds
        since the Unix epoch; null for never)
        duplicates: equal keys are an ``"error"``, or the ``"last"`` of them counts
        digest: note a digest of the rows, `IngestInfo.digest` if all calls of the job do; 0.1 µs a row

        A job that replaces what was there also deletes the other keys of then, from the first of the batches to the
        last; so what one call is given must be all the job has of that range.

        Raises `InvalidError` for rows that cannot be taken, naming the first, `ConflictError` if the job replaces and
        was committed or has ended, `UnavailableError`."""
        self._check()
        return await write_job_ssts(self._context, self.spec, batches, duplicates, self._old, digest=digest)

    def __repr__(self) -> str:
        return f"<IngestTask {self._name} {self.spec.job_id!r} {self._state}>"


class IngestJob(Handle):
    """Made by `slate_async.open_ingest` or `Environment.open_ingest`, never directly: the driver of a bulk ingest.

    While it is open the job is renewed; closing it ends nothing: it can be opened again, by its id, until it expires.
    Errors of every method: `InvalidError`, `ClosedError` after closing, `UnavailableError`, `CorruptionError`."""

    job_id: str
    """The name under which the ingest is opened again, listed and aborted."""

    _noun = "ingest"

    def __init__(
        self,
        resources: HandleResources,
        options: IngestOptions,
        driver: ManifestDriver,
        spec: IngestSpec | None,
        *,
        own: OwnWriter,
        old: OpenOld,
    ) -> None:
        Handle.__init__(self, resources)
        self.job_id = options.job_id
        self._driver = driver
        self._job = JobDriver(
            resources.context, resources.supervisor, driver, spec, options, self._guard, own=own, old=old
        )
        if spec is not None:
            resources.supervisor.spawn("renew ingest", self._job.renew())

    @property
    def spec(self) -> IngestSpec:
        """What tasks must know. Raises `InvalidError` if the job has ended already."""
        if self._job.spec is None:
            raise InvalidError(f"ingest {self.job_id!r} is in the database already; a new one needs another id")
        return self._job.spec

    async def write(
        self, batches: Batches, *, duplicates: Duplicates = "error", digest: bool = False
    ) -> list[IngestedSst]:
        """Upload ``batches`` here, as `IngestTask.write` does elsewhere; `commit` takes them along. Ranges of keys of
        several calls must not overlap. Of a job that replaces, and that another driver has committed, nothing is
        written."""
        self._check()
        return await self._job.write(self.spec, batches, duplicates, digest=digest)

    async def commit(
        self,
        ssts: Iterable[IngestedSst] = (),
        *,
        batch: StreamBatch | None = None,
        wait: bool = True,
        timeout: Duration = WAIT_S,
        mode: IngestMode | None = None,
    ) -> IngestInfo:
        """Let everything that tasks have written into the database, as one step for every reader; what became of it.

        ssts: the results that tasks elsewhere reported; what `write` wrote here goes along
        batch: ``(app id, number)`` of the batch of a stream that this is. If that one, or a later one of the same app,
        is in the database or waits to be, nothing happens (``state`` is ``"duplicate"``). A third part is the id of
        the query that counts the batches: a batch that another query counts is refused, for that begins at 0 again
        wait: until the live writer has applied it; else it may be ``"pending"`` still
        timeout: seconds or a timedelta to wait
        mode: by default that of the opening. ``"auto"``: the live writer applies the job; without one this driver
        becomes the writer, applies it, and gives up. A writer that is silent is watched for three of its heartbeats,
        however short ``timeout`` is. ``"ingest"``: a writer applies it, now or later. ``"exclusive"``:
        become the writer, which **fences one that lives**. If the job replaces what was there, nothing may have been
        written since it began, so that its rows are all there is

        Any later call for the same job returns the first answer. Raises `IngestPendingError` when no writer has applied
        it in time; it stays pending. `ConflictError` if the job expired or was aborted, or was committed as another
        batch or as none. Also in mode ``"exclusive"``, if something was written that the job would have to replace.
        `FencedError` if an exclusive job lost the writer's role before its commit. `InvalidError` if SSTs overlap,
        are another job's, or are not there. `UnavailableError`: unknown; ask again.

        A job that is leased is aborted before any error leaves this call, and `UnavailableError` has the outcome
        ``"not_applied"``. If that is unknown, `IngestPendingError` names the job and the command that ends it."""
        self._check()
        manage.check_job(self.job_id, batch)
        limit, chosen = seconds(timeout, "timeout"), None if mode is None else check_mode(mode)
        return await self._job.commit(list(ssts), batch, wait=wait, timeout_s=limit, mode=chosen)

    async def wait(self, timeout: Duration = WAIT_S) -> IngestInfo:
        """Wait until what was committed is in the database. Raises as `commit` does."""
        self._check()
        return await self._job.until_applied(seconds(timeout, "timeout"))

    async def abort(self, *, unless_committed: bool = False) -> IngestInfo:
        """End the job; what became of it: ``"aborted"``, unless it was applied before. Nothing is deleted here:
        collectors take what nothing names. A job of its name that was begun anew since is left alone. Raises
        `ConflictError` if a later batch of its stream waits.

        unless_committed: leave it alone once it is committed, by this driver or another one"""
        return await self._job.abort(unless_committed=unless_committed)

    async def info(self) -> IngestInfo:
        """The job as it is now. Raises `ConflictError` if nothing is known of it any more."""
        return await self._job.info()

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``."""
        return {
            "ingest.ssts": len(self._job.written),
            "ingest.rows": sum(sst.rows for sst in self._job.written),
            "ingest.written_bytes": sum(sst.size for sst in self._job.written),
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
    context, supervisor = resources.context, resources.supervisor
    own = OwnWriter(context, supervisor, writer, poll_s(context.settings))
    driver, spec = await register_job(context, supervisor, options, own)
    return IngestJob(resources, options, driver, spec, own=own, old=old)
