"""`Snapshot`: a database as of one sequence number."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from slate_async.database import snapshot as asynchronous
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.readable import Reads


class Snapshot(Reads):
    """A stable view at one sequence number. ``with db.snapshot() as snap``, or `close` it; a dropped one frees its
    pin."""

    def __init__(self, loop: LoopThread, snapshot: asynchronous.Snapshot) -> None:
        self._loop = loop
        self._reads = self._snapshot = snapshot

    @property
    def seq(self) -> int:
        """The highest sequence number it sees."""
        return self._snapshot.seq

    def close(self) -> None:
        """Give up the pin; later reads are `ClosedError`. Idempotent."""
        self._loop.call(self._snapshot.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._snapshot).replace("<", "<sync ", 1)
