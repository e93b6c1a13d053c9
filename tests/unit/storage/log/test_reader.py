"""Large log objects are read in parts, all of which count among the reads under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from slate_async.codec.header import ObjectHeader, ObjectKind, encode_header
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectNotFoundError, Span
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.log import reader
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.reader import READS_AT_ONCE, LogReader
from tests.engine import StoreInHand, memory_store
from tests.support.rows import DATABASE

PART = 1_000


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PART_BYTES", PART)


def bytes_of(log_id: int, size: int) -> bytes:
    body = bytes(at % 251 for at in range(size - 80))
    object_id = log_object_id(log_id)
    return encode_header(ObjectHeader(ObjectKind.LOG_SEGMENT, DATABASE, object_id, 1, len(body), 1, 0)) + body


class Counting(StoreInHand):
    """Knows how many reads were under way at most, and of which parts. ``missing``: parts that are not there."""

    most = under_way = 0
    missing: int | None = None

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            if self.missing is not None and isinstance(byte_range, Span) and byte_range.offset == self.missing:
                raise ObjectNotFoundError(key)
            return await super().get(key, byte_range)
        finally:
            self.under_way -= 1


async def read(
    sizes: list[int], listed: list[int] | None = None, missing: int | None = None
) -> tuple[Counting, list[LogObject | None]]:
    store = Counting(memory_store())
    store.missing = missing
    for log_id, size in enumerate(sizes, 1):
        await store.inner.put(f"log/{log_id}", bytes_of(log_id, size))

    async def wanted() -> AsyncGenerator[tuple[int, str, int]]:
        for log_id, size in enumerate(listed or sizes, 1):
            yield log_id, f"log/{log_id}", size

    log_reader = LogReader(store, DATABASE, whole=True)
    return store, [found async for _, _, found in log_reader.read_ahead(wanted())]


@pytest.mark.parametrize("size", [80, PART, 2 * PART - 1, 2 * PART, 2 * PART + 1, 10 * PART - 1, 64 * PART + 80])
async def test_an_object_in_parts_is_the_object(size: int) -> None:
    store, found = await read([size])
    assert [segment.data for segment in found if segment is not None] == [bytes_of(1, size)]
    assert found[0] is not None
    assert found[0].size == size
    assert len(store.gets) == max(1, size // PART)


async def test_no_more_reads_are_under_way_than_allowed_however_large_the_objects() -> None:
    sizes = [5 * PART, 100, 300 * PART, 100] * 30
    store, found = await read(sizes)
    assert [segment.size for segment in found if segment is not None] == sizes
    assert store.most == READS_AT_ONCE


async def test_an_object_that_goes_while_it_is_read_is_not_there() -> None:
    assert (await read([100, 5 * PART], missing=3 * PART))[1][1] is None


@pytest.mark.parametrize("size", [5 * PART, 500])
async def test_an_object_of_another_size_than_was_listed_is_what_is_stored(size: int) -> None:
    _, (found,) = await read([size], [20 * PART])
    assert found is not None
    assert found.data == bytes_of(1, size)
