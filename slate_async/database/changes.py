"""`HasFeeds`: ``changes()`` of a database and of a reader."""

from __future__ import annotations

from slate_async.arguments import Duration
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FeedOptions, FromSeq, Initial
from slate_async.errors import InvalidError


class HasFeeds:
    """``changes()``. ``feeds`` are ``None`` where nothing changes any more."""

    def __init__(self, feeds: Feeds | None) -> None:
        self._feeds = feeds

    def changes(
        self,
        *,
        from_seq: FromSeq = None,
        until_seq: int | None = None,
        follow: bool = True,
        initial: Initial = "snapshot",
        subscription: str | None = None,
        subscription_lifetime: Duration | None = None,
        sort_memory_bytes: int = SORT_MEMORY_BYTES,
        sort_spill_bytes: int = SORT_SPILL_BYTES,
    ) -> ChangeFeed:
        """Every put and delete as it happened, in the order of sequence numbers: durable rows, each once.

        from_seq: rows above it; 0 is the beginning, ``"now"`` the newest that is durable. ``None``: where
        ``subscription`` was acknowledged, else the beginning
        until_seq, follow: end behind that number, or behind what is durable at the start; else the feed goes on
        initial: from the beginning of a database whose history was compacted comes a snapshot of what is left of that
        (`ChangeFeed.snapshot_seq`), or an error
        subscription: the name under which what is not acknowledged is retained after the feed closed or its process
        died; see `ChangeFeed.acknowledge`
        subscription_lifetime: how long, in seconds or as a timedelta, after the last commit; forever if unset
        sort_memory_bytes, sort_spill_bytes: rows of SSTs are sorted by number so many bytes at a time in memory, and so
        many in a temporary file; rows that fit into neither are read again

        Raises `InvalidError` here, or when the feed begins: for what is not here yet, or was compacted (the lowest
        number there is, is named; the setting ``retention_ms`` says how long changes are kept)."""
        if self._feeds is None:
            raise InvalidError("a reader on a checkpoint shows what never changes; open one that follows the database")
        options = FeedOptions(
            from_seq,
            until_seq,
            follow,
            initial,
            subscription,
            subscription_lifetime,
            sort_memory_bytes,
            sort_spill_bytes,
        )
        return self._feeds.open(options)

    def _feed_metrics(self) -> dict[str, int | float]:
        return {} if self._feeds is None else self._feeds.metrics()

    async def _close_feeds(self) -> None:
        """Before the handle closes on purpose: what they retain is released."""
        if self._feeds is not None:
            await self._feeds.close()
