"""Tests of `SharedFeed` where the store has compacted what memory still has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from slate_async.engine.changes.change import Change
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import FeedOptions
from slate_async.engine.watch.dispatcher import Dispatcher, WatchStats
from slate_async.engine.watch.pieces import Limits, Piece, Place
from slate_async.engine.watch.shared_feed import SharedFeed
from slate_async.engine.watch.sources import Source
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import NotFoundError
from slate_async.runtime.system import SystemClock

LIMITS = Limits(1, 1 << 20)


class CompactedFeeds:
    """No feed begins: all was compacted."""

    pinned = True
    path = "compacted"

    def __init__(self) -> None:
        self.asked: list[int] = []

    life_ms = 60_000

    def new_id(self) -> str:
        """The same for all."""
        return "1"

    def open(self, options: FeedOptions) -> ChangeFeed:
        """Refused."""
        self.asked.append(cast(int, options.from_seq))
        raise NotFoundError("compacted")


def piece(seq: int) -> Piece:
    """One change, of number ``seq``."""
    return Piece([Change("put", b"k", b"v", seq, 0.0, None)], Place(seq - 1), Place(seq))


async def test_memory_brings_on_a_watcher_whose_changes_no_subscription_can_retain() -> None:
    """A reader's feed may be behind what is compacted: what it has given is kept, and asked for again further on."""
    feeds, clock = CompactedFeeds(), SystemClock()

    def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pass

    dispatcher = Dispatcher(
        cast(Source, None),
        LIMITS,
        clock,
        WatchStats(),
        lagging=lambda watcher: shared.add(watcher),
        pressed=lambda: shared.wake(),
    )
    shared = SharedFeed(cast(Feeds, feeds), dispatcher, clock, spawn)
    watcher = Watcher(b"", Place(0), "feed", "error", LIMITS)
    assert dispatcher.admit(watcher)
    task = asyncio.create_task(shared.run())
    try:
        for seq in range(1, 6):
            await dispatcher.dispatch(piece(seq))
            await asyncio.sleep(0.01)
        assert len(feeds.asked) > 1
        assert len(set(feeds.asked)) == len(feeds.asked)  # once for each place
        taken: list[int] = []
        while len(taken) < 5:
            async with asyncio.timeout(5):
                await watcher.wait()
            taken += [change.seq for change in watcher.take() or ()]
            if not watcher.live:
                shared.taken(watcher)
        assert taken == [1, 2, 3, 4, 5]
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])
