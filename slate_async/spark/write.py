"""``df.write.format("slate")`` and ``df.writeStream.format("slate")``: what a load does, through Spark's own interface.

A writer cannot ask Spark to spread or sort rows. Each task sorts what it gets, unless it comes sorted; that partitions
are ranges of keys is the caller's part, and a commit whose ranges overlap is refused.

Spark calls ``write``, ``commit`` and ``abort`` in processes of their own, on writers made anew for each in a stream. So
a job is found by its name alone: the first writer that asks for it begins it, and the tasks keep it alive. ``abort``
may be called for a commit that succeeded: it deletes nothing, nor undoes what is committed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import slate_async as slate
from slate_async.engine.ingest.digest import MODULUS, job_digest, rows_digest
from slate_async.engine.ingest.manage import StreamBatch
from slate_async.engine.ingest.rows import RowChecker
from slate_async.engine.ingest.watch import IngestMode
from slate_async.runtime.opening import Opening
from slate_async.spark.arrangement import KEY, ORDER
from slate_async.spark.feed import feed
from slate_async.spark.known_job import check_known
from slate_async.spark.load import LOADED_BEFORE, NOT_COMPARED
from slate_async.spark.micro_batch import micro_batch
from slate_async.spark.worker import this_worker
from slate_async.spark.write_options import WriteOptions, query_job
from slate_async.storage.manifest.edits.ingests import UnknownStreamError

logger = logging.getLogger(__name__)
SORT_BYTES = 1 << 30
"""Rows of a task that are sorted in its memory, at most."""
HAS_ORDER = "has order"
REPLAYED = "batch %d of %s is in %s already: Spark repeats it, and it is not taken again"
"""Batch, app, path."""
UNKNOWN_STREAM = (
    "batch {} of query {} comes to {}, where no earlier one is known: the path is another one than before, or the"
    " database was emptied, or the stream was forgotten there. Correct the path; or give a new checkpointLocation: it"
    " brings all that the source has; or option firstBatch={}, to go on without the rows of the batches before"
)
"""Batch, query, path, batch."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has uploaded, as JSON; or the job was committed before, so that it uploaded nothing. ``query_id``: of
    the stream it works for. ``digest``: of its rows, if it uploaded nothing and they are to be compared."""

    ssts: tuple[str, ...]
    committed_before: bool = False
    digest: int = 0
    query_id: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """Implements Spark's writer of a frame."""

    def __init__(self, options: WriteOptions) -> None:
        if options.app_id is not None:
            raise slate.InvalidError("option appId is for streams; name a load with jobId")
        self._options = replace(options, leased=options.job_id is None)
        self._job_id = f"spark-{uuid4()}" if options.job_id is None else options.job_id

    def begin(self) -> None:
        """In the driver, before any task: a place that can be no database is one error, not one of each task."""

        async def begin(environment: slate.Environment) -> None:
            async with _open(environment, self._options, self._job_id, self._options.mode):
                pass

        this_worker().run(begin)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        return _write(self._options, self._job_id, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises unless the rows are in, or wait as asked for."""
        _commit(self._options, self._job_id, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the job unless it is committed, or has a name of its user's: another driver may be at work on that. A
        commit that failed has ended it already."""
        options, job_id = self._options, self._job_id
        if not options.leased:
            return

        async def abort(environment: slate.Environment) -> None:
            async with environment.open_admin(options.path, metastore=options.metastore) as admin:
                if any(info.job_id == job_id for info in await admin.ingests.list()):
                    await admin.ingests.abort(job_id, unless_committed=True)

        try:
            this_worker().run(abort)
        except Exception:  # Spark would tell it in place of what the load failed of
            logger.warning("job %s into %s stays until it expires", job_id, options.path, exc_info=True)


class StreamWriter(DataSourceStreamArrowWriter):
    """Implements Spark's writer of a stream: each batch is a job, named by the stream, its query and its number."""

    def __init__(self, options: WriteOptions) -> None:
        if options.job_id is not None:
            raise slate.InvalidError("option jobId is for batch writes; a stream is named by its query, or by appId")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        batch = micro_batch()
        if batch is None:
            raise slate.InternalError("Spark did not say which batch of which stream this is")
        app_id = self._options.app_id or batch.query_id
        with _explained(self._options.path, *batch):
            written = _write(self._of_batch(batch.batch_id), query_job(app_id, *batch), iterator)
        return replace(written, query_id=batch.query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises unless the batch is in, or waits as asked for. Done again, it changes nothing. Raises `InvalidError`
        if another query counts the batches of this app, and if it is not the first one and no earlier one is known."""
        query_id = self._query_id(messages)
        if query_id is None:
            return  # no task, so no row, and nothing to replace
        app_id = self._options.app_id or query_id
        batch = (app_id, batchId, query_id, self._options.first_batch)
        with _explained(self._options.path, query_id, batchId):
            _commit(self._of_batch(batchId), query_job(app_id, query_id, batchId), messages, batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the stream comes back with the same batch, or its job expires."""

    def _of_batch(self, batch_id: int) -> WriteOptions:
        """Only a batch that may come first makes a database."""
        return replace(self._options, create=batch_id <= self._options.first_batch)

    def _query_id(self, messages: list[WriterCommitMessage | None]) -> str | None:
        """As the tasks say. A batch without tasks has no rows, but a number to note: ``None`` if its query cannot be
        known, unless it is to replace what is there."""
        found = {message.query_id for message in messages if isinstance(message, Written)}
        if len(found) > 1:
            raise slate.InternalError(f"tasks of one batch work for several queries: {', '.join(map(str, found))}")
        if found:
            return found.pop()
        try:
            return query_id_of(self._options.checkpoint_location)
        except slate.InvalidError:
            if self._options.replace:
                raise
            return None


@contextmanager
def _explained(path: str, query_id: str, batch_id: int) -> Iterator[None]:
    """Of a database that is missing, or does not know the stream, say what a query that goes on may do."""
    try:
        yield
    except (UnknownStreamError, slate.NotFoundError) as error:
        said = UNKNOWN_STREAM.format(batch_id, query_id, path, batch_id)
        raise slate.InvalidError(f"{said} ({error})", outcome="not_applied") from None


def query_id_of(checkpoint_location: str | None) -> str:
    """The id of the query whose checkpoint is there, in a folder of this machine. Raises `InvalidError` unless it can
    be read."""
    try:
        if checkpoint_location is None:
            raise ValueError("option checkpointLocation is missing, and Spark does not tell that of its configuration")
        url = urlsplit(checkpoint_location)
        if url.scheme not in ("", "file"):
            raise ValueError("it is not in a folder of this machine")
        folder = Path(unquote(url.path) if url.scheme else checkpoint_location)
        return str(json.loads((folder / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise slate.InvalidError(
            "a batch that is to replace everything has no task, which would know the id of its query, and that cannot"
            f" be read from the checkpoint at {checkpoint_location}: {error}"
        ) from error


def _write(options: WriteOptions, job_id: str, batches: Iterable[pa.RecordBatch]) -> Written:
    rows = map(options.rows.stored, batches)
    ordered = (_without_order(batch) for batch in rows) if options.sorted else _sorted(rows)

    async def write(batches: AsyncIterator[pa.RecordBatch], environment: slate.Environment) -> Written:
        async with _open(environment, options, job_id) as job:
            if (await job.info()).state != "registered":
                return Written((), committed_before=True, digest=await _digest(batches, options))
            ssts = await job.write(batches, duplicates=options.duplicates, digest=options.digested)
            return Written(tuple(sst.to_json() for sst in ssts))

    return feed(ordered, write)


async def _digest(batches: AsyncIterator[pa.RecordBatch], options: WriteOptions) -> int:
    """Of rows that are there already, or others under the same name."""
    if not options.compared:
        return 0
    checker, digest = RowChecker(0, options.duplicates), 0
    async for batch in batches:
        digest += sum(map(rows_digest, checker.take(batch)))
    return (digest + sum(map(rows_digest, checker.finish()))) % MODULUS


def _commit(
    options: WriteOptions,
    job_id: str,
    messages: list[WriterCommitMessage | None],
    batch: StreamBatch | None,
) -> None:
    written = [message for message in messages if isinstance(message, Written)]
    ssts = [slate.IngestedSst.from_json(sst) for message in written for sst in message.ssts]
    digest = ((job_digest(ssts) or 0) + sum(message.digest for message in written)) % MODULUS
    some_wrote_nothing = any(message.committed_before for message in written)

    async def commit(environment: slate.Environment) -> None:
        async with _open(environment, options, job_id, options.mode) as job:
            if some_wrote_nothing:
                known = await job.info()
                if known.state == "registered":
                    raise slate.ConflictError(
                        f"ingest {job_id!r} was committed, so tasks wrote nothing, and aborted meanwhile; write again",
                        outcome="not_applied",
                    )
                if options.compared:
                    check_known(known, digest)
                if batch is None:
                    said = LOADED_BEFORE if options.compared else NOT_COMPARED
                    logger.warning(said, job_id, options.path, known.state)
            try:
                info = await job.commit(ssts, batch=batch, wait=options.wait, timeout=options.timeout_s)
            except slate.InvalidError:
                if batch is not None:  # Spark aborts those of frames; a query begins this one anew if it comes again
                    with suppress(slate.SlateError):
                        await job.abort(unless_committed=True)
                raise
            if options.compared:
                check_known(info, digest)  # another driver may have been quicker
            if batch is not None and (some_wrote_nothing or info.state == "duplicate"):
                logger.warning(REPLAYED, batch[1], batch[0], options.path)

    this_worker().run(commit)


def _open(
    environment: slate.Environment, options: WriteOptions, job_id: str, mode: IngestMode = "ingest"
) -> Opening[slate.IngestJob]:
    """``mode``: tasks leave the writer to the driver."""
    return environment.open_ingest(
        options.path,
        job_id=job_id,
        lifetime=options.lifetime_s,
        metastore=options.metastore,
        settings=options.settings,
        create=options.create,
        replace=options.replace,
        mode=mode,
        leased=options.leased,
    )


def _without_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([name for name in (ORDER, HAS_ORDER) if name in batch.schema.names])


def _sorted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows by key, then order, as Spark sorts: null is the lowest. Raises `InvalidError` for more than
    `SORT_BYTES`."""
    held: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        held.append(batch)
        nbytes += batch.nbytes
        if nbytes > SORT_BYTES:
            raise slate.InvalidError(
                f"a partition has more than {SORT_BYTES >> 20} MiB, too much to sort in a task's memory: spread it over"
                " more with repartitionByRange, or load it with bulk_load, which lets Spark sort"
            )
    if held:
        table = pa.Table.from_batches(held)
        if ORDER in table.schema.names:
            table = table.append_column(HAS_ORDER, pc.is_valid(table.column(ORDER)))
        order = [(name, "ascending") for name in (KEY, HAS_ORDER, ORDER) if name in table.schema.names]
        for batch in table.sort_by(order).to_batches():
            yield _without_order(batch)
