"""A join by key that reads the rows it needs, and no others: each task looks its keys up, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import slate_async as slate
from slate_async.spark.arrangement import ColumnLike
from slate_async.spark.arrow_types import struct_of
from slate_async.spark.key_order import in_key_order, place_of, range_bounds, usual_tasks
from slate_async.spark.micro_batch import MicroBatch, batch_of_call, micro_batch
from slate_async.spark.options import OptionValue, as_strings, check_choice
from slate_async.spark.plan import KeyPartition, ReadPlan, open_partition, read_plan
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.static_frame import lease_of_batch, plan_of_batch
from slate_async.spark.tuple_key import encode_key
from slate_async.spark.typed_rows import KEY, OF_ROW, VALUE, RowReader
from slate_async.spark.worker import this_worker
from slate_async.types import MAX_KEY_BYTES

LookupHow = Literal["left", "inner"]
"""``left``: rows without a match stay, with nulls; ``inner``: they are dropped."""


def lookup(
    df: DataFrame,
    path: str,
    *,
    key: ColumnLike | Sequence[ColumnLike] = KEY,
    columns: StructType | str = "value binary",
    how: LookupHow = "left",
    partitions: int | None = None,
    **options: OptionValue,
) -> DataFrame:
    """``df`` with what the database at ``path`` has under the key of each of its rows.

    key: a binary or string column, or the columns of a key of several parts
    columns: what is added, e.g. ``"name string, age int"`` with ``valueFormat="json"``; by default the value as it is
    how: rows without such a key have nulls (``"left"``), or are left out (``"inner"``)
    partitions: so many tasks at most, by default as many as Spark has cores (8 with Spark Connect). Rows are moved to
    the task that reads their range of keys; with 0 they stay where they are, for frames whose keys are spread so
    already, or lie too close together. Rows of a streaming frame always stay
    options: as of `read`, except for those that say which keys are read

    The database is read as it is at this call, or at ``checkpoint``; each micro-batch of a streaming frame reads it as
    it is then. The checkpoint that is made for the call expires as that of `read`; inside `foreachBatch` it is deleted
    when a later micro-batch calls. Runs with the query. Raises `InvalidError` for wrong options and columns, and what
    making a checkpoint raises."""
    check_choice("how", how, LookupHow)
    if partitions is not None and partitions < 0:
        raise slate.InvalidError(f"partitions={partitions}: a number of tasks, or 0")
    if partitions and df.isStreaming:
        raise slate.InvalidError(f"partitions={partitions}: rows of a streaming frame stay where they are")
    wanted = ReadOptions.of({**as_strings(options), "path": path})
    if wanted.start is not None or wanted.end is not None or wanted.prefix is not None or wanted.columns is not None:
        raise slate.InvalidError(
            "startKey, endKey, prefix and columns are of a read; a lookup has the keys of its rows"
        )
    added = struct_of(columns)
    if other := sorted({KEY, *OF_ROW} & set(added.names)):
        raise slate.InvalidError(f"a lookup adds what values hold, not {', '.join(other)}")
    if twice := sorted(set(added.names) & set(df.columns)):
        raise slate.InvalidError(f"{', '.join(twice)} would be there twice: rename the column")
    rows = wanted.rows(added)
    sought = f"key {uuid4()}"  # no column's name
    made = encode_key(*key) if isinstance(key, Sequence) and not isinstance(key, str) else key
    keyed = df.withColumn(sought, F.col(made) if isinstance(made, str) else made)
    kind = keyed.schema[sought].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise slate.InvalidError(f"the key is {kind.simpleString()}; it must be binary, or a string, stored as UTF-8")
    if partitions is None:
        partitions = 0 if df.isStreaming else usual_tasks(df.sparkSession)  # Spark does not sort a stream
    caller = batch_of_call(df.sparkSession)
    plan, bounds = this_worker().run(partial(_plan, wanted, partitions, caller))
    schema = StructType([*df.schema.fields, *(StructField(field.name, field.dataType) for field in added)])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        micro = micro_batch()
        read = plan if micro == caller else None
        for batch in batches:
            if batch.num_rows:
                read = read or this_worker().run(partial(plan_of_batch, plan, micro))
                yield this_worker().run(partial(_joined, batch, sought, read, rows, how))

    if bounds:
        keyed = in_key_order(keyed, sought, bounds, partitions)
    return keyed.mapInArrow(run, schema)


async def _plan(
    options: ReadOptions, tasks: int, caller: MicroBatch | None, environment: slate.Environment
) -> tuple[ReadPlan, list[bytes]]:
    """What is read, and the bounds of ranges for so many tasks. The checkpoint is one of the batch that calls."""
    lease = None
    if caller is not None and options.checkpoint is None:
        lease = await lease_of_batch(f"spark lookup {uuid4()}", options, caller, environment)
    async with read_plan(options, environment, lease) as (plan, seen):
        return plan, await range_bounds(seen, tasks) if tasks > 1 else []


async def _joined(
    batch: pa.RecordBatch, sought: str, plan: ReadPlan, rows: RowReader, how: LookupHow, environment: slate.Environment
) -> pa.RecordBatch:
    keys = batch.column(sought).cast(pa.binary()).dictionary_encode()
    distinct = keys.dictionary
    lengths = pc.binary_length(distinct)
    possible = distinct.filter(pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, MAX_KEY_BYTES)))
    async with open_partition(KeyPartition(plan, None, None), environment) as seen:
        values = pa.array(await seen.get_many(possible.to_pylist()), pa.binary())
    there = values.is_valid()
    found = pa.record_batch([possible.filter(there), values.filter(there)], names=[KEY, VALUE])
    decoded = rows.read(found)
    places = pc.index_in(keys.cast(pa.binary()), found.column(KEY))
    given = [name for name in batch.schema.names if name not in (sought, place_of(sought))]
    columns = [*batch.select(given).columns, *decoded.take(places).columns]
    names = [*given, *decoded.schema.names]
    whole = pa.record_batch(columns, names=names)
    return whole.filter(places.is_valid()) if how == "inner" else whole
