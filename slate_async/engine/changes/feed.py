"""`ChangeFeed`: the changes of a database in the order of their sequence numbers, row by row or as Arrow batches.

A step hands out rows that were read already, or waits for more. One that is cancelled, or fails because a store did not
answer, loses nothing: the next one goes on. What a step gave counts as consumed when a later one needs to read on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from operator import length_hint
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from slate_async.arguments import Duration
from slate_async.codec.columns import Columns
from slate_async.engine.changes.change import Change, changes_of, record_batch
from slate_async.engine.changes.prefetch import FeedContext, Prefetcher
from slate_async.engine.changes.subscription import FeedPosition, Subscription
from slate_async.engine.checkpoint.manage import lifetime_ms
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.errors import ClosedError, InvalidError
from slate_async.runtime.yield_budget import YieldBudget

T = TypeVar("T")
BATCH_ROWS = 65_536
ROWS_PER_STEP = 1_024
"""Rows turned into `Change` objects at a time; between two steps the event loop may get a turn."""
INLINE_ROWS = 4_096


class ChangeFeed:
    """``async for change in feed``; `batches` gives the same as Arrow record batches. Made by ``changes()``.

    Begins when it is entered (``async with``), or first asked for something. May be left and iterated again, in the
    same way: it goes on with the next row. One task at a time. `aclose` it, or use ``async with``: else what its
    subscription retains stays until the feed is garbage, or the subscription expires.

    It raises `ClosedError` and `FencedError` of its database, and `CorruptionError`. It raises `InvalidError` when
    the rows it was to deliver, or its subscription, no longer exist. After `UnavailableError` the caller may ask
    again."""

    def __init__(
        self,
        begin: Callable[[], Coroutine[Any, Any, Prefetcher]],
        context: FeedContext,
        closed: Callable[[ChangeFeed], None],
    ) -> None:
        """``begin`` opens the source; ``closed`` is called when the feed is closed."""
        self._begin_once = begin
        self._context = context
        self._on_closed = closed
        self._yield_budget = YieldBudget(context.clock)
        self._prefetcher: Prefetcher | None = None
        self._beginning: asyncio.Task[Prefetcher] | None = None
        self._way: Literal["rows", "batches"] | None = None
        self._rest: Columns | None = None  # of the batch that is handed out row by row
        self._chunk: list[Change] = []
        self._ready: Iterator[Change] = iter(self._chunk)
        self._before = 0
        self._busy = False
        self._closed = False

    # ---- what it is

    @property
    def seq(self) -> int:
        """All rows up to this sequence number were handed out; at first, the one it begins after. Another feed goes on
        from here. Rows of one ingest share a sequence number: until the last of them was handed out, it counts for
        none."""
        given = len(self._chunk) - length_hint(self._ready)
        if given == len(self._chunk) and self._rest is None:
            return 0 if self._prefetcher is None else self._prefetcher.done
        if not given:
            return self._before
        following = self._chunk[given].seq if self._rest is None or given < len(self._chunk) else self._rest.seqs[0]
        return min(self._chunk[given - 1].seq, int(following) - 1)

    @property
    def snapshot_seq(self) -> int:
        """Rows up to this sequence number are a snapshot: the rows alive at that number, without deletes and
        overwritten versions. 0: the feed delivers every version of every row. Known once the feed has begun."""
        return 0 if self._prefetcher is None else self._prefetcher.source.snapshot_seq

    @property
    def acknowledged(self) -> int:
        """Rows up to this sequence number are not retained any more; 0 before the feed has begun, and if it retains
        nothing."""
        return 0 if self._subscription is None else self._subscription.acknowledged

    @property
    def position(self) -> FeedPosition:
        """Where `seq` is: with it another process reads a range of what this feed retains (`Admin.read_changes`).

        Raises `InvalidError` for a feed that has not begun, or retains nothing."""
        if self._subscription is None:
            raise InvalidError("this feed has no position: it has not begun, or it reads without a subscription")
        return self._subscription.position_of(self.seq)

    @property
    def _subscription(self) -> Subscription | None:
        return None if self._prefetcher is None else self._prefetcher.source.subscription

    # ---- ways to iterate

    def __aiter__(self) -> AsyncIterator[Change]:
        """Rows as `Change`."""
        self._go("rows")
        return Rows(self)

    def batches(self, max_rows: int = BATCH_ROWS) -> AsyncIterator[RecordBatch]:
        """Record batches (op, key, value, seq, create_time, expire_time) of about ``max_rows`` rows or fewer: what is
        there is not kept back to fill one up.

        A batch never ends inside a `WriteBatch`; so it has more rows where more were written in one millisecond. Raises
        `InvalidError` unless ``max_rows`` is a positive number."""
        if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
            raise InvalidError(f"max_rows is a positive number of rows, not {max_rows!r}")
        self._go("batches")
        return _Steps(partial(self._next_batch, max_rows))

    def _go(self, way: Literal["rows", "batches"]) -> None:
        if self._way not in (None, way):
            raise InvalidError("a change feed is iterated by rows or by batches, not both; open another one")
        self._way = way

    async def acknowledge(self, seq: int, *, now: bool = False) -> None:
        """Rows up to ``seq`` are done with: they need not be retained, and a feed opened later with this subscription
        begins behind them. Written down within about an eighth of ``checkpoint_lifetime_ms``, and when the feed is
        closed; with ``now``, before this returns.

        Raises `InvalidError` for a feed whose subscription has no name, and for rows it has not given."""
        subscription = await self._named_subscription()
        if (
            isinstance(seq, bool)
            or not isinstance(seq, int)
            or not 0 <= seq <= max(self.seq, subscription.acknowledged)
        ):
            raise InvalidError(f"sequence number {seq!r} was not given by this feed, which is at {self.seq}")
        subscription.acknowledge(seq)
        if now:
            await subscription.commit()

    async def renew(self, lifetime: Duration | None) -> None:
        """Retain what is not acknowledged for ``lifetime`` (seconds or a timedelta; ``None``: forever) after the last
        commit, in place of the ``subscription_lifetime`` this feed was opened with. Written down before this returns.

        Raises `InvalidError` for a feed whose subscription has no name or no longer exists; `UnavailableError`."""
        life_ms = lifetime_ms(lifetime)
        await (await self._named_subscription()).renew(life_ms)

    async def _named_subscription(self) -> Subscription:
        subscription = (await self._begin()).source.subscription
        if subscription is None or subscription.name is None:
            raise InvalidError(
                "this feed has no subscription with a name, so it acknowledges and renews nothing; open it with"
                " subscription="
            )
        return subscription

    # ---- life

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, and release what is retained: a subscription with a name stays, where it was acknowledged. Idempotent;
        a caller that is cancelled stops waiting."""
        self._end()
        if self._beginning is not None and self._prefetcher is None:
            await asyncio.wait([self._beginning])
            self._prefetcher = _begun(self._beginning)
        if self._prefetcher is not None:
            await self._prefetcher.aclose()
        if self._subscription is not None:
            await self._subscription.finish()
        self._on_closed(self)

    def _end(self) -> None:
        """All that happens whether or not somebody waits for the rest."""
        self._closed = True
        self._rest = None
        if self._prefetcher is not None:
            _end(self._prefetcher)
        elif self._beginning is not None:
            self._beginning.add_done_callback(_end_begun)

    def __del__(self) -> None:
        if self._closed:
            return
        if self._subscription is not None:
            self._subscription.abandon()
        elif self._beginning is not None and not (loop := self._beginning.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._beginning.add_done_callback, _end_begun)

    # ---- steps, for the iterators

    async def _begin(self) -> Prefetcher:
        """Begin, once; several may wait for it. A beginning that failed may be tried again."""
        self._ask()
        while self._prefetcher is None:
            if self._beginning is None:
                self._beginning = self._context.supervisor.spawn("open a feed", self._begin_once(), critical=False)
            task = self._beginning
            await asyncio.wait([task])
            self._ask()
            if self._beginning is task:
                self._beginning = None
                self._prefetcher = task.result()
        return self._prefetcher

    def _ask(self) -> None:
        if self._closed:
            raise ClosedError("the change feed is closed; open another one with changes()")
        self._context.guard.check()

    async def _alone(self, step: Callable[[], Awaitable[T]]) -> T:
        """``step``, unless another is under way; after a turn for others if it is their time."""
        if self._busy:
            raise InvalidError("another task is waiting for this feed's next change")
        self._busy = True
        try:
            self._ask()
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
            return await step()
        finally:
            self._busy = False

    async def _next_batch(self, max_rows: int) -> RecordBatch | None:
        return await self._alone(partial(self._batch, max_rows))

    async def _batch(self, max_rows: int) -> RecordBatch | None:
        prefetcher = await self._begin()
        found = await prefetcher.next(max_rows)
        if found is None:
            return None
        convert = partial(record_batch, found.rows)
        batch = convert() if len(found.rows) <= INLINE_ROWS else await self._context.offload.run(convert)
        prefetcher.taken()
        return batch

    async def _next_rows(self) -> Iterator[Change] | None:
        return await self._alone(self._more_rows)

    async def _more_rows(self) -> Iterator[Change] | None:
        if length_hint(self._ready):
            return self._ready
        if self._rest is None:
            prefetcher = await self._begin()
            found = await prefetcher.next(BATCH_ROWS)
            if found is None:
                return None
            self._before = self.seq
            prefetcher.taken()
            self._rest = found.rows
        else:
            self._before = self.seq
        rows, rest = self._rest.slice(0, ROWS_PER_STEP), None
        if len(self._rest) > ROWS_PER_STEP:
            rest = self._rest.slice(ROWS_PER_STEP, len(self._rest))
        self._rest = rest
        self._chunk = changes_of(rows)
        self._ready = iter(self._chunk)
        return self._ready


def _begun(beginning: asyncio.Task[Prefetcher]) -> Prefetcher | None:
    """What a task that is done has begun; ``None`` if it failed."""
    return None if beginning.cancelled() or beginning.exception() is not None else beginning.result()


def _end_begun(beginning: asyncio.Task[Prefetcher]) -> None:
    """Nobody wants what was begun any more: what it made must be given back."""
    if (prefetcher := _begun(beginning)) is not None:
        _end(prefetcher)


def _end(prefetcher: Prefetcher) -> None:
    """What is read first, for it must not miss what the subscription retains."""
    prefetcher.end()
    if prefetcher.source.subscription is not None:
        prefetcher.source.subscription.end()


class Rows(AsyncIterator[Change]):
    """Rows; one that was made already costs no suspension. Another iterator of the feed goes on where this one is."""

    __slots__ = ("_feed", "_ready")

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._ready: Iterator[Change] = iter(())

    async def __anext__(self) -> Change:
        for change in self._ready:
            return change
        ready = await self.more()
        if ready is None:
            raise StopAsyncIteration
        self._ready = ready
        return next(ready)

    async def more(self) -> Iterator[Change] | None:
        """The next rows, made together, ``None`` after the last one: each counts as handed out when it is taken."""
        return await self._feed._next_rows()


class _Steps(AsyncIterator[T], Generic[T]):
    """What ``step`` gives, until it gives ``None``."""

    __slots__ = ("_step",)

    def __init__(self, step: Callable[[], Awaitable[T | None]]) -> None:
        self._step = step

    async def __anext__(self) -> T:
        found = await self._step()
        if found is None:
            raise StopAsyncIteration
        return found
