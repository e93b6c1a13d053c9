"""`OpenDatabase`: what `Db` and `DbReader` offer alike: reads of now and of earlier, and changes."""

from __future__ import annotations

from typing import TypeVar

from slate_async.arguments import BytesLike, Duration, prefix_bytes
from slate_async.database.handle import Handle
from slate_async.database.readable import Reads
from slate_async.database.snapshot import Snapshot
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FeedOptions, FromSeq, Initial
from slate_async.engine.read.source import HistorySource
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.watch.open import Watches
from slate_async.engine.watch.options import OnLag, WatchFrom, WatchOptions
from slate_async.engine.watch.watch import Watch
from slate_async.errors import InvalidError

S = TypeVar("S", bound=HistorySource)


class OpenDatabase(Handle, Reads[S]):
    """A database that is open, by its writer or by a reader. Either sets ``_reads``, ``_feeds`` and ``_watches``.

    ``_feeds`` and ``_watches`` are ``None`` where nothing changes any more."""

    _feeds: Feeds | None
    _watches: Watches | None

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of everything written so far, of a reader of what it shows now. Use ``async with``, or
        `Snapshot.close` it. It judges expiry at the time it was taken.

        durable: of what was acknowledged as durable so far; of a reader all is
        include_expired: show rows that have expired, too, as long as they are stored: other clocks may still show them
        """
        self._reads.begun += 1
        point = self._reads.point(durable)
        return Snapshot(self._reads, point._replace(now_ms=0) if include_expired else point)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """The database as it was when ``seq`` was its newest sequence number, or at ``time``. A time is a datetime
        with its time zone, or seconds since the epoch.

        For a time it is the newest state known to be no later. That is exact while the rows of that time are in the
        log, else as fine as the manifest's samples. Expiry is judged at that time. Raises `InvalidError` below what
        is kept (see the setting ``retention_ms``), and for the future."""
        self._reads.begun += 1
        return Snapshot(self._reads, self._reads.as_of(seq, time))

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

        Raises `InvalidError` here, or when the feed begins, for changes that are not here yet or were compacted. It
        names the lowest number there is. The setting ``retention_ms`` says how long changes are kept."""
        if self._feeds is None:
            raise InvalidError("a reader on a checkpoint sees no changes; open one that follows the database")
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

    def watch(
        self,
        *,
        prefix: BytesLike | None = None,
        from_seq: WatchFrom = "now",
        initial: Initial = "error",
        on_lag: OnLag = "feed",
    ) -> Watch:
        """Changes as they become durable, each once, in the order of sequence numbers, to any number of watchers from
        one source: the writer's memory, or beside a reader one change feed.

        prefix: changes of keys that begin with it
        from_seq: changes above it; ``"now"``: above the newest durable row of this call. What is not in memory any more
        comes from a change feed, which watchers share
        initial: ``"snapshot"``: if changes above ``from_seq`` were compacted, begin with the rows that are left of all
        that was ever written; else that is `NotFoundError`, which names the lowest number there is
        on_lag: a watcher that lets more wait than ``watch_buffer_rows`` or ``watch_buffer_bytes`` (settings) goes on
        from the shared feed, and from memory when it has caught up; with ``"error"`` it gets `ConflictError`"""
        return self._open_watch(WatchOptions(prefix_bytes(prefix), from_seq, initial, on_lag))

    def _open_watch(self, options: WatchOptions) -> Watch:
        if self._watches is None:
            raise InvalidError("a reader on a checkpoint sees no changes; open one that follows the database")
        return self._watches.open(options)

    def _feed_metrics(self) -> dict[str, int | float]:
        return {} if self._feeds is None else self._feeds.metrics()

    async def _close_feeds(self) -> None:
        """Before the handle closes on purpose: what they retain is released."""
        if self._watches is not None:
            await self._watches.aclose()
        if self._feeds is not None:
            await self._feeds.close()
