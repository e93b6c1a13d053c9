"""`DbCompactor`: a database's compactor."""

from __future__ import annotations

from slate_async.arguments import BytesLike
from slate_async.database import compactor as asynchronous
from slate_async.database.status import CompactorStatus
from slate_async.sync.handle import Handle


class DbCompactor(Handle[asynchronous.DbCompactor]):
    """Made by `slate_async.sync.open_compactor`, never directly. Methods and errors are those of
    `slate_async.DbCompactor`."""

    def compact(
        self,
        *,
        full: bool = False,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        level: int | None = None,
    ) -> int:
        """Compact now, after what is under way; how many compactions and moves that took."""
        return self._loop.run(self._handle.compact, full=full, start=start, end=end, level=level)

    def status(self) -> CompactorStatus:
        """The compactor's state now. Works after closing, too."""
        return self._loop.call(self._handle.status)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
