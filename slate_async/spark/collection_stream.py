"""Micro-batches of the updates of a collection.

Spark keeps one reader in a process beside the driver for as long as a query runs; its `StreamPlanner` lives there.
Others, fresh ones, read in the tasks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.collections.reader.split import SnapshotSplit
from slate_async.spark.batch_read import joined
from slate_async.spark.collection_offset import Offset, OffsetFields
from slate_async.spark.collection_options import CollectionStream
from slate_async.spark.collection_place import check_life, open_collection
from slate_async.spark.collection_read import BATCH_ROWS
from slate_async.spark.collection_stream_plan import StreamPlanner, UpdatesPartition
from slate_async.spark.collection_types import RowsOut
from slate_async.spark.stream_end import finish_first, finished, heed_termination
from slate_async.spark.worker import this_worker

T = TypeVar("T")


class UpdatesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Implements Spark's reader. A micro-batch from F to F' is all updates at times from F on and before F'."""

    def __init__(self, options: CollectionStream, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> OffsetFields:
        """Of a query without a checkpoint."""
        return self._plan(StreamPlanner.begin).fields()

    def getDefaultReadLimit(self) -> ReadLimit:
        """None that Spark knows of: `latestOffset` looks at the options itself."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends behind what is definite now."""
        self._plan(StreamPlanner.stop_at_present)

    def latestOffset(self, start: OffsetFields, limit: ReadLimit) -> OffsetFields:
        """The end of the next micro-batch."""
        begin = Offset.of(start)
        end = self._plan(lambda planner: planner.latest(begin, self._options.max_times))
        return start if end is begin else end.fields()

    def reportLatestOffset(self) -> OffsetFields:
        """What there is to read, whatever the limits: Spark shows it beside where the query is."""
        return {"frontier": str(self._plan(StreamPlanner.newest))}

    def partitions(self, start: OffsetFields, end: OffsetFields) -> Sequence[InputPartition]:
        """Parts of what is between them."""
        begin, stop = Offset.of(start), Offset.of(end)
        return self._plan(lambda planner: planner.partitions(begin, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The updates of one part."""
        if not isinstance(partition, UpdatesPartition):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_rows, partition, self._schema))

    def commit(self, end: OffsetFields) -> None:
        """What is before ``end`` was processed for good."""
        self._plan(lambda planner: planner.done(Offset.of(end)))

    def stop(self) -> None:
        """The query ended, by whatever."""
        finish_first()
        try:
            if self._planner is not None:
                self._plan(StreamPlanner.close)
        finally:
            finished()

    def _plan(self, ask: Callable[[StreamPlanner], Coroutine[Any, Any, T]]) -> T:
        async def asked(environment: slate.Environment) -> T:
            if self._planner is None:
                self._planner = StreamPlanner(self._options, environment)
            async with self._planner.turn:
                return await ask(self._planner)

        heed_termination()
        return this_worker().run(asked)


async def _rows(
    partition: UpdatesPartition, schema: StructType, environment: slate.Environment
) -> AsyncGenerator[pa.RecordBatch, None]:
    split = partition.split
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_collection(partition.place, environment))
        check_life(stores, _collection(split), "this query")
        context, rows = stores.reading(), RowsOut(stores.schema, schema)
        if isinstance(split, SnapshotSplit):
            snapshot = await stack.enter_async_context(split.open(context))
            batches = snapshot.batches()
        else:
            batches = split.batches(context)
        await stack.enter_async_context(aclosing(batches))
        large = await stack.enter_async_context(aclosing(joined(batches, BATCH_ROWS)))
        async for batch in large:
            yield await environment.runtime.offload.run(partial(rows.read, batch))


def _collection(split: Any) -> Any:
    return split.source.collection if isinstance(split, SnapshotSplit) else split.collection
