"""Batch reads of a collection: partitions are key ranges of a snapshot, consolidated in the task that reads them.

Spark makes a reader in one Python process, plans in another and reads in others: what goes between them is plain.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

import slate_async as slate
from slate_async.collections.core.filtering import ConditionLike
from slate_async.spark.batch_read import joined
from slate_async.spark.collection_options import CollectionRead
from slate_async.spark.collection_place import check_life, open_collection
from slate_async.spark.collection_plan import CollectionPartition, kept, plan_partitions
from slate_async.spark.collection_types import RowsOut
from slate_async.spark.worker import this_worker

BATCH_ROWS = 32_768
COMPARED = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)
"""Types that Spark and collections order alike. Floats are not among them: to Spark NaN is the greatest."""
SIGNS: dict[type[Filter], str] = {
    EqualTo: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


class CollectionReader(DataSourceReader):
    """Implements Spark's reader."""

    def __init__(self, options: CollectionRead, schema: StructType) -> None:
        """``schema``: what Spark expects."""
        self._options = options
        self._schema = schema
        self._where: list[ConditionLike] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Fix what is read, and cut it into key ranges."""
        return this_worker().run(partial(plan_partitions, self._options, self._where))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        if not isinstance(partition, CollectionPartition):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_rows, partition, self._schema))


class FilteringReader(CollectionReader):
    """A `CollectionReader` that reads no rows which a query's comparisons of data columns exclude.

    Spark asks for it only with ``spark.sql.python.filterPushdown.enabled``, and fails the query without."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note those of ``filters``, all of which hold, that a snapshot can apply. Spark applies all of them again."""
        kinds = {field.name: field.dataType for field in self._schema}
        found = [condition_of(filter_, kinds) for filter_ in filters]
        self._where = [condition for condition in found if condition is not None]
        return filters


def condition_of(filter_: Filter, kinds: dict[str, DataType]) -> ConditionLike | None:
    """``filter_`` as a condition of a snapshot; ``None`` if that would not mean the same."""
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in kinds or attribute[0].startswith("_"):
        return None
    [name] = attribute
    if isinstance(filter_, IsNull | IsNotNull):
        return (name, "is null" if isinstance(filter_, IsNull) else "is not null")
    sign = SIGNS.get(type(filter_))
    if sign is None or not isinstance(kinds[name], COMPARED):
        return None
    value: Any = getattr(filter_, "value", None)
    if sign == "in":
        values = [_plain(item) for item in value if item is not None]
        return (name, sign, values)
    return None if value is None else (name, sign, _plain(value))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


async def _rows(
    partition: CollectionPartition, schema: StructType, environment: slate.Environment
) -> AsyncGenerator[pa.RecordBatch, None]:
    async with open_collection(partition.place, environment) as stores:
        check_life(stores, partition.split.source.collection, "this read")
        context, rows = stores.reading(), RowsOut(stores.schema, schema)
        async with kept(context, partition.lease), partition.split.open(context) as snapshot:
            async with aclosing(snapshot.batches()) as batches, aclosing(joined(batches, BATCH_ROWS)) as large:
                async for batch in large:
                    yield await environment.runtime.offload.run(partial(rows.read, batch))
