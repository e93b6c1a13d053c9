"""`HistoryReads`: what a database and a namespace offer alike: reads of now and of earlier, and watches."""

from __future__ import annotations

from typing import Any

from slate_async.arguments import BytesLike
from slate_async.database import open_database as asynchronous
from slate_async.database.namespaces import reads as asynchronous_namespace
from slate_async.engine.changes.options import Initial
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.watch.options import OnLag, WatchFrom
from slate_async.sync.readable import Reads
from slate_async.sync.snapshot import Snapshot
from slate_async.sync.watch import Watch


class HistoryReads(Reads):
    """`Reads`, snapshots and watches of what the loop has open. The class that inherits them sets ``_history``, too."""

    _history: asynchronous.OpenDatabase[Any] | asynchronous_namespace.NamespaceReads[Any]

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of everything written so far (with ``durable``: acknowledged so far), of a reader of what it
        shows now."""
        made = self._loop.call(self._history.snapshot, durable=durable, include_expired=include_expired)
        return Snapshot(self._loop, made)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """All of it as it was when ``seq`` was the database's newest sequence number, or at ``time``."""
        return Snapshot(self._loop, self._loop.call(self._history.as_of, seq=seq, time=time))

    def watch(
        self,
        *,
        prefix: BytesLike | None = None,
        from_seq: WatchFrom = "now",
        initial: Initial = "error",
        on_lag: OnLag = "feed",
    ) -> Watch:
        """Changes as they become durable, each once, in the order of sequence numbers."""
        made = self._loop.call(self._history.watch, prefix=prefix, from_seq=from_seq, initial=initial, on_lag=on_lag)
        return Watch(self._loop, made)
