"""`Db` and `WriteHandle`: a database as its writer."""

from __future__ import annotations

from slate_async.arguments import BytesLike, Duration
from slate_async.database import db as asynchronous
from slate_async.database.status import Status
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.write import commit_group as group
from slate_async.engine.write.batch import WriteBatch
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.checkpoints import Checkpoints
from slate_async.sync.open_database import OpenDatabase


class WriteHandle:
    """What a write returns."""

    __slots__ = ("_handle", "_loop", "seq")

    seq: int
    """Sequence number of the last row written."""

    def __init__(self, loop: LoopThread, handle: group.WriteHandle) -> None:
        self._loop = loop
        self._handle = handle
        self.seq = handle.seq

    @property
    def create_time(self) -> float:
        """Seconds since the Unix epoch, the creation time of its rows."""
        return self._handle.create_time

    @property
    def is_durable(self) -> bool:
        """Whether the write is in the object store for good already."""
        return self._handle.is_durable

    def durable(self) -> None:
        """Wait until the write is in the object store for good. Raises as `slate_async.WriteHandle.durable`."""
        self._loop.run(self._handle.durable)

    def __repr__(self) -> str:
        return repr(self._handle).replace("<", "<sync ", 1)


class Db(OpenDatabase[asynchronous.Db]):
    """Made by `slate_async.sync.open`, never directly. Methods and errors are those of `slate_async.Db`."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""

    def __init__(self, loop: LoopThread, db: asynchronous.Db) -> None:
        super().__init__(loop, db)
        self.checkpoints = Checkpoints(loop, db.checkpoints)

    def put(
        self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> WriteHandle:
        """Set ``key`` to ``value``. Returns once that is durable, or visible in memory with
        ``await_durable=False``."""
        made = self._loop.run(self._handle.put, key, value, ttl=ttl, await_durable=await_durable)
        return WriteHandle(self._loop, made)

    def delete(self, key: BytesLike, *, await_durable: bool = True) -> WriteHandle:
        """Remove ``key``; no error if it is not there. Otherwise as `put`."""
        return WriteHandle(self._loop, self._loop.run(self._handle.delete, key, await_durable=await_durable))

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> WriteHandle:
        """Apply the rows of ``batch`` atomically."""
        return WriteHandle(self._loop, self._loop.run(self._handle.write, batch, await_durable=await_durable))

    def flush(self, *, l0: bool = False) -> None:
        """Make everything written so far durable. ``l0=True`` also moves it out of the log into an L0 SST."""
        self._loop.run(self._handle.flush, l0=l0)

    def compact(
        self,
        *,
        full: bool = False,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        level: int | None = None,
        progress: EventSink | None = None,
    ) -> int:
        """Flush to L0 and compact now; how many compactions and moves that took. ``progress`` is called in the loop's
        thread."""
        return self._loop.run(self._handle.compact, full=full, start=start, end=end, level=level, progress=progress)

    def confirm(self) -> None:
        """Check that this is still the database's writer right now."""
        self._loop.run(self._handle.confirm)

    def status(self) -> Status:
        """The database's state now. Works after closing, too."""
        return self._loop.call(self._handle.status)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
