"""`OpenDatabase`: what `Db` and `DbReader` offer alike: reads of now and of earlier, and changes."""

from __future__ import annotations

from typing import Any, TypeVar

from slate_async.arguments import Duration
from slate_async.database import open_database as asynchronous
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FromSeq, Initial
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.feed import ChangeFeed
from slate_async.sync.handle import Handle
from slate_async.sync.history_reads import HistoryReads

D = TypeVar("D", bound=asynchronous.OpenDatabase[Any])


class OpenDatabase(Handle[D], HistoryReads):
    """A database that is open, by its writer or by a reader."""

    def __init__(self, loop: LoopThread, database: D) -> None:
        super().__init__(loop, database)
        self._reads = self._history = database

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
