"""`Scan`: the rows of a key range as of one read point, row by row or as Arrow batches.

A scan pins its view when it is made and gives the pin up when it is exhausted, closed, failed or garbage. It is
iterated once, by one task at a time. An interrupted step (failed or cancelled) ends it with an error, never with a
silently shorter answer. `engine.read.scan_steps` says where rows come from, and in which states a scan may be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, runtime_checkable

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.results import batch_of
from slate_async.engine.read.retrying_rows import SamePoint, no_retry
from slate_async.engine.read.scan_steps import Items, Pair, ScanSteps
from slate_async.engine.read.without_prefix import Cut, batches_without, pairs_without, rows_without
from slate_async.errors import InvalidError
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.types import Row

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

PREFETCH_ROWS = 4096
"""A caller that asks for batches of so many rows wants them soon: see
`slate_async.storage.sst.scan.BlockScan.prefetch`."""

BATCH_ROWS = 8192
BATCH_BYTES = 2 << 20
"""`Scan.batches` joins small batches up to this many rows or bytes; a larger one stays alone."""
LARGE_ROWS = 2048
"""Nothing is joined to so many rows: they were copied once already when runs were merged."""

_NO_PAIRS: Iterator[Pair] = iter(())


class Scan:
    """``async for key, value in scan``; see also `rows` and `batches`. An asynchronous context manager too."""

    __slots__ = ("_cut", "_steps")

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
        self._cut = 0
        self._steps = ScanSteps(point, span, yield_budget, check, same_point, reverse, limit)

    def _without_prefix(self, nbytes: int) -> Self:
        """The same scan, whose keys are given from byte ``nbytes`` on."""
        self._cut = nbytes
        return self

    # ways to iterate

    def __aiter__(self) -> AsyncIterator[Pair]:
        """Pairs of key and value."""
        pairs = self._pairs()
        return Cut(pairs, pairs_without(self._cut)) if self._cut else pairs

    def _pairs(self) -> AsyncIterator[Pair]:
        steps = self._steps
        if steps.begun:
            return _Chunked(steps.next_pairs, steps.begin)  # which refuses
        pairs = _Pairs(steps)
        steps.begin(pairs)
        return pairs

    def rows(self) -> AsyncIterator[Row]:
        """`Row` objects, with sequence number and times."""
        rows = _Chunked(self._steps.next_rows, self._steps.begin)
        return Cut(rows, rows_without(self._cut)) if self._cut else rows

    def batches(self, max_rows: int = BATCH_ROWS, *, times: bool = False) -> AsyncIterator[RecordBatch]:
        """Record batches (key: binary, value: binary, seq: uint64) of at most ``max_rows`` rows, in scan order.

        ``times`` adds create_time and expire_time (null = never), both timestamp[ms, UTC]. Raises `InvalidError` unless
        ``max_rows`` is a positive number.
        """
        if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
            raise InvalidError(f"max_rows is a positive number of rows, not {max_rows!r}")
        steps = self._steps
        steps.prefetch = max_rows >= PREFETCH_ROWS and (steps.left is None or steps.left >= PREFETCH_ROWS)
        batches = _Batches(steps, max_rows, times)
        return Cut(batches, batches_without(self._cut)) if self._cut else batches

    # end

    async def aclose(self) -> None:
        """Stop: nothing more is read or given, and the pin is given up. Idempotent."""
        await self._steps.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@runtime_checkable
class Chunks(Protocol[T_co]):
    """What iterates a scan by rows, as one that asks for the rows that are made together."""

    async def more(self) -> Iterator[T_co] | None:
        """The next items, at least one, ``None`` after the last one. A caller that takes them must not iterate in
        another way."""


class _Pairs(AsyncIterator[Pair]):
    """Pairs, the first ones without waiting; one that was made already costs no suspension."""

    __slots__ = ("__weakref__", "_ready", "_steps")

    def __init__(self, steps: ScanSteps) -> None:
        self._steps = steps
        self._ready = _NO_PAIRS

    async def __anext__(self) -> Pair:
        for pair in self._ready:
            return pair
        self._ready = _NO_PAIRS  # ``zip`` keeps what it gave last, and that may be large
        steps = self._steps
        ready = None if steps.over else steps.pairs_nowait() or await steps.next_pairs()
        if ready is None:
            raise StopAsyncIteration
        self._ready = ready
        return next(ready)

    async def more(self) -> Iterator[Pair] | None:
        """See `Chunks`."""
        steps = self._steps
        ready = None if steps.over else steps.pairs_nowait() or await steps.next_pairs()
        self._ready = ready or _NO_PAIRS
        return ready

    def drop(self) -> bool:
        """See `Items`."""
        ready, self._ready = self._ready, _NO_PAIRS
        return next(ready, None) is not None


class _Chunked(AsyncIterator[T], Generic[T]):
    """Items made chunk by chunk; one that takes no waiting costs no suspension."""

    __slots__ = ("__weakref__", "_begin", "_more", "_ready")

    def __init__(self, more: Callable[[], Awaitable[Iterator[T] | None]], begin: Callable[[Items], None]) -> None:
        """``more`` gives the items of the next chunk, ``None`` after the last one; ``begin`` is called once before."""
        self._more = more
        self._begin: Callable[[Items], None] | None = begin
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
        """See `Items`."""
        ready, self._ready = self._ready, iter(())
        return next(ready, None) is not None


class _Batches(AsyncIterator[RecordBatch]):
    """Record batches made from as many rows as need no waiting, up to a bound. What a cancelled step has gathered
    belongs to the next one."""

    __slots__ = ("__weakref__", "_begun", "_held", "_max_rows", "_parts", "_steps", "_times")

    def __init__(self, steps: ScanSteps, max_rows: int, times: bool) -> None:
        self._steps = steps
        self._held: Columns | None = None
        self._parts: list[Columns] = []
        self._max_rows = max_rows
        self._times = times
        self._begun = False

    async def __anext__(self) -> RecordBatch:
        steps = self._steps
        if not self._begun:
            steps.begin(self)
            self._begun = True
        parts = self._parts
        rows, nbytes = sum(map(len, parts)), sum(part.nbytes for part in parts)
        while rows < self._max_rows:
            wanted = self._max_rows - rows
            part = self._held or steps.columns_nowait(wanted) or await steps.next_columns(wanted)
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
        batch = batch_of(parts, steps.reverse, self._times)
        self._parts = []
        return batch

    def drop(self) -> bool:
        """See `Items`."""
        dropped = bool(self._parts) or self._held is not None
        self._parts, self._held = [], None
        return dropped
