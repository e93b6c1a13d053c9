"""`OpenDatabase`: what `Db` and `DbReader` offer alike: reads of now and of earlier, and changes."""

from __future__ import annotations

from typing import Any, TypeVar

from slate_async.arguments import BytesLike, Duration
from slate_async.database import open_database as asynchronous
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FromSeq, Initial
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.watch.options import OnLag, WatchFrom
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.feed import ChangeFeed
from slate_async.sync.handle import Handle
from slate_async.sync.readable import Reads
from slate_async.sync.snapshot import Snapshot
from slate_async.sync.watch import Watch

D = TypeVar("D", bound=asynchronous.OpenDatabase[Any])


class OpenDatabase(Handle[D], Reads):
    """A database that is open, by its writer or by a reader."""

    def __init__(self, loop: LoopThread, database: D) -> None:
        super().__init__(loop, database)
        self._reads = database

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of everything written so far (with ``durable``: acknowledged so far), of a reader of what it
        shows now."""
        snapshot = self._loop.call(self._handle.snapshot, durable=durable, include_expired=include_expired)
        return Snapshot(self._loop, snapshot)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """The database as it was when ``seq`` was its newest sequence number, or at ``time``."""
        return Snapshot(self._loop, self._loop.call(self._handle.as_of, seq=seq, time=time))

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
        """Every put and delete as it happened, in the order of sequence numbers: durable rows, each once."""
        feed = self._loop.call(
            self._handle.changes,
            from_seq=from_seq,
            until_seq=until_seq,
            follow=follow,
            initial=initial,
            subscription=subscription,
            subscription_lifetime=subscription_lifetime,
            sort_memory_bytes=sort_memory_bytes,
            sort_spill_bytes=sort_spill_bytes,
        )
        return ChangeFeed(self._loop, feed)

    def watch(
        self,
        *,
        prefix: BytesLike | None = None,
        from_seq: WatchFrom = "now",
        initial: Initial = "error",
        on_lag: OnLag = "feed",
    ) -> Watch:
        """Changes as they become durable, each once, in the order of sequence numbers."""
        watch = self._loop.call(self._handle.watch, prefix=prefix, from_seq=from_seq, initial=initial, on_lag=on_lag)
        return Watch(self._loop, watch)
