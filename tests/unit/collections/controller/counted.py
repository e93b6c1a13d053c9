"""A store that counts requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
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
