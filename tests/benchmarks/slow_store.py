"""A store in memory that takes a while for every request, and counts them. For what needs no peer on the same store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from slate_async.errors import SlateError
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, PutMode
from slate_async.runtime.system import SystemClock
from slate_async.types import Buffer

T = TypeVar("T")
PAGE_KEYS = 1_000


class SlowStore:
    """Each request takes ``latency_s``, and as long as its bytes need; ``in_flight`` of them travel at the same time.

    bytes_per_s: of one request; ``None``: bytes take no time; in_flight: ``None``: any number

    counts: requests by operation; a page of a listing is one
    depth: the most requests that came one after another: each began when the one before it had ended. Work that does
    not wait for a request is no part of it, so it is an upper bound of the critical path, in round trips
    """

    def __init__(
        self,
        latency_s: float,
        objects: MemoryObjects | None = None,
        *,
        bytes_per_s: float | None = None,
        in_flight: int | None = None,
    ) -> None:
        self.latency_s = latency_s
        self._bytes_per_s = bytes_per_s
        self._places = None if in_flight is None else asyncio.Semaphore(in_flight)
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self.objects = MemoryObjects() if objects is None else objects
        self._inner = MemoryStore(SystemClock(), self.objects)

    def forget(self) -> None:
        """Count from here."""
        self.counts.clear()
        self.depth = 0

    async def _request(self, operation: str, work: Coroutine[Any, Any, T], sent: int = 0) -> T:
        """``sent``: bytes that travel before it takes effect."""
        self.counts[operation] += 1
        level = self.depth + 1
        async with self._places or nullcontext():
            try:
                await self.travel(self.latency_s + self._seconds(sent))
            except BaseException:
                work.close()
                raise
            done = await work
        self.depth = max(self.depth, level)
        return done

    async def _read(self, work: Awaitable[T], received: Callable[[T], int]) -> T:
        """A request that reads first and then travels back, with ``received(answer)`` bytes: one sleep, not two."""
        self.counts["get"] += 1
        level = self.depth + 1
        async with self._places or nullcontext():
            try:
                done = await work
            except SlateError:
                await self.travel(self.latency_s)
                raise
            await self.travel(self.latency_s + self._seconds(received(done)))
        self.depth = max(self.depth, level)
        return done

    async def travel(self, seconds: float) -> None:
        """What a request waits for."""
        await asyncio.sleep(seconds)

    def _seconds(self, nbytes: int) -> float:
        return nbytes / self._bytes_per_s if self._bytes_per_s else 0.0

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        sent = sum(map(len, data)) if isinstance(data, list | tuple) else len(data)
        return await self._request("put", self._inner.put(key, data, mode=mode, metadata=metadata), sent)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        return await self._read(self._inner.get(key, byte_range), lambda found: len(found.data))

    async def head(self, key: str) -> ObjectInfo:
        return await self._request("head", self._inner.head(key))

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        number = 0
        async for info in self._inner.list(prefix, start_after=start_after):
            if not number % PAGE_KEYS:
                await self._request("list", asyncio.sleep(0))
            number += 1
            yield info
        if not number:
            await self._request("list", asyncio.sleep(0))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._request("delete", self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()
