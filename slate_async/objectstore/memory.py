"""Objects in the memory of one process: for tests, the simulator and ``memory://`` URLs.

Invariant: an operation takes effect in one step, without an await, after giving the loop one turn; so any number
of tasks see linearizable operations, and a cancelled put did nothing.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType

from slate_async.errors import ClosedError
from slate_async.objectstore.bodies import joined_in_turns, parts_of
from slate_async.objectstore.keys import check_key, check_listing, check_metadata, resolve_range
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    PutMode,
)
from slate_async.runtime.protocol import Clock
from slate_async.types import Buffer

PAGE_KEYS = 1000


class MemoryObjects:
    """The objects themselves, which several `MemoryStore` handles may share. Not thread-safe."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[ObjectInfo, bytes | memoryview]] = {}
        self.sorted_keys: list[str] = []
        self.writes = 0
        """Counts every write ever made; an etag is that count, so none comes twice."""


class MemoryStore:
    """An `ObjectStore` in memory. Closing a handle closes only that handle; the objects stay with ``objects``."""

    def __init__(self, clock: Clock, objects: MemoryObjects | None = None) -> None:
        self._clock = clock
        self._data = MemoryObjects() if objects is None else objects
        self._closed = False

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._data.objects)} objects)"

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self._closed:
            raise ClosedError("this object store is closed", outcome="not_applied")

    def _find(self, key: str) -> tuple[ObjectInfo, bytes | memoryview]:
        found = self._data.objects.get(key)
        if found is None:
            raise ObjectNotFoundError(key)
        return found

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        keys = self._data.sorted_keys
        begin = max(bisect.bisect_right(keys, after), bisect.bisect_left(keys, prefix))
        page = []
        for key in keys[begin : begin + PAGE_KEYS]:
            if not key.startswith(prefix):
                break
            info = self._data.objects[key][0]
            page.append(ObjectInfo(key, info.size, info.etag, info.last_modified_ms))
        return page

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag."""
        check_key(key)
        kept = MappingProxyType(check_metadata(metadata))
        parts = parts_of(data)
        await self._turn()
        body = await joined_in_turns(parts)
        held = self._data
        current = held.objects.get(key)
        if isinstance(mode, Create) and current is not None:
            raise ObjectExistsError(key)
        if isinstance(mode, Match) and (current is None or current[0].etag != mode.etag):
            raise ObjectChangedError(key)
        held.writes += 1
        etag = f'"{held.writes}"'
        if current is None:
            bisect.insort(held.sorted_keys, key)
        held.objects[key] = (ObjectInfo(key, len(body), etag, self._clock.now_ms(), kept), body)
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        check_key(key)
        await self._turn()
        info, body = self._find(key)
        start, end = resolve_range(key, byte_range, info.size)
        return GetResult(info, bytes(body[start:end]), start)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        check_key(key)
        await self._turn()
        return self._find(key)[0]

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` and is greater than ``start_after``, in byte order."""
        check_listing(prefix, start_after)
        last = start_after
        while True:
            await self._turn()
            page = self._page(prefix, last)
            for info in page:
                yield info
            if len(page) < PAGE_KEYS:
                return
            last = page[-1].key

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        for key in keys:
            check_key(key)
        await self._turn()
        for key in keys:
            if self._data.objects.pop(key, None) is not None:
                del self._data.sorted_keys[bisect.bisect_left(self._data.sorted_keys, key)]

    async def close(self) -> None:
        """Close this handle. Idempotent."""
        self._closed = True
