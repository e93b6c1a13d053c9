"""`Scan`: the rows of a key range as of one moment, row by row or as Arrow batches.

A scan pins its view when it is made and gives the pin up when it is exhausted, closed, failed or garbage. It is
iterated once, by one task at a time. An interrupted step (failed or cancelled) ends it with an error, never with a
silently shorter answer.

The first rows come without waiting, if they can (`engine.read.short`), all where only memtables have any;
whoever reads on gets streams.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable
from weakref import ref

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.results import batch_of, pairs_of, rows_of, rows_with
from slate_async.engine.read.retrying_rows import RetryingRows, SamePoint, no_retry
from slate_async.engine.read.short import FirstRows, first_rows, first_rows_yielding
from slate_async.engine.read.view import Pin
from slate_async.errors import InvalidError
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.types import Row

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Pair: TypeAlias = tuple[bytes, bytes]

CHUNK_ROWS = 1024
"""Rows turned into Python objects at a time; between two chunks the event loop may get a turn."""

LOOKS: tuple[int, ...] = (32, 64, 128)
"""A scan takes its first rows without waiting, so many at most each time; one of no more than the last at once."""

LOOK_IN_MEMORY = 1024
"""Where no SST holds keys of the range, all rows are taken so many at a time: in columns they would have to be made of
Python objects, and these of the columns again."""

INTERRUPTED = "the scan was interrupted; make another one"

PREFETCH_ROWS = 4096
"""Whoever asks for batches of so many rows wants them soon: see `slate_async.storage.sst.scan.BlockScan.prefetch`."""

BATCH_ROWS = 8192
BATCH_BYTES = 2 << 20
"""`Scan.batches` joins small batches up to this many rows or bytes; a larger one stays alone."""
LARGE_ROWS = 2048
"""Nothing is joined to so many rows: they were copied once already when runs were merged."""

_NO_PAIRS: Iterator[Pair] = iter(())


class Scan:
    """``async for key, value in scan``; see also `rows` and `batches`. An asynchronous context manager too."""

    __slots__ = (
        "_ahead",
        "_begun",
        "_busy",
        "_check",
        "_exhausted",
        "_items",
        "_left",
        "_looks",
        "_pin",
        "_point",
        "_prefetch",
        "_refusal",
        "_rest",
        "_reverse",
        "_rows",
        "_same_point",
        "_yield_budget",
    )

    def __init__(
        self,
        point: ReadPoint,
        span: KeyRange,
        yield_budget: YieldBudget,
        check: Callable[[], None],
        same_point: SamePoint = no_retry,
        reverse: bool = False,
        limit: int | None = None,
    ) -> None:
        """``check`` raises when the owner can no longer answer; it is asked before and after every wait.

        Raises `InvalidError` for a ``limit`` that is not a number of rows.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidError(f"limit is None or a number of rows, not {limit!r}")
        self._point = point
        self._pin: Pin | None = point.view.pin()
        self._ahead = span
        self._yield_budget = yield_budget
        self._check = check
        self._same_point = same_point
        self._reverse = reverse
        self._left = limit
        self._looks = LOOKS
        self._rows: RetryingRows | None = None
        self._rest: Columns | None = None
        self._begun = False
        self._items: Callable[[], _Items | None] = _no_items
        self._prefetch = False
        self._busy = False
        self._exhausted = False
        self._refusal: str | None = None

    # ways to iterate

    def __aiter__(self) -> AsyncIterator[Pair]:
        """Pairs of key and value."""
        if self._begun:
            return _Steps(self._next_pairs, self._begin)  # which refuses
        self._begun = True
        pairs = _Pairs(self)
        self._items = ref(pairs)
        return pairs

    def rows(self) -> AsyncIterator[Row]:
        """`Row` objects, with sequence number and times."""
        return _Steps(self._next_rows, self._begin)

    def batches(self, max_rows: int = BATCH_ROWS, *, times: bool = False) -> AsyncIterator[RecordBatch]:
        """Record batches (key: binary, value: binary, seq: uint64) of at most ``max_rows`` rows, in scan order.

        ``times`` adds create_time and expire_time (null = never), both timestamp[ms, UTC]. Raises `InvalidError` unless
        ``max_rows`` is a positive number.
        """
        if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
            raise InvalidError(f"max_rows is a positive number of rows, not {max_rows!r}")
        self._prefetch = max_rows >= PREFETCH_ROWS and (self._left is None or self._left >= PREFETCH_ROWS)
        return _Batches(self, max_rows, times)

    # end

    async def aclose(self) -> None:
        """Stop: nothing more is read or given, and the pin is given up. Idempotent."""
        items = self._items()
        dropped = items is not None and items.drop()
        if self._refusal is None and (dropped or not self._over):
            self._refusal = "the scan is closed"
        self._rest = None
        self._pin = None
        if not self._busy:  # a step under way closes the stream itself when it comes back
            await self._finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # steps

    @property
    def _over(self) -> bool:
        """Whether every row was given to who makes items of them."""
        return self._exhausted and self._rest is None and self._refusal is None

    def _begin(self, items: _Items) -> None:
        if self._begun:
            raise InvalidError("a scan is iterated once; make another one")
        self._begun = True
        self._items = ref(items)

    def _pairs_now(self) -> Iterator[Pair] | None:
        """The next pairs, at least one, if that takes no waiting and nobody else's turn comes first."""
        if not self._looks or self._busy or self._refusal is not None or self._yield_budget.exhausted():
            return None
        found = self._first_rows()
        return None if found is None else iter(found)

    def _first_rows(self) -> list[Pair] | None:
        """The next pairs, at least one, if memory and the block cache show them at a look; of a scan's first ones."""
        # HOT: copy of engine.read.scan.Scan._wanted_rows; 40 ns, 2026-11-23
        looks, left = self._looks, self._left
        if not looks or left == 0 or self._ahead.empty:
            return None
        count = looks[0] if left is None or left > LOOKS[-1] else left
        self._ask()
        try:
            found = first_rows(self._point, self._ahead, count, self._reverse, False)
        except BaseException:
            self._give_up()
            raise
        return None if found is None else self._met(found)

    async def _first_rows_in_turns(self, whole: bool) -> list[tuple[bytes, Any]] | None:
        """As `_first_rows`, if they are on this machine; with ``whole`` as `first_rows` has it."""
        while count := self._wanted_rows:
            self._ask()
            try:
                found = await first_rows_yielding(
                    self._point, self._ahead, count, self._reverse, whole, self._yield_budget
                )
            except BaseException:
                self._give_up()
                raise
            self._ask()
            if self._refusal is not None:
                raise InvalidError(self._refusal)
            if found is None:
                self._looks = ()
            elif pairs := self._met(found):
                return pairs
        return None

    @property
    def _wanted_rows(self) -> int:
        """How many rows the next look is for; 0 if there is none."""
        looks, left = self._looks, self._left
        if not looks or left == 0 or self._ahead.empty:
            return 0
        return looks[0] if left is None or left > LOOKS[-1] else left

    def _met(self, found: FirstRows) -> list[tuple[bytes, Any]] | None:
        """The rows of a look; go on behind them."""
        looks, left, span = self._looks, self._left, self._ahead
        pairs, last_key = found
        if left is not None:
            self._left = left = left - len(pairs)
        if last_key is None or left == 0:
            self._exhausted = True
            self._looks = ()
            self._pin = None
        else:
            self._ahead = KeyRange(span.start, last_key) if self._reverse else KeyRange(last_key + b"\0", span.end)
            self._looks = looks[1:] or self._more_looks()
        return pairs or None

    def _more_looks(self) -> tuple[int, ...]:
        """After the first ones."""
        start, end = self._ahead
        stored = any(run.within(start, end) for run in self._point.view.levels)
        return () if stored else (LOOK_IN_MEMORY,)

    async def _next_pairs(self) -> Iterator[Pair] | None:
        return await self._alone(self._pairs)

    async def _pairs(self) -> Iterator[Pair] | None:
        found = await self._first_rows_in_turns(False)
        if found is not None:
            return iter(found)
        chunk = await self._chunk(CHUNK_ROWS)
        return None if chunk is None else pairs_of(chunk, self._reverse)

    async def _next_rows(self) -> Iterator[Row] | None:
        return await self._alone(self._whole_rows)

    async def _whole_rows(self) -> Iterator[Row] | None:
        found = await self._first_rows_in_turns(True)
        if found is not None:
            return rows_with(found)
        chunk = await self._chunk(CHUNK_ROWS)
        return None if chunk is None else rows_of(chunk, self._reverse)

    async def _take(self, count: int) -> Columns | None:
        """The next ``count`` rows or fewer, ascending by key; ``None`` at the end."""
        return await self._alone(partial(self._chunk, count))

    def _next_nowait(self, count: int) -> Columns | None:
        """As `_take`, if that takes no waiting and nobody else's turn comes first. Never suspends."""
        if self._rows is None or self._rest is not None or self._left is not None or self._busy:
            return None
        if self._refusal is not None or self._exhausted or self._yield_budget.exhausted():
            return None
        self._ask()
        try:
            batch = self._rows.next_nowait()
        except BaseException:
            self._give_up()
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
        if self._rest is None and not self._exhausted:
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
        if self._reverse:
            return batch.slice(rows - count, rows), batch.slice(0, rows - count)
        return batch.slice(0, count), batch.slice(count, rows)

    async def _fetch(self) -> Columns | None:
        self._looks = ()
        self._ask()
        try:
            batch = None if self._left == 0 else await self._next()
        except BaseException:
            self._refusal = self._refusal or INTERRUPTED
            raise
        self._ask()
        if self._refusal is not None:
            raise InvalidError(self._refusal)
        if batch is not None and self._left is not None:
            batch, _ = self._split(batch, self._left)
            self._left -= len(batch)
        if batch is None or self._left == 0:
            self._exhausted = True
            await self._finish()
        return batch

    def _ask(self) -> None:
        """Raise, for good, if the owner can no longer answer."""
        try:
            self._check()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Refuse whatever else is asked for."""
        self._refusal = self._refusal or INTERRUPTED
        self._pin = None
        if self._rows is not None:
            self._rows.unpin()

    async def _next(self) -> Columns | None:
        if self._rows is None:
            self._rows = RetryingRows(
                self._point, self._ahead, self._same_point, reverse=self._reverse, prefetch=self._prefetch
            )
            self._pin = None  # the rows have their own
        return await self._rows.next()

    async def _finish(self) -> None:
        self._pin = None
        if self._rows is not None:
            await self._rows.aclose()


@runtime_checkable
class Chunks(Protocol[T_co]):
    """What iterates a scan by rows, as one that asks for the rows that are made together."""

    async def more(self) -> Iterator[T_co] | None:
        """The next items, at least one, ``None`` after the last one. Who takes them iterates by nothing else."""


class _Items(Protocol):
    """What iterates a scan, and holds rows that it has not given yet."""

    def drop(self) -> bool:
        """Give none of them any more. Whether there were any."""


def _no_items() -> None:
    """Nobody iterates it yet."""


class _Pairs(AsyncIterator[Pair]):
    """Pairs, the first ones without waiting; one that was made already costs no suspension."""

    __slots__ = ("__weakref__", "_ready", "_scan")

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._ready = _NO_PAIRS

    async def __anext__(self) -> Pair:
        for pair in self._ready:
            return pair
        scan = self._scan
        ready = None if scan._over else scan._pairs_now() or await scan._next_pairs()
        if ready is None:
            raise StopAsyncIteration
        self._ready = ready
        return next(ready)

    async def more(self) -> Iterator[Pair] | None:
        """See `Chunks`."""
        scan = self._scan
        ready = None if scan._over else scan._pairs_now() or await scan._next_pairs()
        self._ready = ready or _NO_PAIRS
        return ready

    def drop(self) -> bool:
        """See `_Items`."""
        ready, self._ready = self._ready, _NO_PAIRS
        return next(ready, None) is not None


class _Steps(AsyncIterator[T], Generic[T]):
    """Items made chunk by chunk; one that takes no waiting costs no suspension."""

    __slots__ = ("__weakref__", "_begin", "_more", "_ready")

    def __init__(self, more: Callable[[], Awaitable[Iterator[T] | None]], begin: Callable[[_Items], None]) -> None:
        """``more`` gives the items of the next chunk, ``None`` after the last one; ``begin`` is called once before."""
        self._more = more
        self._begin: Callable[[_Items], None] | None = begin
        self._ready: Iterator[T] = iter(())

    async def __anext__(self) -> T:
        for item in self._ready:
            return item
        ready = await self.more()
        if ready is None:
            raise StopAsyncIteration
        return next(ready)

    async def more(self) -> Iterator[T] | None:
        """See `Chunks`."""
        if self._begin is not None:
            self._begin(self)
            self._begin = None
        ready = await self._more()
        if ready is not None:
            self._ready = ready
        return ready

    def drop(self) -> bool:
        """See `_Items`."""
        ready, self._ready = self._ready, iter(())
        return next(ready, None) is not None


class _Batches(AsyncIterator[RecordBatch]):
    """Record batches made from as many rows as need no waiting, up to a bound. What a cancelled step has gathered
    belongs to the next one."""

    __slots__ = ("__weakref__", "_begun", "_held", "_max_rows", "_parts", "_scan", "_times")

    def __init__(self, scan: Scan, max_rows: int, times: bool) -> None:
        self._scan = scan
        self._held: Columns | None = None
        self._parts: list[Columns] = []
        self._max_rows = max_rows
        self._times = times
        self._begun = False

    async def __anext__(self) -> RecordBatch:
        scan = self._scan
        if not self._begun:
            scan._begin(self)
            self._begun = True
        parts = self._parts
        rows, nbytes = sum(map(len, parts)), sum(part.nbytes for part in parts)
        while rows < self._max_rows:
            wanted = self._max_rows - rows
            part = self._held or scan._next_nowait(wanted) or await scan._take(wanted)
            self._held = None
            if part is None:
                break
            if parts and nbytes + part.nbytes > BATCH_BYTES:
                self._held = part
                break
            parts.append(part)
            rows += len(part)
            nbytes += part.nbytes
            if len(part) >= LARGE_ROWS:
                break
        if not parts:
            raise StopAsyncIteration
        batch = batch_of(parts, scan._reverse, self._times)
        self._parts = []
        return batch

    def drop(self) -> bool:
        """See `_Items`."""
        dropped = bool(self._parts) or self._held is not None
        self._parts, self._held = [], None
        return dropped
