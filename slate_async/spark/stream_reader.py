"""Micro-batches of the change feed of a database.

Spark keeps one reader in a process beside the driver for as long as a query runs; its `Planner` lives there. Others,
fresh ones, read in the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

import slate_async as slate
from slate_async.engine.read.bounds import EVERY_KEY
from slate_async.spark.changes import ChangesPartition, changes_of
from slate_async.spark.stream_end import finish_first, finished, heed_termination
from slate_async.spark.stream_options import StreamOptions
from slate_async.spark.stream_plan import Offset, OffsetFields, Planner
from slate_async.spark.worker import FeedName, this_worker

T = TypeVar("T")


class NoStream(DataSourceStreamReader):
    """What ``readStream.format("slate")`` gets: Spark tells the error of a reader, and hides that of making one."""

    def initialOffset(self) -> OffsetFields:
        """Raises `InvalidError`."""
        raise slate.InvalidError(
            'spark.readStream.format("slate"): this format reads rows; changes are read with'
            ' spark.readStream.format("slate-changes")'
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing: no query gets so far."""
        return iter(())


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Implements Spark's reader."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._planner: Planner | None = None

    def initialOffset(self) -> OffsetFields:
        """Of a query without a checkpoint."""
        return self._plan(Planner.begin).fields()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say. Spark knows of no limit of both, so `latestOffset` looks at them itself."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        assert self._options.max_bytes is not None
        return ReadMaxBytes(self._options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends behind what is durable now."""
        self._plan(Planner.stop_at_present)

    def latestOffset(self, start: OffsetFields, limit: ReadLimit) -> OffsetFields:
        """The end of the next micro-batch. ``limit`` is what `getDefaultReadLimit` said, or that there is none."""
        max_rows, max_bytes = self._options.max_rows, self._options.max_bytes
        if isinstance(limit, ReadAllAvailable):
            max_rows = max_bytes = None

        def fits(rows: int, nbytes: int) -> bool:
            return (max_rows is None or rows <= max_rows) and (max_bytes is None or nbytes <= max_bytes)

        begin = Offset.of(start)
        end = self._plan(lambda planner: planner.latest(begin, fits))
        return start if end is begin else end.fields()

    def reportLatestOffset(self) -> OffsetFields:
        """What there is to read, whatever the limits: Spark shows it beside where the query is."""
        return {"seq": self._plan(Planner.newest)}

    def partitions(self, start: OffsetFields, end: OffsetFields) -> Sequence[InputPartition]:
        """Ranges of what is between them."""
        begin, stop = Offset.of(start), Offset.of(end)
        ranges = self._plan(lambda planner: planner.ranges(begin, stop))
        return [ChangesPartition(self._feed_name(stop), part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range."""
        if not isinstance(partition, ChangesPartition):
            return iter(())  # of no partitions Spark makes one of its own
        worker = this_worker()
        ahead = worker.ahead(partition.feed) if partition.range.span == EVERY_KEY else None
        return worker.iterate(partial(changes_of, partition, ahead=ahead))

    def commit(self, end: OffsetFields) -> None:
        """What is before ``end`` was processed for good."""
        self._plan(lambda planner: planner.done(Offset.of(end)))

    def stop(self) -> None:
        """The query ended, by whatever."""
        finish_first()
        try:
            if self._planner is not None:
                self._plan(Planner.close)
        finally:
            finished()

    def _feed_name(self, offset: Offset) -> FeedName:
        return FeedName(self._options.path, self._options.metastore, offset.subscription)

    def _plan(self, ask: Callable[[Planner], Coroutine[Any, Any, T]]) -> T:
        async def asked(environment: slate.Environment) -> T:
            if self._planner is None:
                self._planner = Planner(self._options, environment)
            async with self._planner.turn:
                return await ask(self._planner)

        heed_termination()
        return this_worker().run(asked)
