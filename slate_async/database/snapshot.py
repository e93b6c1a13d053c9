"""`Snapshot`: a database as of one sequence number."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from slate_async.database.readable import Reads
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.source import ReadSource, SnapshotReads


class Snapshot(Reads[SnapshotReads]):
    """A stable view at one sequence number; expiry is judged at the time it was taken.

    ``async with db.snapshot() as snap`` (plain ``with`` does too), or `close` it; a dropped one frees its pin.
    ``durable`` on its reads is accepted for `Readable`'s sake and changes nothing: the snapshot's own choice holds."""

    def __init__(self, source: ReadSource, point: ReadPoint) -> None:
        self._reads = SnapshotReads(source, point)

    @property
    def seq(self) -> int:
        """The highest sequence number it sees."""
        return self._reads.seq

    def close(self) -> None:
        """Give up the pin; later reads are `ClosedError`. Idempotent."""
        self._reads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Snapshot seq={self.seq}{' closed' if self._reads.closed else ''}>"
