"""`Db`: a database as its writer."""

from __future__ import annotations

from slate_async.arguments import BytesLike, Duration
from slate_async.database import db as asynchronous
from slate_async.database.status import Status
from slate_async.engine.compaction.progress import EventSink
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.checkpoints import Checkpoints
from slate_async.sync.namespace import Namespace
from slate_async.sync.open_database import OpenDatabase
from slate_async.sync.writes import Writes


class Db(OpenDatabase[asynchronous.Db], Writes):
    """Made by `slate_async.sync.open`, never directly. Methods and errors are those of `slate_async.Db`."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""

    def __init__(self, loop: LoopThread, db: asynchronous.Db) -> None:
        super().__init__(loop, db)
        self._writes = db
        self.checkpoints = Checkpoints(loop, db.checkpoints)

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The part of the database called ``name``: the same calls for keys below a prefix."""
        return Namespace(self._loop, self._handle.namespace(name, default_ttl=default_ttl))

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
