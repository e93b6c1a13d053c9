"""Batch reads of a collection: partitions are key ranges of a snapshot, consolidated in the task that reads them.

Spark makes a reader in one Python process, plans in another and reads in others: what goes between them is plain.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.collections.core.filtering import ConditionLike
from slate_async.spark.batch_read import joined
from slate_async.spark.collection_filters import condition_of
from slate_async.spark.collection_options import CollectionRead
from slate_async.spark.collection_place import check_life, open_collection
from slate_async.spark.collection_plan import CollectionPartition, kept, plan_partitions
from slate_async.spark.collection_types import RowsOut
from slate_async.spark.worker import this_worker

BATCH_ROWS = 32_768


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
