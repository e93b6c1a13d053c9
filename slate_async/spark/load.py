"""Bulk loads: tasks make SSTs of ranges of keys, and the driver lets all of them in with one commit.

The driver registers the job, so that collectors spare what its tasks upload; runs them; commits. A driver killed at any
time leaves the database as it was, or loaded. A repeated call with the same job id finds out which, and finishes the
load.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame

import slate_async as slate
from slate_async.arguments import Duration, seconds
from slate_async.engine.ingest.digest import job_digest
from slate_async.engine.ingest.manage import StreamBatch, check_job
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.watch import IngestMode, check_mode
from slate_async.spark.arrangement import KEY, VALUE, ColumnLike, SortMode, arrange
from slate_async.spark.engine_errors import plain_errors
from slate_async.spark.feed import feed
from slate_async.spark.known_job import OnKnown, check_known, digest_of
from slate_async.spark.micro_batch import query_of_call
from slate_async.spark.options import check_choice, place
from slate_async.spark.progress import LoadProgress, ProgressSink, errors_logged, watched
from slate_async.spark.worker import this_worker
from slate_async.spark.write_options import batch_job, query_job, sst_bytes

logger = logging.getLogger(__name__)
LOADED_BEFORE = "job %s into %s was loaded before, and is %s: these rows are those"
NOT_COMPARED = "job %s into %s was loaded before, and is %s; rows that are others than then need another job id"
"""Job, path, state."""
SKIPPED = "batch %d of %s is in %s already and was skipped: it is a replay%s"
"""Batch, app, path, and what else it may be."""
OR_ANEW = "; or the stream began anew, with another checkpointLocation, and needs another app id, too"
"""Of a batch whose query is not known."""
RESULTS = "sst string, error binary"
"""What a task tells: its SSTs as JSON, or what is wrong with its rows."""
_RESULT_SCHEMA = pa.schema([("sst", pa.string()), ("error", pa.binary())])
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def bulk_load(
    df: DataFrame,
    path: str,
    *,
    key: ColumnLike = KEY,
    value: ColumnLike = VALUE,
    op: ColumnLike | None = None,
    expire: ColumnLike | None = None,
    ttl: ColumnLike | float | None = None,
    order: ColumnLike | None = None,
    sort_mode: SortMode = "global",
    partitions: int | None = None,
    target_sst_bytes: int | None = None,
    mode: IngestMode = "auto",
    replace: bool = False,
    job_id: str | None = None,
    batch: StreamBatch | None = None,
    wait: bool = True,
    timeout: Duration = 120.0,
    lifetime: Duration = 86_400.0,
    metastore: str | None = None,
    settings: slate.Settings | None = None,
    create: bool = True,
    on_known: OnKnown = "error",
    progress: ProgressSink | None = None,
) -> slate.IngestInfo:
    """Put the rows of ``df`` into the database at ``path``, all in one step for every reader; what became of it.

    key, value, op, expire, ttl, order, sort_mode, partitions: as `arrange` takes them. Without ``order`` equal keys are
    an error
    target_sst_bytes: where SSTs are cut, 65,536 at least; by default the setting ``sst_bytes``
    mode: ``"auto"``: beside a writer that lives, which applies the rows; without one as the writer. Which of them is
    known before any task runs. ``"ingest"``: a writer applies them, now or later; ``"exclusive"``: as the writer, which
    **fences one that lives**
    replace: delete every key that is there when the load begins and that ``df`` lacks; the tasks read all of it
    job_id: a name: calls with the same name load once. Without it, and ``batch``, a load is in at the end, or never
    batch: instead of it: ``(app id, number)`` of a stream's batch; numbers rise, and one that is in is skipped. A third
    part, found on the thread of ``foreachBatch``, is the id of the query that counts them: another one is refused
    wait, timeout: until it is applied, for so many seconds or a timedelta; else it may be ``"pending"`` still
    lifetime: seconds or a timedelta after which the job of a driver that died has ended
    metastore, settings, create: as of `slate_async.open`; the database's settings for SSTs are not known here
    on_known: a job id that is known, of a load of other rows (whenever they expire): ``"error"``, or ``"skip"``: done
    progress: called with a `LoadProgress` every half a second, on another thread, and when a silent writer is awaited

    Blocks: not to be called on the event loop of the writer it waits for. Raises `InvalidError` for rows that cannot be
    stored, naming the first one a task met, and for equal keys; `slate.IngestPendingError`: no writer applied it in
    time, and it stays pending; `ConflictError`: it was aborted, or expired; `UnavailableError`: unknown, call again
    with the same job id, or not applied, as its ``outcome`` says; what Spark raises. Unless it is committed by then,
    the database is as it was."""
    _check_choices(mode, on_known)
    name, batch = _names(df, job_id, batch)
    at, chosen = place(path), _settings(settings, target_sst_bytes)
    waited_s, lifetime_s = seconds(timeout, "timeout"), seconds(lifetime, "lifetime")
    rows = arrange(
        df, key=key, value=value, op=op, expire=expire, ttl=ttl, order=order, sort_mode=sort_mode, partitions=partitions
    )

    async def begin(environment: slate.Environment) -> slate.IngestJob:
        return await environment.open_ingest(
            at,
            job_id=name,
            lifetime=lifetime_s,
            metastore=metastore,
            settings=chosen,
            create=create,
            replace=replace,
            mode=mode,
            on_wait=partial(_waits, progress),
        )

    job = this_worker().run(begin)
    try:
        with _ended(job, name, batch), watched(df.sparkSession, f"slate_async load of {path}", progress):
            ssts = _made(rows, at, metastore, job, "error" if order is None else "last", job_id, batch, on_known)
        with _ended(job, name, batch):
            info = this_worker().run(lambda _: job.commit(ssts or (), batch=batch, wait=wait, timeout=waited_s))
        _check_own(info, ssts, batch, path, compared=job_id is not None and on_known == "error")
        return info
    finally:
        this_worker().run(lambda _: job.close())


def _waits(progress: ProgressSink | None, said: str) -> None:
    """Before any task. What ``progress`` raises is logged."""
    if progress is not None:
        with errors_logged():
            progress(LoadProgress(waiting=said))


def _check_choices(mode: IngestMode, on_known: OnKnown) -> None:
    check_mode(mode)
    check_choice("on_known", on_known, OnKnown)


def _names(df: DataFrame, job_id: str | None, batch: StreamBatch | None) -> tuple[str | None, StreamBatch | None]:
    """The job's, and ``batch`` with the query that counts it, if that is known. Raises `InvalidError` for names that
    cannot be: before anything is done."""
    name = job_id
    if batch is not None:
        batch = _whose(df, job_id, batch)
        name = batch_job(*batch) if len(batch) == 2 else query_job(batch[0], batch[2], batch[1])
    if name is not None:
        check_job(name)
    return name, batch


def _whose(df: DataFrame, job_id: str | None, batch: StreamBatch) -> StreamBatch:
    check_job("any", batch)
    if job_id is not None:
        raise slate.InvalidError(
            "a batch has a job of its own, named by app id, query and number: drop job_id, or batch"
        )
    if len(batch) != 2:
        return batch
    query_id = query_of_call(df.sparkSession)
    return batch if query_id is None else (*batch, query_id)


def _settings(settings: slate.Settings | None, target_sst_bytes: int | None) -> slate.Settings:
    chosen = slate.Settings() if settings is None else settings
    if target_sst_bytes is None:
        return chosen
    try:
        return chosen.replace(sst_bytes=sst_bytes(target_sst_bytes))
    except ValueError as error:
        raise slate.InvalidError(f"target_sst_bytes={target_sst_bytes!r}: {error}") from None


@contextmanager
def _ended(job: slate.IngestJob, name: str | None, batch: StreamBatch | None) -> Iterator[None]:
    """Abort ``job`` if the block fails, for it would hold collectors up until it expires, or come in later.

    name: what its user called it: then it stays. Another driver may be at work on it, or this one called again
    batch: its name is of this: if that is refused, nobody goes on with it. A query that repeats it begins it anew"""
    try:
        yield
    except slate.IngestPendingError:
        raise
    except BaseException as error:
        refused = batch is not None and isinstance(error, slate.InvalidError)
        if name is None or refused:
            with suppress(slate.SlateError):
                this_worker().run(lambda _: job.abort(unless_committed=refused))
        else:
            logger.info("job %s stays registered until it expires; a load with the same job id resumes it", name)
        raise


def _made(
    rows: DataFrame,
    path: str,
    metastore: str | None,
    job: slate.IngestJob,
    duplicates: Duplicates,
    job_id: str | None,
    batch: StreamBatch | None,
    on_known: OnKnown,
) -> list[slate.IngestedSst] | None:
    """The SSTs of ``rows``; ``None`` if the job is committed already, with the same rows if that matters."""
    worker = this_worker()
    info = worker.run(lambda _: job.info())
    if info.state != "registered":
        if batch is not None:
            _say_skipped(batch, path)
            return None
        if on_known == "error":
            check_known(info, digest_of(rows, duplicates))
        said = LOADED_BEFORE if on_known == "error" else NOT_COMPARED
        logger.warning(said, info.job_id, path, info.state)
        return None
    try:
        write = _write_there(path, metastore, job.spec.to_json(), duplicates, digest=job_id is not None)
        with plain_errors():
            return _results(rows.mapInArrow(write, RESULTS).collect())
    except (slate.InvalidError, slate.ConflictError):
        if worker.run(lambda _: job.info()).state not in ("pending", "applied", "duplicate"):
            raise
        logger.info("job %s into %s was committed by another driver meanwhile", job.job_id, path)
        if job_id is not None and on_known == "error":
            check_known(worker.run(lambda _: job.info()), digest_of(rows, duplicates))
        return None


def _check_own(
    info: slate.IngestInfo,
    ssts: list[slate.IngestedSst] | None,
    batch: StreamBatch | None,
    path: str,
    *,
    compared: bool,
) -> None:
    """Another driver may have been quicker, with other rows: raise `InvalidError`, or log that of a stream's batch."""
    if batch is not None:
        if info.state == "duplicate":
            _say_skipped(batch, path)
    elif compared and ssts is not None:
        check_known(info, job_digest(ssts))


def _say_skipped(batch: StreamBatch, path: str) -> None:
    logger.warning(SKIPPED, batch[1], batch[0], path, OR_ANEW if len(batch) == 2 else "")


def _results(rows: list[Any]) -> list[slate.IngestedSst]:
    for row in rows:
        if row.error is not None:
            error: slate.SlateError = pickle.loads(row.error)
            raise error
    return [slate.IngestedSst.from_json(row.sst) for row in rows]


def _write_there(path: str, metastore: str | None, spec: str, duplicates: Duplicates, *, digest: bool) -> ArrowFunction:
    """The function of a Spark task that makes SSTs of its rows. What is wrong with them is a value, for to try again
    does not help; whatever else is raised Spark tries again, and what the lost attempt uploaded is garbage."""

    async def write(batches: AsyncIterator[pa.RecordBatch], environment: slate.Environment) -> list[slate.IngestedSst]:
        async with environment.open_ingest_task(path, spec, metastore=metastore) as task:
            return await task.write(batches, duplicates=duplicates, digest=digest)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            ssts = feed(batches, write)
        except slate.InvalidError as error:
            yield pa.record_batch([[None], [pickled(error)]], schema=_RESULT_SCHEMA)
            return
        yield pa.record_batch([[sst.to_json() for sst in ssts], [None] * len(ssts)], schema=_RESULT_SCHEMA)

    return run


def pickled(value: object) -> bytes:
    """For the driver."""
    made: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return made
