"""A collection inside a Spark Python process: opened for one call, over the worker's clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import slate_async as slate
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.context import ReaderContext
from slate_async.spark.collection_options import CollectionPlace


@asynccontextmanager
async def open_collection(place: CollectionPlace, environment: slate.Environment) -> AsyncGenerator[LifeStores, None]:
    """What is used of the collection at ``place``, for the block. Raises `NotFoundError` if there is none."""
    lake = await slate.open_collections(place.path, metastore=place.metastore, environment=environment)
    async with lake, lake.collection(place.collection)._stores() as stores:
        yield stores


def leased(stores: LifeStores, lifetime_s: float) -> ReaderContext:
    """What reads of ``stores`` work with, whose holds have leases of ``lifetime_s`` seconds."""
    return replace(stores.reading(), lease_ms=round(lifetime_s * 1000))


def check_life(stores: LifeStores, wanted: UUID, what: str) -> None:
    """Raise `InvalidError` unless the collection is the one that ``what`` is of: another may have been created under
    its name."""
    if stores.life.uuid != wanted:
        raise slate.InvalidError(
            f"{what} is of collection {wanted}, and {stores.url} is collection {stores.life.uuid}, life"
            f" {stores.life.number} of that name: read the same collection, or begin anew"
        )
