"""`DbReader`: a database, read beside its writer."""

from __future__ import annotations

from slate_async.arguments import Duration
from slate_async.database import reader as engine
from slate_async.database.status import ReaderStatus
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FromSeq, Initial
from slate_async.engine.read.time_travel import TimeLike
from slate_async.runtime.loop_thread import LoopThread
from slate_async.storage.liveness.observer import WriterLife
from slate_async.sync.feed import ChangeFeed
from slate_async.sync.handle import Handle
from slate_async.sync.readable import Reads
from slate_async.sync.snapshot import Snapshot


class DbReader(Handle[engine.DbReader], Reads):
    """Made by `slate_async.sync.open_reader`, never directly. Methods and errors are those of
    `slate_async.DbReader`."""

    def __init__(self, loop: LoopThread, reader: engine.DbReader) -> None:
        Handle.__init__(self, loop, reader)
        Reads.__init__(self, loop, reader)

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of what the reader shows now, with ``include_expired`` also of rows that have expired."""
        snapshot = self._loop.call(self._handle.snapshot, durable=durable, include_expired=include_expired)
        return Snapshot(self._loop, snapshot)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """The database as it was when ``seq`` was its newest sequence number, or at ``time``."""
        return Snapshot(self._loop, self._loop.call(self._handle.as_of, seq=seq, time=time))

    def seq_to_time(self, seq: int) -> float:
        """When sequence number ``seq`` was written, in seconds since the epoch."""
        return self._loop.call(self._handle.seq_to_time, seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """The highest sequence number known to be written at ``time`` or before; 0 if there was none."""
        return self._loop.call(self._handle.time_to_seq, time)

    def refresh(self) -> None:
        """Catch up now: afterwards everything is here that was durable at the call."""
        self._loop.run(self._handle.refresh)

    def wait_for(self, seq: int) -> None:
        """Wait until sequence number ``seq`` is here."""
        self._loop.run(self._handle.wait_for, seq)

    def writer_life(self) -> WriterLife:
        """Whether the database has a writer that lives, and of which epoch."""
        return self._loop.run(self._handle.writer_life)

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

    def status(self) -> ReaderStatus:
        """The reader at this moment. Works after closing, too."""
        return self._loop.call(self._handle.status)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
