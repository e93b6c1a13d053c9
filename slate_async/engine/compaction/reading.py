"""Reading the inputs of a compaction: all rows of a key range, a whole read of an SST at a time.

One read is under way while the rows of the one before are merged. Its task is owned by the iterator and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from slate_async.codec.columns import Columns
from slate_async.engine.read.merge import first_row_from
from slate_async.storage.sst.fitting import load_fitting
from slate_async.storage.sst.late import apart, drained
from slate_async.storage.sst.reader import SstReader
from slate_async.storage.sst.scan import plan_reads

FIRST_READ_BYTES = 512 << 10
"""Reads begin with this and double, so that the first rows of all sources are there soon."""


async def read_batches(
    reader: SstReader, start: bytes | None, end: bytes | None, *, read_bytes: int, merged: bool = False
) -> AsyncGenerator[Columns, None]:
    """All versions of the keys in ``[start, end)`` (``None``: unbounded), in sorted batches of up to ``read_bytes``
    stored bytes each. ``merged``: they go into a merge, and large values come late (`storage.sst.late`). Errors as
    `SstReader.load`."""
    index = (await reader.load()).index
    most = max(1, read_bytes)
    plan = plan_reads(
        index.stored_bytes, index.range(start, end), first_bytes=FIRST_READ_BYTES, most_bytes=lambda: most
    )

    async def load(numbers: list[int]) -> list[Columns]:
        batches = await reader.load_joined(numbers)
        if merged and len(numbers) == 1:
            return apart(batches[0], partial(reader.load_joined, numbers), reader.shares)
        return batches

    ahead: asyncio.Task[tuple[list[Columns], list[int]]] | None = None

    def begin(rest: list[int] | None = None) -> asyncio.Task[tuple[list[Columns], list[int]]] | None:
        numbers = rest or next(plan, None)
        if numbers is None:
            return None
        reading = load_fitting(load, numbers)
        return asyncio.get_running_loop().create_task(reading, name="compaction/read ahead")

    try:
        ahead = begin()
        while ahead is not None:
            batches, rest = await ahead
            ahead = begin(rest)
            for batch in drained(batches):
                low = 0 if start is None else first_row_from(batch, start)
                high = len(batch) if end is None else first_row_from(batch, end)
                if low < high:
                    yield batch.slice(low, high)
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
