"""`Listener`: all that happens to a collection from a time on, delta by delta.

A listener begins with the merged batches of one version and reads on in the pending area, at times as they were
written. It moves to another version only when it needs nothing of that any more, because what is compacted is not cut
(C2). Until then its pin makes the hold keep what is pending.

What a writer of the same process has just had acknowledged is handed over: it is given without a request. That is a
hint, and what was not handed over is found in the store.

Invariants:
* deltas are contiguous, and each has all updates at times beyond its lower and not beyond its upper
* a wait that is cancelled changes nothing: the next one gives the same delta
* what was read of the pending area of a ``compare`` collection is given only after the hold was found to stand (C14);
  what was handed over is acknowledged, so it is in for ever

Rules C2, C3, C4, C14 and C15 of collections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import reading
from slate_async.collections.core.area import Area
from slate_async.collections.core.coverage import Extension
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import Time
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch, follower
from slate_async.collections.reader.pieces import Piece, PiecesReader, merged_pieces, pending_pieces
from slate_async.collections.reader.pins import Pins
from slate_async.collections.reader.renewal import KeptHold
from slate_async.collections.reader.snapshot import Snapshot
from slate_async.collections.stats import times_between
from slate_async.errors import InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError


@dataclass(frozen=True, slots=True)
class Delta:
    """All updates that were written at times beyond ``lower`` and not beyond ``upper``.

    updates: columns of the data, the times, and ``_diff``; sorted by data and time, one row for each. A listener that
    began at a time gives them at that time or later: where times are pairs, at the join of both. None say that nothing
    happened until ``upper``
    """

    lower: Frontier
    upper: Frontier
    updates: pa.Table


@dataclass(frozen=True, slots=True)
class ListenSource:
    """What the listeners of one handle work with.

    newest: the newest version that the handle has seen
    snapshot: the contents at a time, once they are definite
    check: raises if the handle is closed, or the collection deleted
    """

    context: ReaderContext
    hold: KeptHold
    pins: Pins
    newest: Callable[[], Area]
    snapshot: Callable[[Time], Awaitable[Snapshot]]
    check: Callable[[], None]


class Listener:
    """Made by `ReadHandle.listen` and `ReadHandle.subscribe`: ``async for delta in listener``. It ends when the
    collection is closed and all was given. What it holds is let go when it ends, is closed, or is dropped.

    A wait that is cancelled changes nothing. One task at a time waits for a delta."""

    def __init__(self, source: ListenSource, covered: Frontier, as_of: Time | None, *, whole: bool = False) -> None:
        self._source = source
        self._start = covered
        self._as_of = as_of
        self._whole = whole  # the contents at the start come first
        self._begun = False
        self._upper = self._needs = covered  # of what is read, all before _needs; what was given goes to _upper
        self._pin = source.pins.take(source.newest())
        self._walked = self._pin.area.upper  # what is known of the pending area
        self._pieces: deque[Piece] = deque()
        self._follower = follower(source.context)
        self._reader = PiecesReader(source.context, as_of)
        self._waited_for = self._looking = self._closed = False
        source.context.acknowledged.attend(self)

    @property
    def upper(self) -> Frontier:
        """The upper of the last delta; before the first one, where it begins."""
        return self._upper

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        """The next delta, as soon as there is one.

        Raises `LeaseLostError`, `ClosedError`, `CorruptionError`, `UnavailableError`; no wrong rows. After
        `UnavailableError` it may be asked again."""
        if self._waited_for:
            raise InvalidError("another task waits for the next delta of this listener; open one for each")
        self._waited_for = True
        try:
            return await self._next()
        finally:
            self._waited_for = False

    def close(self) -> None:
        """Let go what it holds. Idempotent."""
        self._closed = True
        self._pin.release()
        self._source.context.acknowledged.leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def lag_times(self) -> int:
        """How many u64 times are known to be in the collection and were not given yet."""
        return times_between(self._upper, self._walked.join(self._source.newest().upper))

    @property
    def is_open(self) -> bool:
        """Whether more may be asked of it."""
        return not self._closed

    def restartable_since(self) -> Frontier:
        """The highest since under which a listener can be started again where this one is."""
        return reading.to_restart_from(self._upper)

    def move(self, head: Area) -> None:
        """Use ``head``, if nothing of it is needed and nothing is being read under an older one."""
        if self._looking or self._closed or head.version <= self._pin.area.version:
            return
        if self._begun and reading.may_adopt(head, [self._needs]):
            self._pin.release()
            self._pin = self._source.pins.take(head)
            self._walked = self._walked.join(head.upper)

    async def _next(self) -> Delta:
        context = self._source.context
        while True:
            self._check()
            if self._upper.is_done:
                self.close()
                raise StopAsyncIteration
            noted, looked_ms = context.pokes.count, context.now_ms()
            self.move(self._source.newest())
            self._looking = True
            began_ms = context.now_ms()
            try:
                delta = await self._step()
            except ObjectNotFoundError as error:
                raise await self._source.hold.explain("it is missing", error.key) from error
            finally:
                self._looking = False
            if delta is not None:
                context.stats.seconds += (context.now_ms() - began_ms) / 1000
                return delta
            await context.pause_for_updates(noted, looked_ms)

    async def _step(self) -> Delta | None:
        if not self._begun:
            if self._whole:
                return await self._first()
            await self._begin()
        if not self._pieces:
            self._follow(self._follower.handed_over(self._walked))
        if not self._pieces:
            self._follow(await self._follower.look(self._walked))
        if not self._pieces:
            return None
        return await self._given()

    def _follow(self, found: Extension[PendingBatch]) -> None:
        self._walked = found.coverage
        self._pieces.extend(pending_pieces(found.taken, self._start))

    async def _first(self) -> Delta:
        """The snapshot, under the version that the rest begins with."""
        if self._as_of is None:
            raise InvalidError("a listener that goes on has no contents to begin with")
        async with await self._source.snapshot(self._as_of) as snapshot:
            updates = await snapshot.to_arrow()
            self._pin.release()
            self._pin = snapshot.pin.again()
        self._whole = False
        self._begin_with(self._pin.area)
        minimum = Frontier.minimum(self._source.context.schema.kind)
        return self._counted(Delta(minimum, self._upper, updates))

    async def _begin(self) -> None:
        area = self._pin.area
        as_of, start = self._as_of, self._start
        if not (reading.may_read(area, as_of) if as_of is not None else reading.may_restart(area, start)):
            asked = start if as_of is None else Frontier([as_of])
            text = f"version {area.version} is compacted to {area.since}, too far for a listener from {asked}"
            raise await self._source.hold.explain(text, f"merged area of {self._source.context.name}")
        self._begin_with(area)

    def _begin_with(self, area: Area) -> None:
        self._walked = area.upper
        self._pieces.extend(merged_pieces(area, self._start))
        self._begun = True

    async def _given(self) -> Delta:
        pieces = list(self._pieces)
        found = await self._reader.read(pieces)
        if found.is_pending and self._source.context.appends is Appends.COMPARE:
            await self._source.hold.check_standing()
        # nothing is awaited from here on, so that a cancelled wait changes nothing
        lower = self._upper
        if found.end is not None:
            self._upper = reading.until_first(lower, pieces[0].end, found.end)
            self._pieces[0] = replace(pieces[0], first=found.end)
        else:
            for piece in pieces[: found.pieces]:
                self._pieces.popleft()
                self._upper = self._upper.join(piece.end)
            self._needs = self._upper
        return self._counted(Delta(lower, self._upper, found.updates))

    def _counted(self, delta: Delta) -> Delta:
        stats = self._source.context.stats
        stats.deltas += 1
        stats.rows += delta.updates.num_rows
        return delta

    def _check(self) -> None:
        self._source.check()
        if self._closed and not self._upper.is_done:
            raise InvalidError("the listener was closed")
