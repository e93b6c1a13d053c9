"""Batch reads: partitions are key ranges of a checkpoint, each read with one scan, in Arrow batches.

Spark makes a reader in one Python process, plans in another and reads in others: what goes between them is plain.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.engine.read.bounds import KeyRange, key_range
from slate_async.spark.micro_batch import MicroBatch, micro_batch
from slate_async.spark.plan import KeyPartition, open_partition, plan_partitions
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.static_frame import plan_of_batch
from slate_async.spark.typed_rows import RowReader
from slate_async.spark.worker import this_worker

BATCH_BYTES = 16 << 20
"""Batches of large values have fewer rows than asked for."""
LARGE_ROWS = 8192


class BatchReader(DataSourceReader):
    """Implements Spark's reader."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """``schema``: what Spark expects."""
        self._options = options
        self._rows = options.rows(schema)
        self._span = key_range(options.start, options.end, options.prefix)

    def partitions(self) -> Sequence[InputPartition]:
        """Fix what is read, and cut it into ranges of ``partition_bytes``."""
        return this_worker().run(partial(plan_partitions, self._options, self._read_span()))

    def _read_span(self) -> KeyRange:
        """The keys that are read."""
        return self._span

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        if not isinstance(partition, KeyPartition):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_rows, partition, self._rows, micro_batch()))


async def _rows(
    planned: KeyPartition, rows: RowReader, micro: MicroBatch | None, environment: slate.Environment
) -> AsyncGenerator[pa.RecordBatch, None]:
    options = planned.plan.options
    partition = KeyPartition(await plan_of_batch(planned.plan, micro, environment), planned.start, planned.end)
    async with open_partition(partition, environment) as seen:
        async with seen.scan(partition.start, partition.end) as scan:
            batches = scan.batches(options.batch_rows, times=rows.times)
            async with aclosing(joined(batches, options.batch_rows)) as large:
                async for batch in large:
                    yield await environment.runtime.offload.run(partial(rows.read, batch))


async def joined(batches: AsyncIterator[Any], rows: int) -> AsyncGenerator[pa.RecordBatch, None]:
    """The rows of ``batches``, as many in each batch as go into ``rows`` and `BATCH_BYTES`, at least one batch's.
    To `LARGE_ROWS` nothing is joined: that would copy them for nothing."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    async for batch in batches:
        full = held_rows + batch.num_rows > rows or held_bytes + batch.nbytes > BATCH_BYTES
        if held and (full or max(held_rows, batch.num_rows) >= LARGE_ROWS):
            yield _one(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of small ``batches``."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
