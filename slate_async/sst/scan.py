"""Scanning one SST: which blocks are read together, in what order, and how far ahead.

Reads begin small, so a scan that stops early costs little, and double up to the read-ahead; from the second one on
the next reads are under way while the consumer works on the current one, so that one is fetched while another is
decoded. A consumer that says it wants everything (`BlockScan.hurry`) gets large reads, several at a time, at once: as
many bytes are under way as a store of 500 MB/s sends in 30 ms. The tasks of reads ahead are owned by the iterator and
end with it, also when it is dropped.

Blocks of which every reader sees every row come as they are. Others are joined from the second read on, because
whoever has to pick rows out of columns pays for every batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from slate_async.format.columns import Columns, concat
from slate_async.format.index import Index
from slate_async.format.sst import SstMeta
from slate_async.sst.loaded_block import LoadedBlock

SCAN_READ_AHEAD_BYTES = 4 << 20
FIRST_READ_BYTES = 128 << 10
READS_AHEAD = 2

HURRIED_FIRST_BYTES = 1 << 20
HURRIED_LEAST_BYTES = 512 << 10
HURRIED_READS_AHEAD = 4

JOINED_ROWS = 4096
JOINED_BYTES = 1 << 20
"""Blocks are joined up to so many rows and bytes, a fraction of a millisecond of copying; a larger one stays alone."""


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


class BlockScan(AsyncIterator[Columns]):
    """The rows in ``[start, end)``; see `SstReader.scan`. A step that was cancelled or failed leaves it unusable;
    `aclose` it. ``read_ahead_bytes``: what one read brings at most."""

    def __init__(
        self,
        source: BlockSource,
        start: bytes | None,
        end: bytes | None,
        *,
        reverse: bool,
        read_ahead_bytes: int,
        reads_ahead: int,
        fill_cache: bool,
    ) -> None:
        self._source = source
        self._start = start
        self._end = end
        self._reverse = reverse
        self.read_ahead_bytes = max(1, read_ahead_bytes)
        self._reads_ahead = reads_ahead
        self._fill_cache = fill_cache
        self._parts: Iterator[Columns] = iter(())
        self._blocks = range(0)
        self._reads: _Reads | None = None
        self._hurried = False
        self._starting: asyncio.Task[None] | None = None

    def hurry(self, among: int = 1) -> None:
        """The consumer wants all rows soon. ``among``: so many scans like this share what may be under way. Before the
        first step."""
        self._hurried = True
        self._reads_ahead = HURRIED_READS_AHEAD
        share = max(HURRIED_LEAST_BYTES, self.read_ahead_bytes // among)
        self.read_ahead_bytes = min(self.read_ahead_bytes, share)

    def start(self) -> None:
        """Begin to read before the first step."""
        self._starting = asyncio.get_running_loop().create_task(self._begin_early(), name="sst-scan-start")
        self._starting.add_done_callback(_seen)

    @property
    def planned(self) -> bool:
        """Whether its last read is under way or done, after enough of it was read that more will be wanted."""
        return self._reads is not None and self._reads.planned and (self._hurried or self._reads.done > 1)

    def at_hand(self) -> Columns | None:
        """The next batch, if it was read already. Never suspends."""
        for rows in self._parts:
            if len(rows):
                return rows
        return None

    async def __anext__(self) -> Columns:
        while True:
            rows = self.at_hand()
            if rows is not None:
                return rows
            if self._starting is not None:
                await self._starting
                self._starting = None
            index = (await self._source.load()).index
            begun = self._hurried or self._reads is not None
            reads = self._reads or self._begin(index)
            loaded = await reads.next()
            if loaded is None:
                raise StopAsyncIteration
            parts = _parts(index, loaded, self._blocks, self._start, self._end)
            self._parts = joined(parts, reverse=self._reverse) if begun else parts

    def _begin(self, index: Index) -> _Reads:
        self._blocks = index.range(self._start, self._end)
        order = self._blocks[::-1] if self._reverse else self._blocks
        first_bytes = HURRIED_FIRST_BYTES if self._hurried else FIRST_READ_BYTES
        plan = plan_reads(index.stored_bytes, order, first_bytes=first_bytes, most_bytes=self.read_ahead_bytes)
        self._reads = _Reads(self._source, plan, self._reads_ahead, self._fill_cache)
        if self._hurried:
            self._reads.look_ahead()
        return self._reads

    async def _begin_early(self) -> None:
        self._begin((await self._source.load()).index).look_ahead()

    async def aclose(self) -> None:
        """End what is under way. Idempotent."""
        self._parts = iter(())
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._reads is not None:
            await self._reads.aclose()


def _parts(
    index: Index, loaded: list[tuple[int, LoadedBlock]], blocks: range, start: bytes | None, end: bytes | None
) -> Iterator[Columns]:
    """The rows of each block of ``loaded`` in ``[start, end)``, which all of ``blocks`` may hold rows of."""
    for number, block in loaded:
        rows = block.for_scans().columns
        first = block.lower_bound(start) if start is not None and number == blocks[0] else 0
        stop = block.lower_bound(end) if end is not None and number == blocks[-1] else block.rows
        if stop - first != block.rows:
            rows = rows.slice(first, max(first, stop))
        if index.continues[number]:  # it begins with versions of a key before it, which newer ones hide
            rows = replace(rows, seen_from=None)
        yield rows


def joined(parts: Iterable[Columns], *, reverse: bool) -> Iterator[Columns]:
    """``parts`` with neighbours joined up to `JOINED_ROWS` and `JOINED_BYTES`, each joined as soon as it is asked for;
    one that knows from when on all its rows are seen stays alone.

    With ``reverse`` the parts come from the end; the rows inside stay ascending."""
    near: list[Columns] = []
    rows = nbytes = 0
    for part in parts:
        alone = part.seen_from is not None
        if near and (alone or rows + len(part) > JOINED_ROWS or nbytes + part.nbytes > JOINED_BYTES):
            yield concat(near[::-1] if reverse else near)
            near, rows, nbytes = [], 0, 0
        if alone:
            yield part
        else:
            near.append(part)
            rows += len(part)
            nbytes += part.nbytes
    if near:
        yield concat(near[::-1] if reverse else near)


class _Reads:
    """The reads of a scan in their order, some of them under way before they are asked for.

    Unless told to `look_ahead`, nothing is read ahead before the second read: a scan that stops early pays for no more
    than it used. ``planned``: the last one is under way or done; ``done``: reads that came."""

    def __init__(self, source: BlockSource, plan: Iterator[list[int]], most_ahead: int, fill_cache: bool) -> None:
        self._source = source
        self._plan = plan
        self._most_ahead = most_ahead
        self._fill_cache = fill_cache
        self._ahead: deque[tuple[list[int], asyncio.Task[list[LoadedBlock]]]] = deque()
        self._eager = False
        self.done = 0
        self.planned = False

    async def next(self) -> list[tuple[int, LoadedBlock]] | None:
        """The blocks of the next read with their numbers, in the plan's order; ``None`` after the last one."""
        if self._ahead:
            numbers, task = self._ahead[0]
            blocks = await task
            self._ahead.popleft()
        elif (planned := self._next_planned()) is not None:
            numbers = planned
            blocks = await self._source.load_blocks(sorted(numbers), fill_cache=self._fill_cache)
        else:
            return None
        self.done += 1
        if self.done > 1 or self._eager:
            self.look_ahead()
        by_number = dict(zip(sorted(numbers), blocks, strict=True))
        return [(number, by_number[number]) for number in numbers]

    def _next_planned(self) -> list[int] | None:
        numbers = next(self._plan, None)
        self.planned = numbers is None
        return numbers

    def look_ahead(self) -> None:
        """Let as many reads be under way as may be, from now on."""
        self._eager = True
        while len(self._ahead) < self._most_ahead and (numbers := self._next_planned()) is not None:
            load = self._source.load_blocks(sorted(numbers), fill_cache=self._fill_cache)
            task = asyncio.get_running_loop().create_task(load, name="sst-read-ahead")
            task.add_done_callback(_seen)
            self._ahead.append((numbers, task))

    async def aclose(self) -> None:
        """End what is under way. Idempotent."""
        tasks = [task for _, task in self._ahead]
        self._ahead.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def __del__(self) -> None:
        for _, task in self._ahead:
            loop = task.get_loop()
            if not task.done() and not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)  # any thread may collect what was dropped


def _seen(task: asyncio.Task[Any]) -> None:
    """A read ahead that failed after its scan ended is nobody's failure."""
    if not task.cancelled():
        task.exception()
