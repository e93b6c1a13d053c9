"""Reads log objects: one, several at once, or many in order and ahead of their replay."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from uuid import UUID

from slate_async.codec.header import HEADER_BYTES, ObjectHeader, decode_header
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.protocol import GetResult, ObjectNotFoundError, ObjectStore, Span
from slate_async.runtime.concurrent import ahead, map_bounded
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.log.protocol import LogObject

READS_IN_PARALLEL = 16
READS_AT_ONCE = 64
"""Of a takeover, for which everybody waits."""
REPLAY_BYTES = 64 << 20
"""A takeover begins no further read while what it has read, or reads, and not replayed is so much."""
PART_BYTES = 1 << 20
"""A takeover reads objects of twice this size and more in parts that are not smaller: one request brings some 10 MB a
second, many at a time as much each."""


class LogReader:
    """Reads log objects of one database and verifies whose they are."""

    def __init__(self, store: ObjectStore, database_id: UUID, *, whole: bool) -> None:
        self._store = store
        self._database_id = database_id
        self._whole = whole

    async def read(self, log_id: int, key: str) -> LogObject | None:
        """The object, or ``None`` if it is not there."""
        found = await self._get(key, None if self._whole else Span(0, HEADER_BYTES))
        return None if found is None else self._decoded(log_id, key, found.info.size, found.data)

    def _decoded(self, log_id: int, key: str, size: int, data: bytes) -> LogObject:
        header = decode_header(
            data[:HEADER_BYTES],
            object_name=key,
            database_id=self._database_id,
            object_id=log_object_id(log_id),
        )
        return LogObject(log_id, key, size, header, data)

    async def read_header(self, log_id: int, key: str) -> tuple[bytes, ObjectHeader] | None:
        """Only the header of the object, as stored and decoded, or ``None`` if it is not there."""
        found = await self._get(key, Span(0, HEADER_BYTES))
        if found is None:
            return None
        header = decode_header(
            found.data, object_name=key, database_id=self._database_id, object_id=log_object_id(log_id)
        )
        return found.data, header

    async def _get(self, key: str, span: Span | None) -> GetResult | None:
        try:
            return await self._store.get(key, span)
        except ObjectNotFoundError:
            return None
        except InvalidError as error:
            try:
                size = (await self._store.head(key)).size
            except ObjectNotFoundError:
                return None
            if span is None or size > span.offset:
                raise  # about the store, not about the object
            raise CorruptionError(f"{size} bytes are too few for a header", object_name=key) from error

    async def read_many(self, wanted: Sequence[tuple[int, str]]) -> list[LogObject | None]:
        """Several objects at once, bounded."""
        return await map_bounded(lambda pair: self.read(*pair), wanted, READS_IN_PARALLEL)

    def read_ahead(
        self, wanted: AsyncGenerator[tuple[int, str, int]]
    ) -> AsyncGenerator[tuple[int, str, LogObject | None]]:
        """``(id, key, object)`` of each of ``wanted``, in order and ahead of the caller, with bounded memory.

        wanted: ids, keys, and sizes of what is stored"""

        places = asyncio.Semaphore(READS_AT_ONCE)

        async def sized() -> AsyncGenerator[tuple[tuple[int, str, int], int]]:
            async with aclosing(wanted):
                async for entry in wanted:
                    yield entry, entry[2] if self._whole else HEADER_BYTES

        async def read(entry: tuple[int, str, int]) -> tuple[int, str, LogObject | None]:
            log_id, key, size = entry
            if self._whole and size >= 2 * PART_BYTES:
                return log_id, key, await self._read_parts(log_id, key, size, places)
            async with places:
                return log_id, key, await self.read(log_id, key)

        return ahead(read, sized(), limit=READS_AT_ONCE, budget=REPLAY_BYTES)

    async def _read_parts(self, log_id: int, key: str, size: int, places: asyncio.Semaphore) -> LogObject | None:
        """As `read`, the ``size`` bytes of it in parts, each of which takes one of ``places``."""

        step = math.ceil(size / (size // PART_BYTES))

        async def part(offset: int) -> bytes:
            async with places:
                return (await self._store.get(key, Span(offset, min(step, size - offset)))).data

        try:
            parts = await map_bounded(part, range(0, size, step), READS_AT_ONCE)
        except ObjectNotFoundError:
            return None
        except InvalidError:  # it ends before a part begins: its size is not what was listed
            return await self.read(log_id, key)
        return self._decoded(log_id, key, size, b"".join(parts))
