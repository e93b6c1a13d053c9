"""Batch reads: partitions are key ranges of a checkpoint, each read with one scan, in Arrow batches.

Spark makes a reader in one Python process, plans in another and reads in others: what goes between them is plain.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

import slate_async as slate
from slate_async.read.bounds import KeyRange, key_range
from slate_async.spark.lease import keep_checkpoint
from slate_async.spark.options import ReadOptions
from slate_async.spark.worker import ReaderName, this_worker

ROW = StructType(
    [
        StructField("key", BinaryType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("create_time", TimestampType(), nullable=False),
        StructField("expire_time", TimestampType(), nullable=True),
    ]
)
"""Rows as they are stored. Times have milliseconds; a row without ``expire_time`` never expires."""
KEYS = StructType(ROW.fields[:1])
ARROW_ROW = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("create_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("expire_time", pa.timestamp("us", tz="UTC")),
    ]
)
ARROW_KEY = pa.schema([ARROW_ROW.field("key")])


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a job reads alike.

    checkpoint: its id
    own: whether it was made for this job, so that its tasks lengthen it
    seq: the newest sequence number that is seen
    """

    options: ReadOptions
    checkpoint: str
    own: bool
    seq: int

    @property
    def reader_name(self) -> ReaderName:
        """The reader its tasks share in a process."""
        return ReaderName(self.options.path, self.options.metastore, self.checkpoint)


class KeyPartition(InputPartition):
    """One range of keys."""

    def __init__(self, plan: ReadPlan, start: bytes | None, end: bytes | None) -> None:
        super().__init__((plan, start, end))
        self.plan = plan
        self.start = start
        self.end = end


class BatchReader(DataSourceReader):
    """Implements Spark's reader."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._span = key_range(options.start, options.end, options.prefix)

    def partitions(self) -> Sequence[InputPartition]:
        """Fix what is read, and cut it into ranges of ``partition_bytes``."""
        return this_worker().run(partial(_plan, self._options, self._span))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        if not isinstance(partition, KeyPartition):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_rows, partition))


async def _plan(options: ReadOptions, span: KeyRange, environment: slate.Environment) -> list[InputPartition]:
    async with environment.open_admin(options.path, metastore=options.metastore) as admin:
        if options.checkpoint is None:
            made = await admin.create_checkpoint(lifetime=options.lifetime_s, name="spark read")
            checkpoint = str(made.id)
        else:
            checkpoint = options.checkpoint
    worker = this_worker()
    reader = await worker.reader(ReaderName(options.path, options.metastore, checkpoint))
    async with _seen(reader, options.at_seq, options.at_time) as seen:
        plan = ReadPlan(options, checkpoint, options.checkpoint is None, seen.seq)
        splits = await seen.splits(span.start, span.end, nbytes=options.partition_bytes)
    return [KeyPartition(plan, split.start, split.end) for split in splits]


@asynccontextmanager
async def _seen(reader: slate.DbReader, seq: int | None, time: float | None) -> AsyncGenerator[slate.Snapshot, None]:
    snapshot = reader.snapshot() if seq is None and time is None else reader.at(seq=seq, time=time)
    async with snapshot:
        yield snapshot


async def _rows(partition: KeyPartition, environment: slate.Environment) -> AsyncGenerator[pa.RecordBatch, None]:
    plan = partition.plan
    options = plan.options
    reader = await this_worker().reader(plan.reader_name)
    then = options.at_seq is not None or options.at_time is not None
    async with AsyncExitStack() as stack:
        if plan.own:
            await stack.enter_async_context(
                keep_checkpoint(environment, options.path, options.metastore, UUID(plan.checkpoint), options.lifetime_s)
            )
        seen = await stack.enter_async_context(_seen(reader, options.at_seq, options.at_time)) if then else reader
        scan = await stack.enter_async_context(seen.scan(partition.start, partition.end))
        async for batch in scan.batches(options.batch_rows, times=True):
            yield _arrow(batch, options.keys_only)


def _arrow(batch: Any, keys_only: bool) -> pa.RecordBatch:
    """``batch`` in the types Spark expects."""
    if keys_only:
        return pa.record_batch([batch.column("key")], schema=ARROW_KEY)
    return pa.record_batch([batch.column(field.name).cast(field.type) for field in ARROW_ROW], schema=ARROW_ROW)
