"""`GarbageCollector`: deletes what nothing needs any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slate_async.database import garbage_collector as asynchronous
from slate_async.engine.gc.report import GcProgress, GcReport
from slate_async.sync.handle import Handle


class GarbageCollector(Handle[asynchronous.GarbageCollector]):
    """Made by `slate_async.sync.open_gc`, never directly. Methods and errors are those of
    `slate_async.GarbageCollector`."""

    @property
    def last(self) -> GcReport | None:
        """What the last round did; ``None`` before the first one."""
        return self._handle.last

    def collect(self, *, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None) -> GcReport:
        """Do one round now. ``on_progress`` is called in the loop's thread."""
        return self._loop.run(self._handle.collect, dry_run=dry_run, on_progress=on_progress)

    def rounds(self) -> Iterator[GcReport]:
        """The report of each round that ends from now on, until the collector is closed."""
        rounds = self._loop.call(self._handle.rounds)

        async def step() -> GcReport | None:
            return await anext(rounds, None)

        while (report := self._loop.run(step)) is not None:
            yield report

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
