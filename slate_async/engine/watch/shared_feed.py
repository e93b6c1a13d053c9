"""`SharedFeed`: one change feed at a time, for all watchers that are behind.

It begins at the watcher that is furthest behind, and goes on until it has got as far as what is kept in memory. Then
the watchers go on from there. One that has no room stays where it is, and the next feed begins there: nobody waits for
a slow one. Inside an ingest, where no place says what a watcher has, the feed waits for room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial

from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.watch.dispatcher import Dispatcher
from slate_async.engine.watch.pieces import Piece, Place
from slate_async.engine.watch.sources import feed_pieces
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import ClosedError, FencedError, InternalError, NotFoundError, SlateError, UnavailableError
from slate_async.runtime.protocol import Clock

LONGEST_PAUSE_S = 30.0


class SharedFeed:
    """See the module docstring. ``open_feed`` opens one above a number; from 0 it may begin with a snapshot."""

    def __init__(self, open_feed: Callable[[int], ChangeFeed], dispatcher: Dispatcher, clock: Clock) -> None:
        self.behind: dict[Watcher, None] = {}
        self._open_feed = open_feed
        self._dispatcher = dispatcher
        self._clock = clock
        self._wake = asyncio.Event()

    def add(self, watcher: Watcher) -> None:
        """``watcher`` is behind."""
        self.behind[watcher] = None
        self._wake.set()

    def remove(self, watcher: Watcher) -> None:
        """It ended."""
        self.behind.pop(watcher, None)
        self._wake.set()

    def taken(self) -> None:
        """A watcher that is behind has taken something."""
        self._wake.set()

    async def run(self) -> None:
        """Bring on those behind, for ever."""
        pause_s = 0.5
        while True:
            while not (wanting := self._wanting()):
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._bring_on(wanting)
                pause_s = 0.5
            except UnavailableError as error:
                for watcher in wanting:
                    self._report(watcher, error, passing=True)
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except (ClosedError, FencedError):
                return  # the database's handle tells them

    def _wanting(self) -> list[Watcher]:
        """Those behind that have room, and need more than memory has."""
        for watcher in list(self.behind):
            if watcher.has_room and watcher.failure is None:
                self._admit(watcher)
        return [watcher for watcher in self.behind if watcher.has_room and watcher.failure is None]

    def _admit(self, watcher: Watcher) -> bool:
        before = watcher.first_queued
        if not self._dispatcher.admit(watcher):
            if before is None and watcher.first_queued is not None:
                watcher.wake()
            return False
        self.behind.pop(watcher, None)
        return True

    async def _bring_on(self, wanting: list[Watcher]) -> None:
        """Open a feed for ``wanting``, and use it until none of them needs it."""
        begin = min(watcher.place for watcher in wanting)
        self._dispatcher.stats.feeds += 1
        feed = self._open_feed(begin.seq)
        try:
            async with feed:
                self._refuse_snapshot(feed.snapshot_seq, wanting)
                await self._read(feed, Place(begin.seq), wanting)
        except (UnavailableError, ClosedError, FencedError):
            raise
        except SlateError as error:
            for watcher in wanting:
                if not isinstance(error, NotFoundError) or watcher.place <= begin:
                    self._report_or_begin_anew(watcher, error)

    def _refuse_snapshot(self, snapshot_seq: int, watchers: Iterable[Watcher]) -> None:
        """A feed from the beginning gives no deletes up to ``snapshot_seq``: only those who asked for that take it."""
        for watcher in watchers:
            if watcher.place.seq < snapshot_seq and not (
                watcher.fresh and watcher.initial == "snapshot" and watcher.place == Place(0)
            ):
                error = NotFoundError(
                    f"changes are kept from sequence number {snapshot_seq} on, and were asked for from"
                    f" {watcher.place.seq} on: what lies between was compacted; the setting retention_ms says how long"
                    ' changes are kept, initial="snapshot" begins with the rows that are left'
                )
                self._report_or_begin_anew(watcher, error)

    def _report_or_begin_anew(self, watcher: Watcher, error: SlateError) -> None:
        """Changes it needs were compacted: it begins with a snapshot, if it asked for that and has got nothing yet."""
        if isinstance(error, NotFoundError) and watcher.fresh and watcher.initial == "snapshot" and watcher.place.seq:
            watcher.place = Place(0)
            return
        self._report(watcher, error, passing=False)
        self.behind.pop(watcher, None)

    @staticmethod
    def _report(watcher: Watcher, error: SlateError, *, passing: bool) -> None:
        watcher.fail(partial(same_error, error), passing=passing)

    async def _read(self, feed: ChangeFeed, begin: Place, wanting: list[Watcher]) -> None:
        attached = {watcher: None for watcher in wanting if watcher in self.behind and watcher.place >= begin}
        failed: UnavailableError | None = None
        torn = False
        while attached:
            try:
                async with aclosing(feed_pieces(feed, begin)) as pieces:
                    async for piece in self._until_left(pieces, attached):
                        if piece.torn or torn:
                            await self._dispatcher.until_room(list(attached))
                        torn = piece.torn
                        begin = piece.end
                        self._offer(piece, attached)
                        if not torn and not self._go_on(begin, attached):
                            return
            except UnavailableError as error:
                failed = error
                if not torn:
                    raise
            if failed is None:
                return
            for watcher in attached:  # inside an ingest only this feed knows what they have
                self._report(watcher, failed, passing=True)
            failed = None
            await self._clock.sleep(1.0)

    async def _until_left(self, pieces: AsyncIterator[Piece], attached: dict[Watcher, None]) -> AsyncIterator[Piece]:
        """``pieces``, until all watchers that are attached have ended."""
        while True:
            step = asyncio.ensure_future(anext(pieces))
            try:
                while not step.done():
                    self._wake.clear()
                    woken = asyncio.ensure_future(self._wake.wait())
                    try:
                        await asyncio.wait([step, woken], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        woken.cancel()
                    for watcher in [left for left in attached if left not in self.behind]:
                        del attached[watcher]
                    if not attached:
                        return
            finally:
                if not step.done():
                    step.cancel()
                    await asyncio.wait([step])
            try:
                yield step.result()
            except StopAsyncIteration:
                raise InternalError("a change feed without an end has ended") from None

    def _offer(self, piece: Piece, attached: dict[Watcher, None]) -> None:
        for watcher in list(attached):
            waited = watcher.first_queued is None
            if not watcher.offer(piece):
                del attached[watcher]  # it stays at its place
            elif waited and watcher.first_queued is not None:
                watcher.wake()

    def _go_on(self, place: Place, attached: dict[Watcher, None]) -> bool:
        """At ``place``, see who goes on from memory, and who joins; whether the feed is needed still."""
        for watcher in list(attached):
            if watcher in self.behind and self._admit(watcher):
                del attached[watcher]
        if not attached:
            return False
        for watcher in self.behind:
            if watcher not in attached and watcher.has_room and watcher.failure is None and watcher.place >= place:
                attached[watcher] = None
        return True


def same_error(error: SlateError) -> SlateError:
    """``error`` anew, for each task that it is raised in."""
    same = type(error).__new__(type(error), *error.args)
    same.args = error.args
    same.__dict__.update(error.__dict__)
    same.__cause__ = error
    return same
