"""A store that tells a `Contact` whether SSTs are read, and objects written, with an answer.

Conditional puts are not watched here: one that fails is repeated by the caller that knows what became of it, and
watched there. Neither are lists and deletes, for which nobody waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.objectstore.sync_read import read_sync_of
from slate_async.runtime.contact import Contact
from slate_async.types import Buffer


class WatchedStore:
    """``store``, as ``contact`` sees it. Closing it does nothing."""

    def __init__(self, store: ObjectStore, contact: Contact) -> None:
        self._store = store
        self._contact = contact
        self.read_sync = read_sync_of(store)

    def __repr__(self) -> str:
        return f"WatchedStore({self._store!r})"

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag."""
        if mode is not OVERWRITE:
            return await self._store.put(key, data, mode=mode, metadata=metadata)
        parts = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        with self._contact.asking("write", sum(map(len, parts))):
            return await self._store.put(key, data, mode=mode, metadata=metadata)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        with self._contact.asking("read", 0 if byte_range is None else byte_range.length):
            return await self._store.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        with self._contact.asking("read"):
            return await self._store.head(key)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, in byte order."""
        async for info in self._store.list(prefix, start_after=start_after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        await self._store.delete(keys)

    async def close(self) -> None:
        """Nothing: the underlying store is not this view's to close."""
