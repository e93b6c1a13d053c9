"""Scanning one SST: which blocks are read together, in what order, and how far ahead.

Reads begin small, so a scan that stops early costs little, and double up to the read-ahead; from the second one on
the next read is under way while the consumer works on the current one. The task of that read is owned by the
iterator and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Protocol

from slate_async.format.columns import Columns
from slate_async.format.sst import SstMeta
from slate_async.sst.loaded_block import LoadedBlock

SCAN_READ_AHEAD_BYTES = 4 << 20
FIRST_READ_BYTES = 128 << 10


class BlockSource(Protocol):
    """What a scan needs of an SST."""

    async def load(self) -> SstMeta:
        """Its metadata."""

    async def load_blocks(self, numbers: list[int], *, fill_cache: bool) -> list[LoadedBlock]:
        """Some of its blocks, named in ascending order."""


def plan_reads(
    stored_bytes: Sequence[int], numbers: Sequence[int], *, first_bytes: int, most_bytes: int
) -> Iterator[list[int]]:
    """``numbers`` cut into reads of at least one block each: the first holds up to ``first_bytes``, each later one
    twice as much as the one before, none more than ``most_bytes``."""
    limit = min(first_bytes, most_bytes)
    read: list[int] = []
    size = 0
    for number in numbers:
        if read and size + stored_bytes[number] > limit:
            yield read
            read, size, limit = [], 0, min(2 * limit, most_bytes)
        read.append(number)
        size += stored_bytes[number]
    if read:
        yield read


async def scan_blocks(
    source: BlockSource,
    start: bytes | None,
    end: bytes | None,
    *,
    reverse: bool,
    read_ahead_bytes: int,
    fill_cache: bool,
) -> AsyncGenerator[Columns, None]:
    """The rows in ``[start, end)``; see `SstReader.scan`."""
    meta = await source.load()
    blocks = meta.index.range(start, end)
    order = blocks[::-1] if reverse else blocks
    reads = plan_reads(
        meta.index.stored_bytes, order, first_bytes=FIRST_READ_BYTES, most_bytes=max(1, read_ahead_bytes)
    )
    loop = asyncio.get_running_loop()
    ahead: asyncio.Task[list[LoadedBlock]] | None = None
    try:
        read = next(reads, None)
        begun = False
        while read is not None:
            if ahead is None:
                loaded = await source.load_blocks(sorted(read), fill_cache=fill_cache)
            else:
                loaded = await ahead
                ahead = None
            upcoming = next(reads, None)
            if begun and upcoming is not None:
                ahead = loop.create_task(
                    source.load_blocks(sorted(upcoming), fill_cache=fill_cache), name="sst-read-ahead"
                )
                ahead.add_done_callback(_seen)
            begun = True
            by_number = dict(zip(sorted(read), loaded, strict=True))
            for number in read:
                block = by_number.pop(number)
                rows = _cut(block, start if number == blocks.start else None, end if number == blocks[-1] else None)
                if len(rows):
                    yield rows
            read = upcoming
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])


def _seen(task: asyncio.Task[list[LoadedBlock]]) -> None:
    """A read ahead that failed after its scan ended is nobody's failure."""
    if not task.cancelled():
        task.exception()


def _cut(block: LoadedBlock, start: bytes | None, end: bytes | None) -> Columns:
    first = 0 if start is None else block.lower_bound(start)
    stop = block.rows if end is None else block.lower_bound(end)
    return block.columns if (first, stop) == (0, block.rows) else block.columns.slice(first, max(first, stop))
