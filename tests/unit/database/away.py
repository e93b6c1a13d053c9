"""A store that goes away and comes back, for tests of a writer that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

import slate_async as slate
from slate_async.errors import UnavailableError
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.types import Buffer
from tests.engine import memory_store, until

SHORT: dict[str, Any] = {
    "on_outage": "reopen",
    "retry_deadline_ms": 200,
    "request_timeout_ms": 100,
    "takeover_deadline_ms": 5000,
    "manifest_poll_interval_ms": 20,
}


class Outages:
    """A store that goes away on request. ``landing``: of what is sent meanwhile, which puts land all the same;
    ``away``: which objects are not there for anybody; ``answer``: what it says instead, of puts or of everything."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.down = False
        self.landing: Callable[[str], bool] = lambda key: False
        self.away: Callable[[str], bool] = lambda key: True
        self.answer: Callable[[], Exception] | None = None
        self.refuses_puts_alone = False

    def _check(self, key: str = "") -> None:
        if self.answer is not None and not self.refuses_puts_alone:
            raise self.answer()
        if self.down and self.away(key):
            raise UnavailableError("the store is away")

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self.answer is not None:
            raise self.answer()
        if self.down and self.away(key):
            if self.landing(key):
                await self.inner.put(key, data, mode=mode, metadata=metadata)
            raise UnavailableError("the store is away", outcome="unknown")
        return await self.inner.put(key, data, mode=mode, metadata=metadata)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self._check(key)
        return await self.inner.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        self._check(key)
        return await self.inner.head(key)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self._check(prefix)
        async for info in self.inner.list(prefix, start_after=start_after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        self._check()
        await self.inner.delete(keys)

    async def close(self) -> None:
        await self.inner.close()


def outages() -> Outages:
    return Outages(memory_store())


async def out(db: slate.Db) -> None:
    """Wait until the writer has given its log up."""
    await until(lambda: db.status().outage is not None, "the writer to give up")


async def back(db: slate.Db) -> None:
    """Wait until writes are taken again."""
    await until(lambda: db.status().outage is None, "the database to open itself again")
    assert db.status().state == "open"  # whether or not anybody writes


async def failed(write: asyncio.Future[Any]) -> str | None:
    """The outcome of a write that fails for want of a store."""
    with pytest.raises(slate.UnavailableError) as caught:
        await write
    return caught.value.outcome
