"""`ScanSteps`: what a scan gives next, and whether it still may: the state machine of `engine.read.scan`.

| state | the next step gives | stored as |
|---|---|---|
| first pages | a page of rows from memory and the block cache (`engine.read.first_pages`) | `_pages` is not empty |
| streams | rows of columns, from `RetryingRows` | `_pages` is empty |
| all fetched | what is left of the last columns, then the end | `_all_fetched` |
| refused | `InvalidError`, for good | `_refusal` |

| from | to | when |
|---|---|---|
| first pages | first pages | a page came; after the `FIRST_PAGES` only where no SST holds keys of what is ahead |
| first pages | streams | the page is not on this machine; all first pages came; columns are asked for |
| first pages, streams | all fetched | nothing comes after the last row, or it was the last one of the limit |
| each | refused | closed before the last row was given; a step failed or was cancelled; the owner is closed |

A step is a call of `next_pairs`, `next_rows` or `next_columns`, one at a time. `pairs_nowait` and `columns_nowait` are
the same steps where they take no waiting and no other task's turn comes first; they say ``None`` where a step is to be
awaited.

Invariant: rows are pinned from the beginning until the last one is fetched or the scan is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import ref

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.first_pages import FirstPage, first_page, first_page_yielding
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.results import pairs_of, rows_of, rows_with
from slate_async.engine.read.retrying_rows import RetryingRows, SamePoint
from slate_async.engine.read.view import Pin
from slate_async.errors import InvalidError
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.types import Row

T = TypeVar("T")
Pair: TypeAlias = tuple[bytes, bytes]

CHUNK_ROWS = 1024
"""Rows turned into Python objects at a time; between two chunks the event loop may get a turn."""

FIRST_PAGES: tuple[int, ...] = (32, 64, 128)
"""A scan takes its first rows without waiting, so many at most each time; one of no more than the last at once."""

PAGE_IN_MEMORY = 1024
"""Where no SST holds keys of the range, all rows are taken so many at a time: in columns they would have to be made of
Python objects, and these of the columns again."""

INTERRUPTED = "the scan was interrupted; make another one"


class Items(Protocol):
    """What iterates a scan, and holds rows that it has not given yet."""

    def drop(self) -> bool:
        """Give none of them any more. Whether there were any."""


def _no_items() -> None:
    """The scan is not iterated yet."""


class ScanSteps:
    """See the module docstring."""

    __slots__ = (
        "_ahead",
        "_all_fetched",
        "_busy",
        "_check",
        "_items",
        "_pages",
        "_pin",
        "_point",
        "_refusal",
        "_rest",
        "_rows",
        "_same_point",
        "_yield_budget",
        "begun",
        "left",
        "prefetch",
        "reverse",
    )

    def __init__(
        self,
        point: ReadPoint,
        span: KeyRange,
        yield_budget: YieldBudget,
        check: Callable[[], None],
        same_point: SamePoint,
        reverse: bool,
        limit: int | None,
    ) -> None:
        """As of `Scan`."""
        self.reverse = reverse
        self.begun = False
        """Whether the scan is iterated."""
        self.left = limit
        """So many rows at most are still to be given; ``None``: all."""
        self.prefetch = False
        """Whether all rows are wanted soon."""
        self._point = point
        self._pin: Pin | None = point.view.pin()
        self._ahead = span
        self._yield_budget = yield_budget
        self._check = check
        self._same_point = same_point
        self._pages = FIRST_PAGES
        self._rows: RetryingRows | None = None
        self._rest: Columns | None = None
        self._items: Callable[[], Items | None] = _no_items
        self._busy = False
        self._all_fetched = False
        self._refusal: str | None = None

    @property
    def over(self) -> bool:
        """Whether every row was handed out."""
        return self._all_fetched and self._rest is None and self._refusal is None

    def begin(self, items: Items) -> None:
        """``items`` iterates from now on. Raises `InvalidError` if it is iterated already."""
        if self.begun:
            raise InvalidError("a scan is iterated once; make another one")
        self.begun = True
        self._items = ref(items)

    async def close(self) -> None:
        """Stop: nothing more is read or given, and the pin is given up. Idempotent."""
        items = self._items()
        dropped = items is not None and items.drop()
        if self._refusal is None and (dropped or not self.over):
            self._refusal = "the scan is closed"
        self._rest = None
        self._pin = None
        if not self._busy:  # a step under way closes the stream itself when it comes back
            await self._finish()

    # steps

    def pairs_nowait(self) -> Iterator[Pair] | None:
        """The next pairs, at least one, if that takes no waiting and no other task's turn comes first."""
        if not self._pages or self._busy or self._refusal is not None or self._yield_budget.exhausted():
            return None
        found = self._first_page_nowait()
        return None if found is None else iter(found)

    def _first_page_nowait(self) -> list[Pair] | None:
        """The next pairs, at least one, of a first page, if memory and the block cache have it."""
        # HOT: copy of engine.read.scan_steps.ScanSteps._page_rows; 40 ns, 2026-11-23
        pages, left = self._pages, self.left
        if not pages or left == 0 or self._ahead.empty:
            return None
        count = pages[0] if left is None or left > FIRST_PAGES[-1] else left
        self._check_owner()
        try:
            found = first_page(self._point, self._ahead, count, self.reverse, False)
        except BaseException:
            self._refuse()
            raise
        return None if found is None else self._go_on(found)

    async def _first_page(self, whole: bool) -> list[tuple[bytes, Any]] | None:
        """As `_first_page_nowait`, if they are on this machine; with ``whole`` as `first_page` has it."""
        while count := self._page_rows:
            self._check_owner()
            try:
                found = await first_page_yielding(
                    self._point, self._ahead, count, self.reverse, whole, self._yield_budget
                )
            except BaseException:
                self._refuse()
                raise
            self._check_owner()
            if self._refusal is not None:
                raise InvalidError(self._refusal)
            if found is None:
                self._pages = ()
            elif pairs := self._go_on(found):
                return pairs
        return None

    @property
    def _page_rows(self) -> int:
        """How many rows the next of the first pages is to have; 0 if there is none."""
        pages, left = self._pages, self.left
        if not pages or left == 0 or self._ahead.empty:
            return 0
        return pages[0] if left is None or left > FIRST_PAGES[-1] else left

    def _go_on(self, found: FirstPage) -> list[tuple[bytes, Any]] | None:
        """The rows of a page; go on behind them."""
        pages, left, span = self._pages, self.left, self._ahead
        pairs, last_key = found
        if left is not None:
            self.left = left = left - len(pairs)
        if last_key is None or left == 0:
            self._all_fetched = True
            self._pages = ()
            self._pin = None
        else:
            self._ahead = KeyRange(span.start, last_key) if self.reverse else KeyRange(last_key + b"\0", span.end)
            self._pages = pages[1:] or self._more_pages()
        return pairs or None

    def _more_pages(self) -> tuple[int, ...]:
        """Those after `FIRST_PAGES`."""
        start, end = self._ahead
        stored = any(run.within(start, end) for run in self._point.view.levels)
        return () if stored else (PAGE_IN_MEMORY,)

    async def next_pairs(self) -> Iterator[Pair] | None:
        """The next pairs, at least one; ``None`` at the end."""
        return await self._alone(self._pairs_step)

    async def _pairs_step(self) -> Iterator[Pair] | None:
        found = await self._first_page(False)
        if found is not None:
            return iter(found)
        chunk = await self._chunk(CHUNK_ROWS)
        return None if chunk is None else pairs_of(chunk, self.reverse)

    async def next_rows(self) -> Iterator[Row] | None:
        """The next rows, at least one; ``None`` at the end."""
        return await self._alone(self._rows_step)

    async def _rows_step(self) -> Iterator[Row] | None:
        found = await self._first_page(True)
        if found is not None:
            return rows_with(found)
        chunk = await self._chunk(CHUNK_ROWS)
        return None if chunk is None else rows_of(chunk, self.reverse)

    async def next_columns(self, count: int) -> Columns | None:
        """The next ``count`` rows or fewer, ascending by key; ``None`` at the end."""
        return await self._alone(partial(self._chunk, count))

    def columns_nowait(self, count: int) -> Columns | None:
        """As `next_columns`, if that takes no waiting and no other task's turn comes first. Never suspends."""
        if self._rows is None or self._rest is not None or self.left is not None or self._busy:
            return None
        if self._refusal is not None or self._all_fetched or self._yield_budget.exhausted():
            return None
        self._check_owner()
        try:
            batch = self._rows.next_nowait()
        except BaseException:
            self._refuse()
            raise
        if batch is None:
            return None
        batch, self._rest = self._split(batch, count)
        return batch

    async def _alone(self, step: Callable[[], Awaitable[T]]) -> T:
        """``step``, unless another is under way or the scan is over; after a turn for others if it is their time."""
        if self._busy:
            raise InvalidError("another task is waiting for this scan's next row")
        self._busy = True
        try:
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
            if self._refusal is not None:
                raise InvalidError(self._refusal)
            return await step()
        finally:
            self._busy = False
            if self._refusal is not None:
                await self._finish()

    async def _chunk(self, count: int) -> Columns | None:
        if self._rest is None and not self._all_fetched:
            self._rest = await self._fetch()
        if self._rest is None:
            return None
        batch, self._rest = self._split(self._rest, count)
        return batch

    def _split(self, batch: Columns, count: int) -> tuple[Columns, Columns | None]:
        """The ``count`` rows of ``batch`` that come first in scan order, and what is left of it."""
        rows = len(batch)
        if rows <= count:
            return batch, None
        if self.reverse:
            return batch.slice(rows - count, rows), batch.slice(0, rows - count)
        return batch.slice(0, count), batch.slice(count, rows)

    async def _fetch(self) -> Columns | None:
        self._pages = ()
        self._check_owner()
        try:
            batch = None if self.left == 0 else await self._next_batch()
        except BaseException:
            self._refusal = self._refusal or INTERRUPTED
            raise
        self._check_owner()
        if self._refusal is not None:
            raise InvalidError(self._refusal)
        if batch is not None and self.left is not None:
            batch, _ = self._split(batch, self.left)
            self.left -= len(batch)
        if batch is None or self.left == 0:
            self._all_fetched = True
            await self._finish()
        return batch

    def _check_owner(self) -> None:
        """Raise, for good, if the owner can no longer answer."""
        try:
            self._check()
        except BaseException:
            self._refuse()
            raise

    def _refuse(self) -> None:
        """Refuse whatever else is asked for."""
        self._refusal = self._refusal or INTERRUPTED
        self._pin = None
        if self._rows is not None:
            self._rows.unpin()

    async def _next_batch(self) -> Columns | None:
        if self._rows is None:
            self._rows = RetryingRows(
                self._point, self._ahead, self._same_point, reverse=self.reverse, prefetch=self.prefetch
            )
            self._pin = None  # the rows have their own
        return await self._rows.next()

    async def _finish(self) -> None:
        self._pin = None
        if self._rows is not None:
            await self._rows.aclose()
