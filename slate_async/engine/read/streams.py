"""Sorted streams over the parts of a view: a memtable that may still grow, and a run opened one table at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.merge import close_stream
from slate_async.engine.read.sources import Run, Table
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.memtable import Memtable
from slate_async.storage.sst.scan import BlockScan


class MemtableStream(AsyncIterator[Columns]):
    """The rows of ``table`` up to ``max_seq`` in ``span``. Orders the table's keys first if nobody has, taking turns
    with the other tasks; never waits for a store."""

    def __init__(self, table: Memtable, span: KeyRange, max_seq: int, reverse: bool, yield_budget: YieldBudget) -> None:
        self._table = table
        self._span = span
        self._max_seq = max_seq
        self._reverse = reverse
        self._yield_budget = yield_budget
        self._batches: Iterator[Columns] | None = None

    async def __anext__(self) -> Columns:
        if self._batches is None:
            for _ in self._table.order_steps(self._max_seq):
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
            start, end = self._span
            self._batches = self._table.scan(start, end, self._max_seq, self._reverse)
        for batch in self._batches:
            if len(batch):
                return batch
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
        raise StopAsyncIteration


class RunStream(AsyncIterator[Columns]):
    """The tables ``numbers`` of ``run`` one after another; in ``reverse`` the last one first.

    ``prefetch_among``: all is wanted soon, by so many streams; 0 if nobody knows. ``merged``: the rows go into a merge.
    The next table is begun when the last read of the one before it is under way."""

    def __init__(
        self,
        run: Run,
        numbers: Sequence[int],
        span: KeyRange,
        reverse: bool,
        prefetch_among: int = 0,
        *,
        merged: bool = False,
    ) -> None:
        self._todo: Iterator[Table] = map(run.table, reversed(numbers) if reverse else numbers)
        self._span = span
        self._reverse = reverse
        self._prefetch_among = prefetch_among
        self._merged = merged
        self._current: AsyncIterator[Columns] | None = None
        self._next: AsyncIterator[Columns] | None = None

    def next_nowait(self) -> Columns | None:
        """The next batch, if the open table has read it already. Never suspends."""
        return self._current.next_nowait() if isinstance(self._current, BlockScan) else None

    async def __anext__(self) -> Columns:
        while True:
            if self._current is None:
                self._current, self._next = self._next or self._open(), None
            if self._current is None:
                raise StopAsyncIteration
            if self._next is None and isinstance(self._current, BlockScan) and self._current.planned:
                self._next = self._open()
                if isinstance(self._next, BlockScan):
                    self._next.start()
            try:
                return await anext(self._current)
            except StopAsyncIteration:
                self._current = None

    def _open(self) -> AsyncIterator[Columns] | None:
        """A scan of the next table; ``None`` after the last one."""
        table = next(self._todo, None)
        if table is None:
            return None
        scan = aiter(table.source.scan(self._span.start, self._span.end, reverse=self._reverse))
        if isinstance(scan, BlockScan):
            if self._prefetch_among:
                scan.prefetch(self._prefetch_among)
            if self._merged:
                scan.merge()
        return scan

    async def aclose(self) -> None:
        """Close the streams of open tables. Idempotent."""
        self._todo = iter(())
        for scan in (self._current, self._next):
            if scan is not None:
                await close_stream(scan)
