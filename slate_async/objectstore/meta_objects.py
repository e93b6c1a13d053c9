"""An object store as metastores see it: `metastores.protocol.ConditionalObjects`.

A lost condition becomes ``None``, which is definite; every other failure passes through as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from metastores.protocol import ListedObject, StoredObject
from slate_async.objectstore.protocol import (
    CREATE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
)


class MetaObjects:
    """`ConditionalObjects` over ``store``, which keeps belonging to its owner."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get(self, key: str) -> StoredObject | None:
        """The object, or ``None``."""
        try:
            result = await self._store.get(key)
        except ObjectNotFoundError:
            return None
        return StoredObject(result.data, result.info.etag)

    async def put(self, key: str, data: bytes) -> str:
        """Write unconditionally; returns the etag."""
        return await self._store.put(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        """Write iff absent; the etag, or ``None`` if an object is there."""
        try:
            return await self._store.put(key, data, mode=CREATE)
        except ObjectExistsError:
            return None

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """Write iff the object still carries ``etag``; the new etag, or ``None``."""
        try:
            return await self._store.put(key, data, mode=Match(etag))
        except ObjectChangedError:
            return None

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """Keys with the prefix, greater than ``start_after``, in byte order."""
        async for info in self._store.list(prefix, start_after=start_after):
            yield ListedObject(info.key, info.etag, info.last_modified_ms)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove; missing keys are no error."""
        await self._store.delete(keys)
