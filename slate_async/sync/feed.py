"""`ChangeFeed`: the changes of a database, row by row or as Arrow batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Self

from slate_async.arguments import Duration
from slate_async.engine.changes import feed as asynchronous
from slate_async.engine.changes.change import Change
from slate_async.engine.changes.feed import BATCH_ROWS
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.runtime.loop_thread import LoopThread


class ChangeFeed:
    """``for change in feed``; `batches` gives the same as Arrow record batches. Made by ``changes()``. One thread at a
    time; another one may `close` it, which ends the wait of the first with `slate_async.ClosedError`.

    As `slate_async.ChangeFeed`: it may be left and iterated again, in the same way."""

    def __init__(self, loop: LoopThread, feed: asynchronous.ChangeFeed) -> None:
        self._loop = loop
        self._feed = feed

    @property
    def seq(self) -> int:
        """All rows up to this sequence number were handed out; at first, the one it begins after."""
        return self._feed.seq

    @property
    def snapshot_seq(self) -> int:
        """Rows up to this sequence number are a snapshot; 0: everything is as it happened."""
        return self._feed.snapshot_seq

    @property
    def acknowledged(self) -> int:
        """Rows up to this sequence number are not retained any more."""
        return self._feed.acknowledged

    @property
    def position(self) -> FeedPosition:
        """Where `seq` is, for `Admin.read_changes`."""
        return self._feed.position

    def __iter__(self) -> Iterator[Change]:
        """Rows as `slate_async.Change`."""
        rows = self._loop.call(self._feed.__aiter__)
        assert isinstance(rows, asynchronous.Rows)
        return self._rows(rows)

    def _rows(self, rows: asynchronous.Rows) -> Iterator[Change]:
        while (ready := self._loop.run(rows.more)) is not None:
            yield from ready

    def batches(self, max_rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
        """Record batches (op, key, value, seq, create_time, expire_time) of about ``max_rows`` rows or fewer."""
        batches = self._loop.call(self._feed.batches, max_rows)

        async def step() -> RecordBatch | None:
            return await anext(batches, None)

        return self._batches(step)

    def _batches(self, step: Callable[[], Awaitable[RecordBatch | None]]) -> Iterator[RecordBatch]:
        while (batch := self._loop.run(step)) is not None:
            yield batch

    def acknowledge(self, seq: int, *, now: bool = False) -> None:
        """Rows up to ``seq`` are done with; see `slate_async.ChangeFeed.acknowledge`."""
        self._loop.run(self._feed.acknowledge, seq, now=now)

    def renew(self, lifetime: Duration | None) -> None:
        """Retain what is not acknowledged for ``lifetime`` after the last commit, ``None``: forever."""
        self._loop.run(self._feed.renew, lifetime)

    def close(self) -> None:
        """Stop, and release what is retained: a subscription with a name stays, where it was acknowledged.
        Idempotent."""
        self._loop.run(self._feed.aclose)

    def __enter__(self) -> Self:
        self._loop.run(self._feed.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
