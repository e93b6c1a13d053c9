"""``df.write.format("slate-collection")`` and ``df.writeStream.format("slate-collection")``.

Tasks put parts, each attempt under a token of its own, and the driver commits one batch that names them (see
`slate_async.collections.writer.shared`). A micro-batch is the batch at the time of its number, and its name is that
time. So of a batch that is committed again, by a retry, a driver that was taken for dead, or after a restart, the first
commit is in and the others find it.

``abort`` deletes nothing: it may be called for a commit that succeeded, and parts that no batch names are garbage.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.writer.batches import bounds_of
from slate_async.collections.writer.compare import CompareAppends
from slate_async.collections.writer.shared import PutParts, commit_parts, put_parts, stamp_of
from slate_async.spark.collection_options import CollectionPlace, CollectionWrite
from slate_async.spark.collection_place import check_life, open_collection
from slate_async.spark.collection_types import RowsIn
from slate_async.spark.feed import feed
from slate_async.spark.micro_batch import MicroBatch, micro_batch
from slate_async.spark.worker import this_worker
from slate_async.spark.write import query_id_of

logger = logging.getLogger(__name__)
WRITER = "spark"
"""The name of the writer, for messages: compare appends go to one shard."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has put. ``collection``: of which life; ``query_id``: of the stream it works for."""

    put: PutParts
    collection: UUID
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The batch of a frame: of which life, at which ``time``, from which ``lower`` bound.

    stamp: says whose batch it is; known: it is in already"""

    collection: UUID
    lower: int
    time: int
    stamp: str
    known: bool


class FrameWriter(DataSourceArrowWriter):
    """Implements Spark's writer of a frame: one batch, all of it at one time."""

    def __init__(self, options: CollectionWrite, schema: StructType) -> None:
        """In the driver, before any task. Raises `InvalidError` for rows or a time that the collection does not take,
        `NotFoundError`."""
        if options.app_id is not None:
            raise slate.InvalidError("option appId is for streams; name a write with jobId")
        self._place = options.place
        self._schema = schema
        self._target = this_worker().run(partial(_targeted, options, schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        target = self._target
        if target.known:
            for _ in iterator:
                pass
            return Written(PutParts((), 0), target.collection)
        return _write(self._place, self._schema, target.lower, target.time, iterator, target.collection)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises unless the rows are in."""
        target = self._target
        if target.known:
            logger.warning("rows of this job at time %d are in %s already", target.time, self._place.collection)
            return
        found = [message.put for message in messages if isinstance(message, Written)]

        async def commit(environment: slate.Environment) -> None:
            async with open_collection(self._place, environment) as stores:
                check_life(stores, target.collection, "this write")
                bounds = _bounds(stores, target.lower, target.time)
                try:
                    await commit_parts(stores.writing(WRITER), bounds, found, target.stamp)
                except UpperMismatchError as error:
                    raise _overtaken(stores, error) from error

        this_worker().run(commit)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: no batch names what was put."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Implements Spark's writer of a stream: micro-batch n is the batch at time ``firstTime + n``."""

    def __init__(self, options: CollectionWrite, schema: StructType) -> None:
        """Raises `InvalidError` for rows that the collection does not take, `NotFoundError`."""
        if options.job_id is not None or options.time is not None:
            raise slate.InvalidError(
                "options jobId and time are for frames; a stream counts its batches from firstTime"
            )
        self._options = options
        self._schema = schema
        this_worker().run(partial(_checked, options.place, schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        batch = micro_batch()
        if batch is None:
            raise slate.InternalError("Spark did not say which batch of which stream this is")
        time = self._options.first_time + batch.batch_id
        return _write(self._options.place, self._schema, time, time, iterator, None, batch.query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises unless the batch is in. Done again, it changes nothing."""
        found = [message for message in messages if isinstance(message, Written)]
        query_id = self._query_id(found)
        time = self._options.first_time + batchId

        async def commit(environment: slate.Environment) -> None:
            async with open_collection(self._options.place, environment) as stores:
                check_kind(stores)
                for message in found:
                    check_life(stores, message.collection, f"batch {batchId} of query {query_id}")
                stamp = _stamp(stores, self._options.app_id or query_id, time)
                put = [message.put for message in found]
                try:
                    new = await commit_parts(stores.writing(WRITER), _bounds(stores, time, time), put, stamp)
                except UpperMismatchError as error:
                    raise _misplaced(stores, MicroBatch(query_id, batchId), time, error) from error
                if not new:
                    said = "batch %d of query %s is in %s already: Spark repeats it, and it is not taken again"
                    logger.warning(said, batchId, query_id, stores.name)

        this_worker().run(commit)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the stream comes back with the same batch."""

    def _query_id(self, found: list[Written]) -> str:
        """As the tasks say. A batch without tasks has no rows, but a time."""
        ids = {message.query_id for message in found if message.query_id is not None}
        if len(ids) > 1:
            raise slate.InternalError(f"tasks of one batch work for several queries: {', '.join(ids)}")
        if ids:
            return ids.pop()
        return self._options.app_id or query_id_of(self._options.checkpoint_location)


def check_append(overwrite: bool) -> None:
    """Raise `InvalidError` where all that is there is to be replaced."""
    if overwrite:
        raise slate.InvalidError(
            "a collection is appended to: .mode('append'), or .outputMode('append' or 'update') of a stream; what is to"
            " go is written once more with a negative _diff",
            outcome="not_applied",
        )


def check_kind(stores: LifeStores) -> None:
    """Raise `InvalidError` for a collection that Spark cannot append to."""
    if stores.appends is not Appends.COMPARE:
        raise slate.InvalidError(
            f"{stores.name} takes definite appends, of which every attempt has to bring the same rows; Spark writes"
            ' collections that were created with appends="compare"',
            outcome="not_applied",
        )
    if stores.schema.kind is not TimeKind.U64:
        raise slate.InvalidError(
            f"times of {stores.name} are pairs, and Spark writes times that are numbers", outcome="not_applied"
        )


async def _checked(place: CollectionPlace, schema: StructType, environment: slate.Environment) -> None:
    async with open_collection(place, environment) as stores:
        check_kind(stores)
        RowsIn(stores.schema, schema)


async def _targeted(options: CollectionWrite, schema: StructType, environment: slate.Environment) -> Target:
    """What a frame's batch is to be, by where the collection ends."""
    async with open_collection(options.place, environment) as stores:
        check_kind(stores)
        RowsIn(stores.schema, schema)
        appends = CompareAppends(stores.writing(WRITER))
        await appends.restart()
        if appends.coverage.is_done:
            raise _closed(stores)
        [(end,)] = appends.coverage.elements
        time = end if options.time is None else options.time
        stamp = _stamp(stores, options.job_id or str(uuid4()), time if options.time is not None else None)
        known = options.job_id is not None and appends.last.startswith(stamp)
        if known and options.time is None:
            time = end - 1
        known = known and end == time + 1
        if time < end and not known:
            job = options.job_id
            seen = "" if job is None else f"; whether job {job!r} has written there is seen only while it was the last"
            raise slate.InvalidError(
                f"time {time} is in the past of {stores.name}, which ends at {end}: give a time from {end} on, or none"
                f"{seen}",
                outcome="not_applied",
            )
        return Target(stores.life.uuid, end, time, stamp, known)


def _write(
    place: CollectionPlace,
    schema: StructType,
    lower: int,
    time: int,
    batches: Iterator[pa.RecordBatch],
    collection: UUID | None,
    query_id: str | None = None,
) -> Written:
    async def write(rows: AsyncIterator[pa.RecordBatch], environment: slate.Environment) -> Written:
        async with open_collection(place, environment) as stores:
            check_kind(stores)
            if collection is not None:
                check_life(stores, collection, "this write")
            made = RowsIn(stores.schema, schema)

            async def updates() -> AsyncIterator[pa.RecordBatch]:
                async for batch in rows:
                    yield await environment.runtime.offload.run(partial(made.updates, batch, time))

            put = await put_parts(stores.writing(WRITER), _bounds(stores, lower, time), updates())
            return Written(put, stores.life.uuid, query_id)

    return feed(batches, write)


def _bounds(stores: LifeStores, lower: int, time: int) -> Bounds:
    return bounds_of(lower, time + 1, stores.schema)


def _stamp(stores: LifeStores, name: str, time: int | None) -> str:
    """Of what ``name`` writes at ``time``."""
    return stamp_of(f"{stores.life.uuid} {name} {time}")


def _overtaken(stores: LifeStores, error: UpperMismatchError) -> slate.ConflictError:
    """What a user may do about a frame that another append came before."""
    what = f"another writer appended to {stores.name} meanwhile"
    if error.outcome == "unknown":
        said = "whether these rows came first is not known, so look for them before you write them again"
    else:
        said = "these rows are not in: write again"
    return slate.ConflictError(f"{what}, and {said} ({error})", outcome=error.outcome)


def _closed(stores: LifeStores) -> slate.InvalidError:
    return slate.InvalidError(f"{stores.name} is closed: nothing is appended any more", outcome="not_applied")


def _misplaced(stores: LifeStores, batch: MicroBatch, time: int, error: UpperMismatchError) -> slate.InvalidError:
    """What a user may do about a batch that does not fit where the collection ends."""
    if error.upper.is_done and error.outcome == "not_applied":
        return _closed(stores)
    ahead = not error.upper <= Frontier([(time,)])
    why = (
        "another query or writer has appended there"
        if ahead
        else "earlier batches are missing: the path is another one than before, or the collection was created again"
    )
    return slate.InvalidError(
        f"batch {batch.batch_id} of query {batch.query_id} is to be at time {time} of {stores.name}, which ends at"
        f" {error.upper}: {why}. A query with a new checkpointLocation and option firstTime={error.upper} goes on from"
        f" there ({error})",
        outcome=error.outcome,
    )
