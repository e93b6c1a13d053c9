"""What a collection opens, without ``await``. Snapshots, listeners and batches are used by one thread at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from slate_async.collections.controller import controller, service
from slate_async.collections.controller.report import RoundReport
from slate_async.collections.core.filtering import ConditionLike
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.times import TimeLike
from slate_async.collections.core.updates import UpdatesLike
from slate_async.collections.reader import critical, handle, listen, snapshot
from slate_async.collections.reader.listen import Delta
from slate_async.collections.writer import builder, writer
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.loop_handle import LoopHandle, opened


class BatchBuilder:
    """As `slate_async.collections.BatchBuilder`, with ``with``."""

    def __init__(self, loop: LoopThread, batch: builder.BatchBuilder) -> None:
        self._loop = loop
        self._batch = batch

    def add(self, updates: UpdatesLike) -> None:
        """Add ``updates``."""
        self._loop.run(self._batch.add, updates)

    def __enter__(self) -> Self:
        self._loop.run(self._batch.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._batch.__aexit__, kind, error, traceback)


class Writer(LoopHandle[writer.Writer]):
    """As `slate_async.collections.Writer`."""

    @property
    def upper(self) -> Frontier:
        """All updates at times that are not beyond it are in the collection, as far as this writer knows."""
        return self._handle.upper

    def append(self, updates: UpdatesLike, *, upper: FrontierLike, lower: FrontierLike | None = None) -> None:
        """Append ``updates``, which are all that were written at times beyond ``lower`` and not beyond ``upper``."""
        self._loop.run(self._handle.append, updates, upper=upper, lower=lower)

    def batch(self, lower: FrontierLike | None = None, *, upper: FrontierLike) -> BatchBuilder:
        """A batch of any size in bounded memory: ``with writer.batch(upper=120) as batch: batch.add(updates)``."""
        return BatchBuilder(self._loop, self._loop.call(partial(self._handle.batch, lower, upper=upper)))

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, by dotted name."""
        return self._loop.call(self._handle.metrics)

    def close(self) -> None:
        """Wait for all appends that were accepted, then close. Idempotent."""
        self._end()


class Snapshot:
    """As `slate_async.collections.Snapshot`."""

    def __init__(self, loop: LoopThread, made: snapshot.Snapshot) -> None:
        self._loop = loop
        self._snapshot = made

    @property
    def upper(self) -> Frontier:
        """How far the collection was known when it was made."""
        return self._snapshot.upper

    def batches(self, *, expand: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of some size. ``expand``: each as often as its diff says."""
        found = self._loop.call(self._snapshot.batches, expand=expand)
        try:
            while (batch := self._loop.run(lambda: anext(found, None))) is not None:
                yield batch
        finally:
            self._loop.run(found.aclose)

    def rows(self) -> Iterator[tuple[Any, int]]:
        """Pairs of data and diff; the loop is asked once for each batch."""
        names = self._snapshot._source.context.schema.data.names
        for batch in self.batches():
            yield from snapshot.rows_of(batch, names)

    def to_arrow(self, *, expand: bool = False) -> pa.Table:
        """All rows. ``expand``: each as often as its diff says."""
        return self._loop.run(self._snapshot.to_arrow, expand=expand)

    def to_reader(self, *, expand: bool = False) -> pa.RecordBatchReader:
        """All rows as a stream for other libraries, such as DuckDB: each batch is read when it is asked for. It is read
        once, while the snapshot is open. ``expand``: each row as often as its diff says."""
        return pa.RecordBatchReader.from_batches(self.schema(expand=expand), self.batches(expand=expand))

    def schema(self, *, expand: bool = False) -> pa.Schema:
        """The columns of the batches."""
        return self._snapshot.schema(expand=expand)

    def to_pandas(self, *, expand: bool = False) -> Any:
        """All rows as a data frame. ``expand``: each as often as its diff says."""
        return self._loop.run(self._snapshot.to_pandas, expand=expand)

    def splits(self, n: int, *, least_bytes: int = 1) -> list[Snapshot]:
        """It in some ``n`` parts, which together have its rows."""
        parts = self._loop.run(self._snapshot.splits, n, least_bytes=least_bytes)
        return [Snapshot(self._loop, part) for part in parts]

    def close(self) -> None:
        """Give up what it keeps. Idempotent."""
        self._loop.call(self._snapshot.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listener:
    """As `slate_async.collections.Listener`: ``for delta in listener``, which waits for what comes."""

    def __init__(self, loop: LoopThread, listener: listen.Listener) -> None:
        self._loop = loop
        self._listener = listener

    @property
    def upper(self) -> Frontier:
        """Where the last delta ended."""
        return self._listener.upper

    def __iter__(self) -> Iterator[Delta]:
        while (delta := self._loop.run(lambda: anext(self._listener, None))) is not None:
            yield delta

    def close(self) -> None:
        """Give up what it keeps. Idempotent."""
        self._loop.call(self._listener.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReadHandle(LoopHandle[handle.ReadHandle]):
    """As `slate_async.collections.ReadHandle`."""

    @property
    def since(self) -> Frontier:
        """It may be asked about times beyond it."""
        return self._handle.since

    def snapshot(self, as_of: TimeLike, where: Iterable[ConditionLike] = ()) -> Snapshot:
        """The contents at ``as_of``, as soon as they are definite."""
        return Snapshot(self._loop, self._loop.run(self._handle.snapshot, as_of, where))

    def listen(self, *, as_of: TimeLike | None = None, start: FrontierLike | None = None) -> Listener:
        """All updates that a snapshot at ``as_of`` does not hold; or, after a restart, all beyond ``start``."""
        return Listener(self._loop, self._loop.call(partial(self._handle.listen, as_of=as_of, start=start)))

    def subscribe(self, as_of: TimeLike) -> Listener:
        """The snapshot at ``as_of`` as first delta, then all that `listen` gives."""
        return Listener(self._loop, self._loop.call(self._handle.subscribe, as_of))

    def clone(self, note: str = "") -> ReadHandle:
        """A handle of its own, with what this one may read."""
        return ReadHandle(*opened(lambda: self._handle.clone(note), self._loop))

    def downgrade_since(self, since: FrontierLike) -> None:
        """Give up times that are not beyond ``since``."""
        self._loop.run(self._handle.downgrade_since, since)

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, and what is in the version in use, by dotted name."""
        return self._loop.call(self._handle.metrics)

    def expire(self) -> None:
        """Give everything up and close. Idempotent."""
        self._end()


class CriticalHandle:
    """As `slate_async.collections.CriticalHandle`."""

    def __init__(self, loop: LoopThread, made: critical.CriticalHandle) -> None:
        self._loop = loop
        self._critical = made

    @property
    def name(self) -> str:
        """Of the hold."""
        return self._critical.name

    @property
    def since(self) -> Frontier:
        """What it kept at the last call."""
        return self._critical.since

    @property
    def token(self) -> str:
        """The token that it had at the last call."""
        return self._critical.token

    def compare_and_downgrade(self, expected: str, token: str, since: FrontierLike) -> None:
        """Give up times that are not beyond ``since`` and store ``token``, iff the stored one is ``expected``."""
        self._loop.run(self._critical.compare_and_downgrade, expected, token, since)

    def refresh(self) -> None:
        """Read `since` and `token` as they are now."""
        self._loop.run(self._critical.refresh)

    def reader(self, note: str = "") -> ReadHandle:
        """A leased read handle at its since."""
        return ReadHandle(*opened(lambda: self._critical.reader(note), self._loop))

    def expire(self) -> None:
        """Give it up. Idempotent."""
        self._loop.run(self._critical.expire)


class Controller(LoopHandle[controller.Controller]):
    """As `slate_async.collections.Controller`."""

    @property
    def epoch(self) -> int:
        """It has the role until another one claims a higher one."""
        return self._handle.epoch

    @property
    def fenced(self) -> bool:
        """Whether another controller took over, as far as this one has noticed."""
        return self._handle.fenced

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, and what is in the newest version, by dotted name."""
        return self._loop.call(self._handle.metrics)

    def round(self, *, dry_run: bool = False) -> RoundReport:
        """One whole round: holds, absorb, publish, collect."""
        return self._loop.run(self._handle.round, dry_run=dry_run)

    def merge(self, *, everything: bool = False) -> int:
        """Do the merges that are due; how many."""
        return self._loop.run(self._handle.merge, everything=everything)

    def settle(self) -> RoundReport:
        """Rounds and merges until nothing is left to do."""
        return self._loop.run(self._handle.settle)

    def wait_ended(self) -> BaseException | None:
        """Wait until it is closed; what it closed itself with, if it did."""
        return self._loop.run(self._handle.wait_ended)

    def close(self) -> None:
        """Stop. Idempotent."""
        self._end()


class ControllerService(LoopHandle[service.ControllerService]):
    """As `slate_async.collections.ControllerService`."""

    def close(self) -> None:
        """Close all controllers. Idempotent."""
        self._end()
