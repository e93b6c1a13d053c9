"""``readStream.format("slate-changes")``: the change feed of a database, in micro-batches.

Spark keeps one reader in a process beside the driver for as long as a query runs; its `Planner` lives there. Others,
fresh ones, read in the tasks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

import slate_async as slate
from slate_async.engine.read.bounds import EVERY_KEY
from slate_async.spark.batch_read import microseconds
from slate_async.spark.options import OptionValue, as_strings
from slate_async.spark.registration import register_once
from slate_async.spark.stream_options import DEFAULT_ROWS, StreamOptions
from slate_async.spark.stream_plan import FeedRange, Offset, OffsetFields, Planner
from slate_async.spark.worker import FeedName, this_worker

T = TypeVar("T")

CHANGE = StructType(
    [
        StructField("op", StringType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),
        StructField("value", BinaryType(), nullable=True),
        StructField("seq", LongType(), nullable=False),
        StructField("create_time", TimestampType(), nullable=False),
        StructField("expire_time", TimestampType(), nullable=True),
    ]
)
"""Each put and delete as it happened (``op``); a delete has no value."""
ARROW_CHANGE = pa.schema(
    [
        pa.field("op", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("create_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("expire_time", pa.timestamp("us", tz="UTC")),
    ]
)


class SlateChangesSource(DataSource):
    """``spark.readStream.format("slate-changes")``; see docs/guide/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "slate-changes"

    def schema(self) -> StructType:
        """`CHANGE`. The first that Spark asks for, so wrong options are reported here: later it hides the cause."""
        StreamOptions.of(self.options)
        return CHANGE

    def reader(self, schema: StructType) -> DataSourceReader:
        """Changes come as a stream only."""
        raise slate.InvalidError(
            'spark.read.format("slate-changes"): changes are a stream, spark.readStream.format("slate-changes"); rows'
            ' are read with spark.read.format("slate")'
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of changes."""
        return ChangesReader(StreamOptions.of(self.options))


def read_changes(spark: SparkSession, path: str, **options: OptionValue) -> DataFrame:
    """The changes of the database at ``path`` as a streaming DataFrame (see docs/guide/spark.md for ``options``;
    ``None`` is as if not given). Raises `InvalidError` for wrong ones."""
    given = as_strings(options)
    StreamOptions.of({**given, "path": path})
    register_once(spark, SlateChangesSource)
    return spark.readStream.format("slate-changes").options(**given).load(path)


class ChangesPartition(InputPartition):
    """A range of the feed whose subscription has that name."""

    def __init__(self, subscription: str, part: FeedRange) -> None:
        super().__init__((subscription, part))
        self.subscription = subscription
        self.range = part


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
        """What the options say."""
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadMaxRows(self._options.max_rows or DEFAULT_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends behind what is durable now."""
        self._plan(Planner.stop_at_present)

    def latestOffset(self, start: OffsetFields, limit: ReadLimit) -> OffsetFields:
        """The end of the next micro-batch."""

        def fits(rows: int, nbytes: int) -> bool:
            if isinstance(limit, ReadMaxRows):
                return rows <= limit.max_rows
            return not isinstance(limit, ReadMaxBytes) or nbytes <= limit.max_bytes

        begin = Offset.of(start)
        end = self._plan(lambda planner: planner.latest(begin, fits))
        return start if end is begin else end.fields()

    def partitions(self, start: OffsetFields, end: OffsetFields) -> Sequence[InputPartition]:
        """Ranges of what is between them."""
        begin, stop = Offset.of(start), Offset.of(end)
        ranges = self._plan(lambda planner: planner.ranges(begin, stop))
        return [ChangesPartition(stop.subscription, part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range."""
        if not isinstance(partition, ChangesPartition):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_changes, self._options, partition))

    def commit(self, end: OffsetFields) -> None:
        """What is before ``end`` was processed for good."""
        self._plan(lambda planner: planner.done(Offset.of(end)))

    def stop(self) -> None:
        """The query ended."""
        if self._planner is not None:
            self._plan(Planner.close)

    def _plan(self, ask: Callable[[Planner], Coroutine[Any, Any, T]]) -> T:
        async def asked(environment: slate.Environment) -> T:
            if self._planner is None:
                self._planner = Planner(self._options, environment)
            return await ask(self._planner)

        return this_worker().run(asked)


async def _changes(
    options: StreamOptions, partition: ChangesPartition, environment: slate.Environment
) -> AsyncGenerator[pa.RecordBatch, None]:
    (after, until, (start, end)) = part = partition.range
    name = FeedName(options.path, options.metastore, partition.subscription)
    ahead = this_worker().ahead(name) if part.span == EVERY_KEY else None
    async with environment.open_admin(options.path, metastore=options.metastore) as admin:
        changes = admin.read_changes(partition.subscription, after, until, start=start, end=end, ahead=ahead)
        async for batch in changes:
            columns = {field.name: batch.column(field.name) for field in ARROW_CHANGE}
            columns["expire_time"] = microseconds(columns["expire_time"])
            cast = [columns[field.name].cast(field.type) for field in ARROW_CHANGE]
            yield pa.record_batch(cast, schema=ARROW_CHANGE)
