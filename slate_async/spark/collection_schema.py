"""Which columns a collection has for Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.spark.collection_options import CollectionPlace, check_read_or_stream
from slate_async.spark.collection_place import open_collection
from slate_async.spark.collection_types import rows_of
from slate_async.spark.options import Options
from slate_async.spark.worker import this_worker


def read_schema(options: Mapping[str, str]) -> StructType:
    """What is read of the collection that ``options`` name. Raises `InvalidError` for wrong options and for columns
    that Spark has no type for, `NotFoundError`."""
    check_read_or_stream(options)
    return this_worker().run(partial(_schema, CollectionPlace.of(Options(options))))


async def _schema(place: CollectionPlace, environment: slate.Environment) -> StructType:
    async with open_collection(place, environment) as stores:
        return rows_of(stores.schema)
