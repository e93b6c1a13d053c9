"""Stores that count requests: those that were made, and those that are on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from slate_async.errors import UnavailableError
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectInfo
from tests.engine import StoreInHand


class CountedStore(StoreInHand):
    """Counts requests by kind. ``down``: nothing answers"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.requests: Counter[str] = Counter()
        self.down = False

    def _count(self, kind: str) -> None:
        self.requests[kind] += 1
        if self.down:
            raise UnavailableError("no answer from the store")

    async def put(self, key: str, data: Any, **options: Any) -> str:
        self._count("put")
        return await super().put(key, data, **options)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self._count("get")
        return await super().get(key, byte_range)

    async def delete(self, keys: Sequence[str]) -> None:
        self._count("delete")
        await self.inner.delete(keys)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:  # type: ignore[override]
        self._count("list")
        async for info in self.inner.list(prefix, start_after=start_after):
            yield info


class BusyStore(StoreInHand):
    """Knows how many requests are on their way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.under_way = 0

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def put(self, key: str, data: Any, **options: Any) -> str:
        with self._counted():
            return await super().put(key, data, **options)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        with self._counted():
            return await super().get(key, byte_range)

    async def delete(self, keys: Sequence[str]) -> None:
        with self._counted():
            await self.inner.delete(keys)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:  # type: ignore[override]
        with self._counted():
            found = [info async for info in self.inner.list(prefix, start_after=start_after)]
        for info in found:
            yield info
