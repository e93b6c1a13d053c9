"""`Watcher`: what one watcher waits for, what waits for it, and how far it has got.

| state  | changes come from                      | it ends when                                      | next state |
|--------|----------------------------------------|---------------------------------------------------|------------|
| behind | a shared feed, while there is room     | it has got as far as what is kept in memory       | live       |
| live   | the dispatcher, as they become durable | there is no room, or what comes next is not there | behind     |

Invariant: every change behind its first place that matches was handed out, is in the queue, or is behind ``place``;
none is in two of them. All methods are synchronous and belong to the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from slate_async.engine.changes.change import Change
from slate_async.engine.changes.options import Initial
from slate_async.engine.watch.options import OnLag
from slate_async.engine.watch.pieces import Limits, Piece, Place, size_of
from slate_async.errors import SlateError


class Watcher:
    """See the module docstring.

    place: everything up to there is handed out, queued, or does not match; of a live one, at least the dispatcher's
    fresh: nothing was queued for it yet
    failure: makes the error that follows what is queued; ``passing``: it is raised once, and the watcher goes on
    """

    __slots__ = (
        "_limits",
        "_nbytes",
        "_queue",
        "_rows",
        "_waiter",
        "failure",
        "fresh",
        "initial",
        "live",
        "on_lag",
        "passing",
        "place",
        "prefix",
    )

    def __init__(self, prefix: bytes, place: Place, on_lag: OnLag, initial: Initial, limits: Limits) -> None:
        self.prefix = prefix
        self.place = place
        self.on_lag = on_lag
        self.initial = initial
        self.live = False
        self.fresh = True
        self.failure: Callable[[], SlateError] | None = None
        self.passing = False
        self._limits = limits
        self._queue: deque[tuple[Sequence[Change], int]] = deque()
        self._rows = self._nbytes = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether it is worth bringing more: half of what may wait is free."""
        return 2 * self._rows <= self._limits.rows and 2 * self._nbytes <= self._limits.nbytes

    @property
    def first_queued(self) -> Change | None:
        """What it gets next, if that is here."""
        return self._queue[0][0][0] if self._queue else None

    def offer(
        self, piece: Piece, matching: Sequence[Change] | None = None, nbytes: int = 0, *, beyond: bool = False
    ) -> bool:
        """Queue what matches of ``piece``, which begins at or before `place`; ``matching`` of ``nbytes``, if somebody
        knows that already. ``False``: there is no room, and it is not to go ``beyond``."""
        if matching is None or self.place > piece.begin:
            piece = piece.above(self.place)
            matching = piece.matching(self.prefix)
            nbytes = size_of(matching)
        if matching:
            limits = self._limits
            if (
                self._queue
                and not beyond
                and (self._rows + len(matching) > limits.rows or self._nbytes + nbytes > limits.nbytes)
            ):
                return False
            self._queue.append((matching, nbytes))
            self._rows += len(matching)
            self._nbytes += nbytes
            self.fresh = False
        self.place = max(self.place, piece.end)
        return True

    def offer_all(self, pieces: Sequence[Piece]) -> bool:
        """`offer` pieces that follow one another, as one if there is room for all. ``False``: not for all of them."""
        matching = [change for piece in pieces for change in piece.matching(self.prefix)]
        nbytes = size_of(matching)
        limits = self._limits
        if self._rows + len(matching) <= limits.rows and self._nbytes + nbytes <= limits.nbytes:
            return self.offer(Piece(matching, self.place, pieces[-1].end), matching, nbytes)
        return all(self.offer(piece) for piece in pieces)

    def fail(self, failure: Callable[[], SlateError], *, passing: bool = False) -> None:
        """What is queued is followed by an error."""
        self.failure, self.passing = failure, passing
        self.wake()

    def drop(self) -> None:
        """Nobody wants what is queued."""
        self._queue.clear()
        self._rows = self._nbytes = 0

    def wake(self) -> None:
        """Its task has something to look at."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def waiter(self) -> asyncio.Future[None] | None:
        """What a task waits for, to be completed in turn with those of others."""
        return self._waiter

    def take(self) -> Sequence[Change] | None:
        """The next changes, ``None`` if none is here. Raises the failure behind the last one."""
        if self._queue:
            changes, nbytes = self._queue.popleft()
            self._rows -= len(changes)
            self._nbytes -= nbytes
            return changes
        if self.failure is not None:
            error = self.failure()
            if self.passing:
                self.failure = None
            raise error
        return None

    async def wait(self) -> None:
        """Wait until there may be something to take. One task at a time."""
        if self._queue or self.failure is not None:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
