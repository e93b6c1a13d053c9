"""A store in memory that takes a while for every request, and counts them. For what needs no peer on the same store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import TypeVar

from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.protocol import (
    OVERWRITE,
    Buffer,
    ByteRange,
    GetResult,
    ObjectInfo,
    PutMode,
    Span,
)
from slate_async.runtime.system import SystemClock

T = TypeVar("T")


class SlowStore:
    """Each request takes ``latency_s``; any number of them travel at the same time.

    counts: requests by operation; a page of a listing is one
    depth: the most requests that came one after another: each began when the one before it had ended. Work that does
    not wait for a request is no part of it, so it is an upper bound of the critical path, in round trips
    """

    def __init__(self, latency_s: float, objects: MemoryObjects | None = None) -> None:
        self.latency_s = latency_s
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self._inner = MemoryStore(SystemClock(), objects)

    def forget(self) -> None:
        """Count from here."""
        self.counts.clear()
        self.depth = 0

    async def _request(self, operation: str, work: Awaitable[T]) -> T:
        self.counts[operation] += 1
        level = self.depth + 1
        await asyncio.sleep(self.latency_s)
        done = await work
        self.depth = max(self.depth, level)
        return done

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        return await self._request("put", self._inner.put(key, data, mode=mode, metadata=metadata))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        return await self._request("get", self._inner.get(key, byte_range))

    async def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes]:
        return await self._request("get", self._inner.get_ranges(key, spans))

    async def head(self, key: str) -> ObjectInfo:
        return await self._request("head", self._inner.head(key))

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._request("list", asyncio.sleep(0))
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._request("delete", self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()
