"""`RetainedFeed`: a change feed for watchers that are behind, which is opened again where the slowest of them is.

Its subscription has a name, for it outlives a feed. It is acknowledged up to the place of the slowest watcher, and
removed when no watcher needs it; after a crash it expires. A reader with ``pin=False`` retains nothing (rule 33).

Rule 33: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FeedOptions, Initial
from slate_async.engine.watch.pieces import Piece, Place
from slate_async.engine.watch.sources import feed_pieces
from slate_async.errors import InternalError, SlateError

logger = logging.getLogger(__name__)


class RetainedFeed:
    """See the module docstring. One task at a time."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._name = f"watch-{feeds.new_id()}" if feeds.pinned else None
        self._feed: ChangeFeed | None = None
        self._place = Place(0)
        self._acknowledged = 0
        self._begun = False
        self.snapshot_seq = 0
        """See `ChangeFeed`."""

    @property
    def is_open(self) -> bool:
        """Whether there is a feed; not after an `open` that has failed."""
        return self._feed is not None

    @property
    def place(self) -> Place:
        """What follows it comes next."""
        return self._place

    @property
    def lowest_seq(self) -> int:
        """What is above it is there while this is open, however often it is opened again."""
        return max(self._place.seq if self._name is None else self._acknowledged, self.snapshot_seq)

    async def open(self, seq: int, initial: Initial = "error") -> None:
        """Begin at ``seq``, which is not below what was acknowledged. Raises `NotFoundError` if changes above it were
        compacted, and what else `ChangeFeed` raises."""
        await self.leave()
        lifetime = None if self._name is None else self._feeds.life_ms / 1000
        options = FeedOptions(seq, None, True, initial, self._name, lifetime, SORT_MEMORY_BYTES, SORT_SPILL_BYTES)
        feed = self._feeds.open(options)
        await feed.__aenter__()
        self._acknowledged = max(self._acknowledged, seq) if self._begun else seq
        self._begun = True
        self._feed, self._place, self.snapshot_seq = feed, Place(seq), feed.snapshot_seq

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """What follows, for ever. After `UnavailableError` another call goes on."""
        assert self._feed is not None
        async with aclosing(feed_pieces(self._feed, self._place)) as pieces:
            async for piece in pieces:
                yield piece
        raise InternalError("a change feed without an end has ended")

    def given(self, piece: Piece) -> None:
        """``piece`` is done with."""
        self._place = piece.end

    async def acknowledge(self, seq: int) -> None:
        """No watcher will ask for what is up to ``seq`` again."""
        if self._feed is None or self._name is None:
            return
        seq = min(seq, self._feed.seq)
        if seq > self._acknowledged:
            self._acknowledged = seq
            await self._feed.acknowledge(seq)

    async def release(self) -> None:
        """Nothing is needed any more."""
        await self.leave()
        if self._name is None:
            return
        try:
            await self._feeds.forget(self._name)
        except SlateError as error:
            logger.warning("%s: what watchers needed is retained until it expires: %s", self._feeds.path, error)

    async def leave(self) -> None:
        """Close the feed; what it retains stays."""
        if self._feed is not None:
            feed, self._feed = self._feed, None
            await feed.aclose()
