"""A folder of an object store, seen as an object store of its own.

Keys gain the folder on the way in and lose it on the way out. Errors name the whole key, which is what a person
looks for. Closing the view does nothing: the store belongs to the caller that opened it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from slate_async.objectstore.keys import check_key
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.objectstore.sync_read import read_sync_of
from slate_async.types import Buffer


class PrefixedStore:
    """The objects of ``store`` below the folder ``prefix`` (without leading or trailing ``/``; may be empty)."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        folder = prefix.strip("/")
        self._store = store
        self._folder = f"{check_key(folder)}/" if folder else ""
        self._read_sync = read_sync_of(store)

    def __repr__(self) -> str:
        return f"PrefixedStore({self._store!r}, {self._folder!r})"

    def _inner(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, key=info.key[len(self._folder) :]) if self._folder else info

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag."""
        return await self._store.put(self._folder + key, data, mode=mode, metadata=metadata)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        result = await self._store.get(self._folder + key, byte_range)
        return GetResult(self._inner(result.info), result.data, result.offset)

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        """See `slate_async.objectstore.sync_read.SyncReads`."""
        return self._read_sync(self._folder + key, offset, length, size)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        return self._inner(await self._store.head(self._folder + key))

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects of the folder whose key starts with ``prefix``, in byte order."""
        after = self._folder + start_after if start_after else ""
        async for info in self._store.list(self._folder + prefix, start_after=after):
            yield self._inner(info)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        await self._store.delete([self._folder + key for key in keys])

    async def close(self) -> None:
        """Nothing: the underlying store is not this view's to close."""

    def _whole_key(self, key: str) -> str:
        return whole_key(self._store, self._folder + key)


def whole_key(store: ObjectStore, key: str) -> str:
    """The key of the object ``key`` of ``store`` as errors name it: with the folders that ``store`` is a view of."""
    return store._whole_key(key) if isinstance(store, PrefixedStore) else key
