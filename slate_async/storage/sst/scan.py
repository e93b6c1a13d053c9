"""Scanning one SST: which blocks are read together, in what order, and how far ahead.

Reads begin small, so a scan that stops early costs little, and double up to the read-ahead; from the second one on
the next reads are under way while the consumer works on the current one, so that one is fetched while another is
decoded. A consumer that says it wants everything (`BlockScan.prefetch`) gets large reads, several at a time, at once:
as many bytes are under way as a store of 500 MB/s sends in 30 ms. The tasks of reads ahead are owned by the iterator
and end with it, also when it is dropped.

What is read ahead of more than the cache can hold goes past it, many blocks decoded as one: keeping it would push
out what others come back to, and by the end of such a scan its own beginning. Otherwise blocks of which every reader
sees every row come as they are, and others are joined from the second read on, because a caller that has to pick rows
out of columns pays for every batch.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from slate_async.codec.columns import Columns, concat
from slate_async.storage.format.index import Index
from slate_async.storage.format.separate_blocks import seen_from_of
from slate_async.storage.format.sst import SstMeta
from slate_async.storage.sst.fitting import load_fitting
from slate_async.storage.sst.late import apart, drained
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.storage.sst.shares import ReadShares

SCAN_READ_AHEAD_BYTES = 4 << 20
FIRST_READ_BYTES = 128 << 10
READS_AHEAD = 2

PREFETCH_FIRST_BYTES = 1 << 20
PREFETCH_LEAST_BYTES = 512 << 10
PREFETCH_READS_AHEAD = 4

JOINED_ROWS = 4096
JOINED_BYTES = 1 << 20
"""Blocks are joined up to so many rows and bytes, a fraction of a millisecond of copying; a larger one stays alone."""


class BlockSource(Protocol):
    """What a scan needs of an SST."""

    async def load(self) -> SstMeta:
        """Its metadata."""

    async def load_blocks(self, numbers: list[int], *, fill_cache: bool) -> list[LoadedBlock]:
        """Some of its blocks, named in ascending order."""

    async def load_pieces(self, numbers: list[int]) -> list[Columns]:
        """The rows of neighbouring blocks in few pieces (see `slate_async.storage.sst.pieces`), past the cache."""

    async def load_joined(self, numbers: list[int]) -> list[Columns]:
        """As `load_pieces`, in as few batches as may be, of which nobody knows who sees them."""


def plan_reads(
    stored_bytes: Sequence[int], numbers: Sequence[int], *, first_bytes: int, most_bytes: Callable[[], int]
) -> Iterator[list[int]]:
    """``numbers`` cut into reads of at least one block each: the first holds up to ``first_bytes``, each later one
    twice as much as the one before, none more than ``most_bytes()``, asked when it is planned."""
    limit = min(first_bytes, most_bytes())
    read: list[int] = []
    size = 0
    for number in numbers:
        if read and size + stored_bytes[number] > limit:
            yield read
            read, size, limit = [], 0, min(2 * limit, most_bytes())
        read.append(number)
        size += stored_bytes[number]
    if read:
        yield read


class BlockScan(AsyncIterator[Columns]):
    """The rows in ``[start, end)``; see `SstReader.scan`. A step that was cancelled or failed leaves it unusable;
    `aclose` it. ``read_ahead_bytes``: what one read brings at most; ``cache_bytes``: what the cache can hold;
    ``shares``: what a read may hold once it is decoded."""

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
        cache_bytes: int,
        shares: ReadShares,
    ) -> None:
        self._source = source
        self._shares = shares
        self._start = start
        self._end = end
        self._reverse = reverse
        self.read_ahead_bytes = max(1, read_ahead_bytes)
        self._reads_ahead = reads_ahead
        self._fill_cache = fill_cache
        self._cache_bytes = cache_bytes
        self._parts: Iterator[Columns] = iter(())
        self._reads: _Reads | None = None
        self._prefetch = False
        self._merged = False
        self._starting: asyncio.Task[None] | None = None

    def prefetch(self, among: int = 1) -> None:
        """The consumer wants all rows soon. ``among``: so many scans like this share what may be under way. Before the
        first step."""
        self._prefetch = True
        self._reads_ahead = PREFETCH_READS_AHEAD
        share = max(PREFETCH_LEAST_BYTES, self.read_ahead_bytes // among)
        self.read_ahead_bytes = min(self.read_ahead_bytes, share)

    def merge(self) -> None:
        """The rows go into a merge: large values come late (`slate_async.storage.sst.late`). Before the first step."""
        self._merged = True

    def start(self) -> None:
        """Begin to read before the first step."""
        self._starting = asyncio.get_running_loop().create_task(self._begin_early(), name="sst-scan-start")
        self._starting.add_done_callback(_seen)

    @property
    def planned(self) -> bool:
        """Whether its last read is under way or done, after enough of it was read that more will be wanted."""
        return self._reads is not None and self._reads.planned and (self._prefetch or self._reads.done > 1)

    def next_nowait(self) -> Columns | None:
        """The next batch, if it was read already. Never suspends."""
        for rows in self._parts:
            if len(rows):
                return rows
        return None

    async def __anext__(self) -> Columns:
        while True:
            rows = self.next_nowait()
            if rows is not None:
                return rows
            if self._starting is not None:
                await self._starting
                self._starting = None
            meta = await self._source.load()
            begun = self._prefetch or self._reads is not None
            reads = self._reads or self._begin(meta)
            parts = await reads.next()
            if parts is None:
                self._shares.end(self)
                raise StopAsyncIteration
            self._parts = joined(parts, reverse=self._reverse) if begun else iter(parts)

    def _begin(self, meta: SstMeta) -> _Reads:
        self._shares.begin(self)
        index = meta.index
        blocks = index.range(self._start, self._end)
        cut = (self._start, self._end, self._reverse, self._fill_cache, self._merged, self._shares)
        wanted = _Wanted(self._source, index, blocks, *cut)
        past_cache = self._prefetch and sum(index.stored_bytes[number] for number in blocks) > self._cache_bytes
        order = blocks[::-1] if self._reverse else blocks
        first_bytes = PREFETCH_FIRST_BYTES if self._prefetch else FIRST_READ_BYTES
        shares, read_bytes, reads_ahead = self._shares, self.read_ahead_bytes, self._reads_ahead

        def most_bytes() -> int:  # without ``self``: a scan that is dropped ends at once
            return min(read_bytes, shares.stored(meta))

        def most_ahead() -> int:
            return shares.ahead(meta, reads_ahead)

        plan = plan_reads(index.stored_bytes, order, first_bytes=first_bytes, most_bytes=most_bytes)
        self._reads = _Reads(wanted.pieces if past_cache else wanted.by_block, plan, most_ahead)
        if self._prefetch:
            self._reads.look_ahead()
        return self._reads

    async def _begin_early(self) -> None:
        self._begin(await self._source.load()).look_ahead()

    async def aclose(self) -> None:
        """End what is under way. Idempotent."""
        self._parts = iter(())
        self._shares.end(self)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._reads is not None:
            await self._reads.aclose()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The rows of a scan: those in ``[start, end)``, of which all of ``blocks`` may hold some; with late values if they
    are ``merged``."""

    source: BlockSource
    index: Index
    blocks: range
    start: bytes | None
    end: bytes | None
    reverse: bool
    fill_cache: bool
    merged: bool
    shares: ReadShares

    async def by_block(self, numbers: list[int]) -> Iterable[Columns]:
        """Those of each of the blocks ``numbers``, in that order."""
        ordered = sorted(numbers)
        blocks = await self.source.load_blocks(ordered, fill_cache=self.fill_cache)
        if len(blocks) == 1:
            rows, first = self._cut(ordered[0], blocks[0])
            return self._alone(ordered[0], rows, first)
        loaded = zip(ordered, blocks, strict=True)
        return (self._cut(*pair)[0] for pair in (reversed([*loaded]) if self.reverse else loaded))

    def _cut(self, number: int, block: LoadedBlock) -> tuple[Columns, int]:
        """Those of a block, and where in it they begin."""
        rows = block.columns
        first = block.raw.lower_bound(self.start) if self.start is not None and number == self.blocks[0] else 0
        stop = block.raw.lower_bound(self.end) if self.end is not None and number == self.blocks[-1] else block.rows
        if stop - first != block.rows:
            rows = rows.slice(first, max(first, stop))
        if self.index.continues[number]:  # it begins with versions of a key before it, which newer ones hide
            rows = replace(rows, seen_from=None)
        return rows, first

    def _alone(self, number: int, rows: Columns, first: int) -> Iterable[Columns]:
        """Those of one block, which may be large: nobody keeps what the consumer has taken."""
        load = partial(self.source.load_joined, [number])
        parts = apart(rows, load, self.shares, first) if self.merged else [rows]
        return drained(parts[::-1] if self.reverse else parts)

    async def pieces(self, numbers: list[int]) -> Iterable[Columns]:
        """Those of the blocks ``numbers``, neighbours, past the cache; in reverse from the end."""
        ordered = sorted(numbers)
        if self.merged and len(ordered) == 1:
            return await self._joined_alone(ordered[0])
        pieces = await self.source.load_pieces(ordered)
        if self.start is not None and ordered[0] == self.blocks[0]:
            pieces = [piece.slice(_lower_bound(piece, self.start), len(piece)) for piece in pieces]
        if self.end is not None and ordered[-1] == self.blocks[-1]:
            pieces = [piece.slice(0, _lower_bound(piece, self.end)) for piece in pieces]
        return drained(pieces[::-1] if self.reverse else pieces)

    async def _joined_alone(self, number: int) -> Iterable[Columns]:
        [rows] = await self.source.load_joined([number])
        first = _lower_bound(rows, self.start) if self.start is not None and number == self.blocks[0] else 0
        stop = _lower_bound(rows, self.end) if self.end is not None and number == self.blocks[-1] else len(rows)
        if not self.index.continues[number]:
            rows = replace(rows, seen_from=seen_from_of(rows))
        return self._alone(number, rows.slice(first, max(first, stop)), first)


def _lower_bound(rows: Columns, key: bytes) -> int:
    """The first row whose key is ``key`` or greater."""
    keys = rows.keys
    return bisect_left(range(len(keys)), key, key=lambda row: keys[row].as_py())


def joined(parts: Iterable[Columns], *, reverse: bool) -> Iterator[Columns]:
    """``parts`` with neighbours joined up to `JOINED_ROWS` and `JOINED_BYTES`, each joined as soon as it is asked for;
    one that knows from when on all its rows are seen stays alone.

    With ``reverse`` the parts come from the end; the rows inside stay ascending."""
    near: list[Columns] = []
    rows = nbytes = 0
    for part in parts:
        alone = part.seen_from is not None or part.late is not None
        if near and (alone or rows + len(part) > JOINED_ROWS or nbytes + part.nbytes > JOINED_BYTES):
            yield _together(near, reverse)
            rows = nbytes = 0
        near.append(part)
        if alone:
            del part  # the consumer may keep this iterator for long, and the part may be large
            yield near.pop()
        else:
            rows += len(part)
            nbytes += part.nbytes
            del part
    if near:
        yield _together(near, reverse)


def _together(near: list[Columns], reverse: bool) -> Columns:
    """All of ``near``, which is empty then."""
    found = concat(near[::-1] if reverse else near)
    near.clear()
    return found


_Load: TypeAlias = Callable[[list[int]], Coroutine[Any, Any, Iterable[Columns]]]
_Read: TypeAlias = tuple[Iterable[Columns], list[int]]
"""The rows of some blocks, and the numbers of those that could not be decoded along with them."""


class _Reads:
    """The reads of a scan in their order, some of them under way before they are asked for. ``load`` gives the rows of
    the blocks of one, in scan order.

    Without `look_ahead`, nothing is read ahead before the second read: a scan that stops early pays for no more than it
    used. ``planned``: the last one is under way or done; ``done``: reads that came."""

    def __init__(self, load: _Load, plan: Iterator[list[int]], most_ahead: Callable[[], int]) -> None:
        self._load = load
        self._plan = plan
        self._most_ahead = most_ahead
        self._ahead: deque[asyncio.Task[_Read]] = deque()
        self._eager = False
        self.done = 0
        self.planned = False

    async def next(self) -> Iterable[Columns] | None:
        """The rows of the next read; ``None`` after the last one."""
        if self._ahead:
            rows, rest = await self._ahead[0]
            self._ahead.popleft()
        elif (numbers := self._next_planned()) is not None:
            rows, rest = await load_fitting(self._load, numbers)
        else:
            return None
        self.done += 1
        if rest:
            self._ahead.appendleft(self._begin(rest))
        if self.done > 1 or self._eager:
            self.look_ahead()
        return rows

    def _next_planned(self) -> list[int] | None:
        numbers = next(self._plan, None)
        self.planned = numbers is None
        return numbers

    def look_ahead(self) -> None:
        """Let as many reads be under way as may be, from now on."""
        self._eager = True
        while len(self._ahead) < self._most_ahead() and (numbers := self._next_planned()) is not None:
            self._ahead.append(self._begin(numbers))

    def _begin(self, numbers: list[int]) -> asyncio.Task[_Read]:
        task = asyncio.get_running_loop().create_task(load_fitting(self._load, numbers), name="sst-read-ahead")
        task.add_done_callback(_seen)
        return task

    async def aclose(self) -> None:
        """End what is under way. Idempotent."""
        tasks = [*self._ahead]
        self._ahead.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def __del__(self) -> None:
        for task in self._ahead:
            loop = task.get_loop()
            if not task.done() and not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)  # any thread may collect what was dropped


def _seen(task: asyncio.Task[Any]) -> None:
    """A read ahead that failed after its scan ended is nobody's failure."""
    if not task.cancelled():
        task.exception()
