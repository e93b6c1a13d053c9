"""`Watch`: what ``watch()`` gives; its iterator hands out one change after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from slate_async.engine.changes.change import Change
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import ClosedError, InvalidError, SlateError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.yield_budget import YieldBudget


class Watching(Protocol):
    """What a watch needs of its database's watches."""

    guard: LoopGuard
    yield_budget: YieldBudget

    async def begin(self, watcher: Watcher) -> None:
        """Bring ``watcher`` changes from now on."""

    def taken(self, watcher: Watcher) -> None:
        """It has taken something from its queue."""

    def seq_of(self, watcher: Watcher) -> int:
        """Up to which number nothing is left for it, if its queue is empty."""

    def end(self, watcher: Watcher) -> None:
        """Bring it nothing more. Idempotent."""


class Watch:
    """``async for change in watch``. Made by ``watch()``.

    It begins when it is first asked for a change, or entered (``async with``), behind what was durable when it was
    made. A step that is cancelled loses nothing. It may be left and iterated again. One task at a time. `close` it, or
    use ``async with``, or let go of it.

    An error that it raises has ``last_seq``, as `last_seq` is then: `ClosedError` and `FencedError` of its database;
    `ConflictError` with ``reason`` ``"reopened"`` or ``"lagged"``; `NotFoundError` if changes it needs were compacted;
    `CorruptionError`. After `UnavailableError` the caller may ask again."""

    def __init__(self, watching: Watching, watcher: Watcher, cut: int = 0) -> None:
        self._watching = watching
        self._watcher = watcher
        self._below = watcher.prefix[:cut]
        self._chunk: Sequence[Change] = ()
        self._next = 0
        self._begun = False
        self._closed = False
        self._busy = False
        self._loop = asyncio.get_running_loop()

    @property
    def last_seq(self) -> int:
        """All changes up to this sequence number were handed out, or do not match; at first, the one that the watch
        begins after. Another watch goes on from here. Of an ingest it counts the last change only."""
        if self._next < len(self._chunk):
            following = self._chunk[self._next].seq
        elif (queued := self._watcher.first_queued) is not None:
            following = queued.seq
        elif self._begun:
            return self._watching.seq_of(self._watcher)
        else:
            return self._watcher.place.seq
        return following - 1

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        if self._next < len(self._chunk) and self._watching.guard.passes() and not self._closed:
            change = self._chunk[self._next]
            self._next += 1
            return change
        await self._more()
        self._next = 1
        return self._chunk[0]

    async def next_changes(self) -> Sequence[Change]:
        """All changes that are here, at least one: waits for that."""
        if self._next >= len(self._chunk):
            await self._more()
        else:
            with self._alone():
                self._check()
        changes = self._chunk[self._next :]
        self._next = len(self._chunk)
        return changes

    async def _more(self) -> None:
        with self._alone():
            await self._begin()
            if self._watching.yield_budget.exhausted():
                await self._watching.yield_budget.yield_now()
            while True:
                self._check()
                if (changes := self._watcher.take()) is not None:
                    self._watching.taken(self._watcher)
                    self._chunk, self._next = below(changes, self._below), 0
                    return
                await self._watcher.wait()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Raise `InvalidError` if another task is in a step; errors say how far the watch is."""
        if self._busy:
            raise InvalidError("another task is waiting for this watch's next change")
        self._busy = True
        try:
            yield
        except SlateError as error:
            error.last_seq = self.last_seq
            raise
        finally:
            self._busy = False

    async def _begin(self) -> None:
        self._check()
        if not self._begun:
            await self._watching.begin(self._watcher)
            self._begun = True
            if self._closed:  # meanwhile
                self._watching.end(self._watcher)
                self._check()

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the watch is closed; make another one with watch()")
        self._watching.guard.check()

    async def __aenter__(self) -> Self:
        with self._alone():
            await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop; a task that waits for the next change gets `ClosedError`. Idempotent."""
        if not self._closed:
            self._closed = True
            self._watcher.wake()
            self._watching.end(self._watcher)

    def __del__(self) -> None:
        if not self._closed and self._begun and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._watching.end, self._watcher)


def below(changes: Sequence[Change], prefix: bytes) -> Sequence[Change]:
    """``changes`` of keys that begin with ``prefix``, without that. A range that was deleted is given as far as it lies
    there; it has no end if it goes on behind."""
    if not prefix:
        return changes
    cut = len(prefix)
    return [
        change._replace(key=change.key[cut:])
        if change.op != "delete_range"
        else change._replace(
            key=change.key[cut:] if change.key.startswith(prefix) else b"",
            value=change.value[cut:] if change.value is not None and change.value.startswith(prefix) else None,
        )
        for change in changes
    ]
