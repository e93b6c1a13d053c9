"""`Prefetcher`: hands out what a `ChangeSource` reads, batch by batch, and reads the next piece meanwhile.

Pieces are read by tasks of the feed's database. A consumer that is cancelled stops waiting, and the next one finds what
was read: nothing is lost, nothing comes twice. At most one piece is read ahead, so memory is bounded by two.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from slate_async.codec.columns import Columns
from slate_async.engine.changes.order import batches_of, up_to
from slate_async.engine.changes.source import ChangeSource
from slate_async.engine.changes.updates import Updates
from slate_async.errors import ClosedError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock, Offload
from slate_async.runtime.supervisor import Supervisor
from slate_async.types import MAX_SEQ

SHORTEST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 1.0
INLINE_ROWS = 1_024


@dataclass(frozen=True, slots=True)
class FeedContext:
    """What a feed needs of its database. ``guard`` raises when that can no longer answer."""

    guard: LoopGuard
    updates: Updates
    supervisor: Supervisor
    clock: Clock
    offload: Offload


class Batch(NamedTuple):
    """``done``: with it, all rows up to there were given; less than its last sequence number while more rows share
    that."""

    rows: Columns
    done: int


@dataclass(frozen=True, slots=True)
class _Read:
    """Batches, read up to ``end``; ``more``: there may be more at once."""

    batches: list[Batch]
    end: int
    more: bool


class Prefetcher:
    """See the module docstring. ``until``: the last sequence number it hands out; ``None``: it goes on forever."""

    def __init__(self, source: ChangeSource, until: int | None, context: FeedContext) -> None:
        self.source = source
        self._until = MAX_SEQ if until is None else until
        self._context = context
        self._batches: deque[Batch] = deque()
        self._end = self._given = source.seq
        self._task: asyncio.Task[_Read] | None = None
        self._more = True
        self._pause_s = 0.0

    async def next(self, max_rows: int) -> Batch | None:
        """The next batch of about ``max_rows`` rows or fewer; ``None`` at the end. What was given before counts as
        consumed. `taken` it before the next call, else it is given again.

        Raises what `ChangeSource.read` raises, and `ClosedError` or why the database closed."""
        self._consumed()
        while not self._batches:
            if self._end >= self._until:
                return None
            if not self._more and self._task is None:  # a read that a cancelled call began may have found some
                await self._wait()
            read = await self._next_read(max_rows)
            self._batches.extend(read.batches)
            self._end, self._more = read.end, read.more
            if read.batches:
                self._pause_s = 0.0
            else:
                self._given = read.end
            if read.batches and read.more and read.end < self._until:
                self._begin(max_rows)
        return self._batches[0]

    @property
    def done(self) -> int:
        """All rows up to there are handed out."""
        return self._given

    def taken(self) -> None:
        """The batch that `next` gave is handed out."""
        self._given = self._batches.popleft().done

    def _consumed(self) -> None:
        subscription = self.source.subscription
        if subscription is not None and subscription.name is None:
            subscription.acknowledge(self._given)

    async def _next_read(self, max_rows: int) -> _Read:
        self._context.guard.check()
        task = self._begin(max_rows)
        await asyncio.wait([task])
        self._task = None
        if task.cancelled():
            self._context.guard.check()
            raise ClosedError("the change feed is closed; open another one with changes()")
        return task.result()

    def _begin(self, max_rows: int) -> asyncio.Task[_Read]:
        if self._task is None:
            work = _read(self.source, self._until, max_rows, self._context.offload)
            self._task = self._context.supervisor.spawn("change feed", work, critical=False)
        return self._task

    async def _wait(self) -> None:
        """Wait for more, and a little longer each time that there was none after all."""
        self._context.guard.check()
        if self._pause_s:
            await self._context.clock.sleep(self._pause_s)
        await self._context.updates.wait_beyond(self.source.position, self.source.seq)
        self._context.guard.check()
        self._pause_s = min(max(SHORTEST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)

    def end(self) -> None:
        """Let what is under way end. Idempotent."""
        self._batches.clear()
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """`end`, and wait until that is done. Idempotent."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task])


async def _read(source: ChangeSource, until: int, max_rows: int, offload: Offload) -> _Read:
    """The next piece, cut into batches. What follows `ChangeSource.read` must not fail: it was taken over."""
    piece = await source.read(until)
    parts = [part for part in (up_to(part, until) for part in piece.parts) if len(part)]

    def cut() -> list[Columns]:
        return batches_of(parts, max_rows)

    rows = sum(map(len, parts))
    source.count(rows)
    batches = cut() if rows <= INLINE_ROWS else await offload.run(cut)
    end = min(piece.end, until)
    ends = [*(int(batch.seqs[0]) - 1 for batch in batches[1:]), end]  # before the next one begins
    return _Read([Batch(*cut) for cut in zip(batches, ends, strict=False)], end, piece.more)
