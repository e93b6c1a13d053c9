"""What a database's rows are like, counted by Spark tasks: a DataFrame with a row for each range of keys.

Each task reads all versions of its range, column by column (`slate_async.engine.read.row_statistics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StructField, StructType

import slate_async as slate
from slate_async.engine.read.bounds import key_range
from slate_async.spark.engine_errors import plain_errors
from slate_async.spark.lease import held_checkpoint
from slate_async.spark.options import OptionValue, as_strings
from slate_async.spark.plan import KeyPartition, open_partition, plan_partitions
from slate_async.spark.read_options import ReadOptions, at_checkpoint
from slate_async.spark.worker import this_worker

COUNTS = ("versions", "keys", "tombstones", "live", "expiring", "expired", "key_bytes", "value_bytes")
HISTOGRAMS = ("key_sizes", "value_sizes", "ttls")
STATISTICS = StructType(
    [
        StructField("range", IntegerType(), nullable=False),
        StructField("start", BinaryType()),
        StructField("end", BinaryType()),
        *(StructField(name, LongType(), nullable=False) for name in COUNTS),
        *(StructField(name, ArrayType(LongType(), containsNull=False), nullable=False) for name in HISTOGRAMS),
    ]
)
"""Keys from ``start`` (null: from the first one) to ``end`` (exclusive; null: to the last one); then what
`slate_async.RowStatistics` has. Element ``b`` of a histogram counts the sizes of ``b`` bits: 0, 1, 2-3, 4-7, 8-15 …"""
_ARROW = pa.schema(
    [
        pa.field("range", pa.int32(), nullable=False),
        pa.field("start", pa.binary()),
        pa.field("end", pa.binary()),
        *(pa.field(name, pa.int64(), nullable=False) for name in COUNTS),
        *(
            pa.field(name, pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False)
            for name in HISTOGRAMS
        ),
    ]
)


def statistics(spark: SparkSession, path: str, **options: OptionValue) -> DataFrame:
    """Statistics of the database at ``path``, as it is now or as ``options`` say (see `read`): a row for each range of
    about ``partitionBytes``, of the columns `STATISTICS`.

    Runs when it is called; what it returns is small, and holds nothing. The checkpoint it reads, if it is not given
    one, is deleted at the end. Raises what reading raises."""
    wanted = ReadOptions.of({**as_strings(options), "path": path})
    if wanted.checkpoint is not None:
        return _of_checkpoint(spark, wanted)
    with held_checkpoint(wanted.path, wanted.metastore, wanted.lifetime_s) as checkpoint:
        given = as_strings(at_checkpoint(options, checkpoint))
        return _of_checkpoint(spark, ReadOptions.of({**given, "path": path}))


def _of_checkpoint(spark: SparkSession, options: ReadOptions) -> DataFrame:
    span = key_range(options.start, options.end, options.prefix)
    ranges = this_worker().run(partial(plan_partitions, options, span))
    numbers = spark.range(0, len(ranges), 1, max(1, len(ranges)))
    with plain_errors():
        rows = numbers.mapInArrow(_count_there(ranges), STATISTICS).collect()
    return spark.createDataFrame(sorted(rows, key=lambda row: int(row.range)), STATISTICS)


def _count_there(
    ranges: Sequence[KeyPartition],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of Spark tasks that counts the ranges whose numbers they are given."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                one = ranges[number]
                counted = this_worker().run(partial(_count, one))
                row = {"range": number, "start": one.start, "end": one.end, **asdict(counted)}
                yield pa.RecordBatch.from_pylist([row], schema=_ARROW)

    return run


async def _count(partition: KeyPartition, environment: slate.Environment) -> slate.RowStatistics:
    async with open_partition(partition, environment) as seen:
        return await seen.row_statistics(partition.start, partition.end)
