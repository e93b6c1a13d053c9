"""A job's life in the manifest: registered, committed, applied or ended, and what can be said of it.

Rule 30: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from slate_async.engine.ingest.spec import IngestedSst, IngestSpec, references
from slate_async.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Clock, Runtime
from slate_async.settings import Settings
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.ingests import (
    MAX_RECORDS,
    AbortIngest,
    Batch,
    CommitIngest,
    ForgetApp,
    RegisterIngest,
    applied_batch,
    find_ingest,
    find_record,
    pending_ingests,
)
from slate_async.storage.manifest.state import Ingest, IngestEnd, IngestRecord, ManifestState

MAX_NAME = 200
HEADS_IN_PARALLEL = 16
SHORTEST_POLL_S = 0.02
"""A writer that polls as often as it may has applied a small ingest soon."""
StreamBatch: TypeAlias = tuple[str, int] | tuple[str, int, str] | tuple[str, int, str, int]
"""App id and number of a batch of a stream, and the id of the query that counts it, if there is one. A fourth part is
the last number with which a stream may begin that is not known; its query must count for no other stream."""
IngestState = Literal["registered", "pending"] | IngestEnd
"""Where an ingest stands, or how it ended."""


@dataclass(frozen=True, slots=True)
class IngestInfo:
    """A job.

    state: ``"registered"``: its SSTs are being made; ``"pending"``: committed, waits for a writer; ``"applied"``;
    ``"aborted"``; ``"expired"``: its driver did not commit or renew it in time; ``"duplicate"``: its batch was there
    already
    rows, deletes, ssts, size: puts, deletes, SSTs and their bytes: of what is committed, later of what was applied
    seq: the sequence number of all its rows, once applied; 0 if it had none
    since_ms: wall clock: when it began, or ended
    expire_ms: of one that is registered, or leased and pending, when it ends unless renewed
    app_id, batch_id: the batch of a stream that it is, if it is one
    digest: of the rows that its tasks were given, if they made one; equal for the same rows in any order, whenever they
    expire (`slate_async.engine.ingest.digest`)
    """

    job_id: str
    state: IngestState
    since_ms: int
    rows: int = 0
    deletes: int = 0
    ssts: int = 0
    size: int = 0
    seq: int = 0
    expire_ms: int | None = None
    app_id: str | None = None
    batch_id: int | None = None
    digest: int | None = None

    @property
    def done(self) -> bool:
        """Whether its rows are in the database, by this job or by an earlier one of the same batch."""
        return self.state in ("applied", "duplicate")


class IngestPendingError(UnavailableError):
    """The ingest is committed, and no writer has applied it yet."""

    info: IngestInfo
    """What waits."""

    def __init__(self, message: str, info: IngestInfo) -> None:
        super().__init__(message, outcome="unknown")
        self.info = info


def job_info(state: ManifestState, job_id: str) -> IngestInfo | None:
    """What ``state`` says of the job; ``None`` if it knows of none: one on its way, or one of the last `MAX_RECORDS` of
    its kind that have ended (batches of streams are one)."""
    job = find_ingest(state, job_id)
    if job is not None:
        return _of_job(job)
    record = find_record(state, job_id)
    return None if record is None else _of_record(record)


def all_jobs(state: ManifestState) -> list[IngestInfo]:
    """Those on their way, the oldest first; then those that have ended, the latest first."""
    return [*map(_of_job, state.ingests), *map(_of_record, reversed(state.ingest_records))]


@dataclass(frozen=True, slots=True)
class IngestApp:
    """A stream whose batches were ingested.

    batch_id: the newest that is in, and all before it
    query_id: the query that counts them, if one does
    """

    app_id: str
    batch_id: int
    query_id: str | None


def all_apps(state: ManifestState) -> list[IngestApp]:
    """Those that are remembered, by name."""
    return sorted(
        (IngestApp(known.app_id, known.batch_id, known.query_id) for known in state.ingest_apps),
        key=lambda app: app.app_id,
    )


def _of_job(job: Ingest) -> IngestInfo:
    return IngestInfo(
        job.id,
        "pending" if job.pending else "registered",
        job.begun_ms,
        rows=sum(sst.rows - sst.tombstones for sst in job.ssts),
        deletes=sum(sst.tombstones for sst in job.ssts),
        ssts=len(job.ssts),
        size=sum(sst.size for sst in job.ssts),
        expire_ms=job.expire_ms if job.leased or not job.pending else None,
        app_id=job.app_id,
        batch_id=None if job.app_id is None else job.batch_id,
        digest=job.digest,
    )


def _of_record(record: IngestRecord) -> IngestInfo:
    known: IngestState = record.end if record.shown else "pending"
    deletes = record.deletes or 0
    return IngestInfo(
        record.id,
        known,
        record.ended_ms,
        rows=record.rows - deletes,
        deletes=deletes,
        ssts=record.ssts or 0,
        size=record.size or 0,
        seq=record.seq,
        app_id=record.app_id,
        batch_id=None if record.app_id is None else record.batch_id,
        digest=record.digest,
    )


def check_job(job_id: object, batch: object = None) -> None:
    """Raise `InvalidError` unless both may be used."""
    if not _is_name(job_id):
        raise InvalidError(f"a job id is 1 to {MAX_NAME} printable characters, not {job_id!r}")
    if batch is None:
        return
    if not isinstance(batch, tuple) or len(batch) not in (2, 3, 4) or not _is_name(batch[0]):
        raise InvalidError(
            "batch is (app id, batch number), and may have a query id, and the last number with which the stream may"
            f" begin, not {batch!r}"
        )
    if len(batch) > 2 and not _is_name(batch[2]):
        raise InvalidError(f"a query id is 1 to {MAX_NAME} printable characters, not {batch[2]!r}")
    for number in (batch[1], *batch[3:]):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidError(f"a batch number is a whole number of at least 0, not {number!r}")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


async def register(
    driver: ManifestDriver,
    runtime: Runtime,
    settings: Settings,
    job_id: str,
    lifetime_ms: int,
    replaced: LogExtent | None = None,
    *,
    leased: bool = False,
) -> IngestSpec | None:
    """Begin the job, or go on with it; what its tasks must know: ``None`` if it has ended already, with effect.

    replaced: of one that replaces what is there: how far the log goes that is part of it
    leased: it is to end with its driver

    Raises `InvalidError`, `UnavailableError`; `OthersWaitError` if it replaces, and others wait to be applied;
    `ConflictError` if it was leased and has ended."""
    now_ms = runtime.clock.now_ms()
    end_ms = now_ms + lifetime_ms
    base = None if replaced is None else _base(runtime, now_ms, end_ms, replaced)
    state = await driver.commit(RegisterIngest(job_id, now_ms, end_ms, base, leased))
    job = find_ingest(state, job_id)
    if job is None:
        return None
    return IngestSpec(
        job_id,
        state.database_id,
        job.base_version,
        state.writer_epoch,
        job.begun_ms,
        settings.sst_bytes,
        settings.block_bytes,
        settings.compression,
        settings.filter_bits_per_key,
        job.replaces,
    )


def _base(runtime: Runtime, now_ms: int, end_ms: int, extent: LogExtent) -> CreateCheckpoint:
    return CreateCheckpoint(
        runtime.ids.uuid(), "ingest", now_ms, end_ms, log_end=extent.end, log_ranges=extent.ranges, of=extent.of
    )


async def commit(
    driver: ManifestDriver,
    clock: Clock,
    spec: IngestSpec,
    ssts: Sequence[IngestedSst],
    batch: StreamBatch | None = None,
    alone: tuple[int, int] | None = None,
    lease_ms: int | None = None,
    digest: int | None = None,
) -> IngestInfo:
    """Let ``ssts``, of all tasks, wait for a writer. Idempotent: asked again, the first one's answer stands.

    alone: the epoch of this driver as the only writer, and the sequence number of what the job replaces, if nothing
    may have come in since
    lease_ms: of a leased job: how long it waits to be applied unless it is renewed; ``None``: for ever
    digest: of what its tasks were given, if they made one

    Raises `ConflictError` (the job has ended, or was begun anew), `InvalidError` (SSTs that overlap, or are not the
    job's), `UnavailableError` (outcome unknown: ask again)."""
    named = None if batch is None else Batch(*batch)
    refs = references(spec, ssts)
    now_ms = clock.now_ms()
    until_ms = None if lease_ms is None else now_ms + lease_ms
    edit = CommitIngest(spec.database_id, spec.job_id, spec.base_version, refs, now_ms, named, alone, until_ms, digest)
    return _known(await driver.commit(edit), spec.job_id)


def check_same(info: IngestInfo, batch: StreamBatch | None) -> None:
    """Raise `ConflictError` if the job that is known by this name was another one than ``batch``."""
    if batch is not None and (info.app_id, info.batch_id) != batch[:2]:
        known = "no batch of a stream" if info.app_id is None else f"batch {info.batch_id} of {info.app_id!r}"
        raise ConflictError(
            f"ingest {info.job_id!r} is {info.state} already, as {known};"
            f" batch {batch[1]} of {batch[0]!r} needs another job id",
            outcome="not_applied",
        )


async def check_there(driver: ManifestDriver, store: ObjectStore, job_id: str, ssts: Sequence[IngestedSst]) -> None:
    """Raise `InvalidError` unless ``ssts`` of tasks elsewhere are in ``store``: what is committed must be there."""

    async def check(sst: IngestedSst) -> None:
        try:
            size = (await store.head(sst.location)).size
        except ObjectNotFoundError:
            size = -1
        if size == sst.size or (await info(driver, job_id)).state != "registered":
            return  # of one that has ended, only what was committed stays
        found = "not there" if size < 0 else f"{size} bytes long, not {sst.size}"
        raise InvalidError(
            f"{sst.location}, which a task of ingest {job_id!r} has written, is {found}: the database's path must mean"
            " the same place for its tasks and its driver",
            outcome="not_applied",
        )

    await map_bounded(check, ssts, HEADS_IN_PARALLEL)


async def info(driver: ManifestDriver, job_id: str) -> IngestInfo:
    """The job as it is now. Raises `ConflictError` if nothing is known of it."""
    return _known(await driver.existing(), job_id)


async def abort(
    driver: ManifestDriver,
    clock: Clock,
    job_id: str,
    *,
    unless_committed: bool = False,
    base_version: int | None = None,
) -> IngestInfo:
    """End the job before it is applied, or committed; what has become of it: it may have been before. Deletes nothing.

    base_version: of the job, if it is known: one of its name that was begun anew since is left alone

    Raises `ConflictError` if a later batch of its stream waits behind it, `InvalidError` if there is no such job."""
    state = await driver.existing()
    if job_info(state, job_id) is None:
        raise NotFoundError(f"there is no ingest {job_id!r}, nor was it one of the last {MAX_RECORDS}")
    state = await driver.commit(AbortIngest(job_id, clock.now_ms(), unless_committed, base_version))
    found, record = _known(state, job_id), find_record(state, job_id)
    return found if record is None else replace(found, state=record.end)


async def forget_app(driver: ManifestDriver, app_id: str) -> None:
    """Forget a stream that has ended; a batch of it would be taken again. Raises `ConflictError` while one waits."""
    await driver.commit(ForgetApp(app_id))


async def until_none_waits(driver: ManifestDriver, clock: Clock, *, timeout_s: float, poll_s: float) -> None:
    """Wait until everything that is committed is in the database. Raises `IngestPendingError` after ``timeout_s``."""
    deadline = clock.monotonic() + timeout_s
    while waiting := pending_ingests(await driver.existing()):
        if clock.monotonic() >= deadline:
            raise IngestPendingError(
                f"ingest {waiting[0].id!r} is committed, and no writer has applied it within {timeout_s:.0f} s: what"
                " it brings has to be there before it can be replaced. Open the database to write, or abort it"
                f" (slate abort-ingest {waiting[0].id}), or commit it again by its job id, exclusively, which fences"
                " a writer that lives",
                _of_job(waiting[0]),
            )
        await clock.sleep(poll_s)


async def until_applied(
    driver: ManifestDriver, clock: Clock, job_id: str, *, timeout_s: float, poll_s: float
) -> IngestInfo:
    """Wait until the job's rows are in the database; looks are rarer and rarer, at last ``poll_s`` apart.

    Raises `IngestPendingError` after ``timeout_s``, `ConflictError` if the job ends otherwise, `UnavailableError`."""
    deadline = clock.monotonic() + timeout_s
    pause_s = min(SHORTEST_POLL_S, poll_s)
    while True:
        state = await driver.existing()
        found = _known(state, job_id)
        waits = found.state == "pending" or (found.state == "duplicate" and not _batch_is_in(state, found))
        if found.done and not waits:
            return found
        if not waits:
            raise ConflictError(
                f"ingest {job_id!r} is {found.state}, not committed{_why(found)}", outcome="not_applied"
            )
        left = deadline - clock.monotonic()
        if left <= 0:
            raise still_pending(found, timeout_s)
        await clock.sleep(min(left, pause_s))
        pause_s = min(2 * pause_s, poll_s)


def still_pending(info: IngestInfo, timeout_s: float) -> IngestPendingError:
    """The error of a caller who has waited for so long."""
    return IngestPendingError(
        f"ingest {info.job_id!r} is committed, and no writer has applied it within {timeout_s:g} s. It stays: a writer"
        " applies it soon after it opens the database. To do it at once, ask again, by the same job id, in mode"
        " 'exclusive' (commit with mode='exclusive', bulk_load with mode='exclusive', a save with option"
        " ingestMode='exclusive', slate ingest with --exclusive), which fences a writer that lives; or abort it",
        info,
    )


def _why(info: IngestInfo) -> str:
    if info.state != "expired":
        return ""
    return ": nobody renewed it in time, by the clock of the process that ended it (allowed skew: gc_clock_skew_ms)"


def _batch_is_in(state: ManifestState, info: IngestInfo) -> bool:
    applied = None if info.app_id is None else applied_batch(state, info.app_id)
    unreported = any(record.app_id == info.app_id and not record.shown for record in state.ingest_records)
    return applied is not None and info.batch_id is not None and applied >= info.batch_id and not unreported


def _known(state: ManifestState, job_id: str) -> IngestInfo:
    info = job_info(state, job_id)
    if info is None:
        raise ConflictError(
            f"nothing is known of ingest {job_id!r}: it was not begun, or {MAX_RECORDS} others have ended since",
            outcome="unknown",
        )
    return info
