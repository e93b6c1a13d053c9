"""A store that counts and obstructs, and readers over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from slate_async.errors import InvalidError
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    PutMode,
    Span,
)
from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.reader import SstReader
from slate_async.types import Buffer
from tests.support.rows import DATABASE, OBJECT

T = TypeVar("T")


class CountingStore:
    """Objects in a dict. Records the spans read; ``gate`` holds reads back, ``failure`` fails the next one."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[int, int]] = []
        self.gate: asyncio.Event | None = None
        self.failure: Exception | None = None
        self.lost_response: Exception | None = None
        self.cancelled = 0

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if isinstance(mode, Create) and key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        if self.lost_response is not None:
            raise self.lost_response
        return "etag"

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        assert isinstance(byte_range, Span)
        self.reads.append((byte_range.offset, byte_range.length))
        try:
            await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        data = self.objects[key]
        if byte_range.offset >= len(data):
            raise InvalidError("the span starts past the object")
        part = data[byte_range.offset : byte_range.offset + byte_range.length]
        return GetResult(ObjectInfo(key, len(data), "etag", 0), part, byte_range.offset)

    async def head(self, key: str) -> ObjectInfo:
        await asyncio.sleep(0)
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        return ObjectInfo(key, len(self.objects[key]), "etag", 0)

    def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        raise NotImplementedError

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    async def close(self) -> None:
        return


class StoreAtHand(CountingStore):
    """It has everything in memory, and counts what is read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read_at_once = 0

    def read_sync(self, key: str, offset: int, length: int, size: int) -> bytes | None:
        self.read_at_once += 1
        data = self.objects[key]
        return data[offset : offset + length] if len(data) == size else None


class CountingOffload:
    """Runs functions at once, after one turn of the loop, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.calls += 1
        await asyncio.sleep(0)
        return function()


def forget_blocks(reader: SstReader) -> None:
    """Its blocks leave the cache, as others push them out."""
    blocks = reader._cache._blocks
    for name in [name for name in blocks.things if name[0] == reader._owner]:
        blocks.remove(name)


def reader_of(
    store: CountingStore,
    encoded: EncodedSst,
    *,
    cache: BlockCache | None = None,
    offload: CountingOffload | None = None,
    key: str = "sst/x",
    meta_bytes: int = 0,
) -> SstReader:
    """A reader of ``encoded``, put into ``store``."""
    store.objects[key] = b"".join(encoded.buffers)
    return SstReader(
        store,
        key,
        size=encoded.size,
        database_id=DATABASE,
        object_id=OBJECT,
        cache=BlockCache(64 << 20) if cache is None else cache,
        offload=CountingOffload() if offload is None else offload,
        meta_bytes=meta_bytes,
    )
