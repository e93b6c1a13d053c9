"""`GarbageCollector`: collects the garbage of one database, round after round. Wiring only; see `engine.gc`.

Any number of them may run, in any processes, beside writers, readers and compactors: they only repeat each other's
work. Several databases are collected in one process by opening several in one `Environment`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from slate_async.database.handle import Handle, HandleResources
from slate_async.database.metrics import shared_counters
from slate_async.engine.clone.gc_schedule import GcSchedule
from slate_async.engine.context import metadata_closers
from slate_async.engine.gc.open import OpenedGc
from slate_async.engine.gc.report import GcProgress, GcReport


class GarbageCollector(Handle):
    """Made by `slate_async.open_gc` or `Environment.open_gc`, never directly.

    It closes itself, with the cause, when it cannot read something that the database still needs. It logs and retries
    when the store does not answer, when the database is missing for a while, and when a clone's parent is damaged."""

    _noun = "garbage collector"

    def __init__(self, resources: HandleResources, opened: OpenedGc, *, periodic: bool) -> None:
        super().__init__(resources)
        self._opened = opened
        self._schedule = GcSchedule(resources.context, opened, resources.supervisor)
        if periodic:
            resources.supervisor.spawn("garbage collection", self._schedule.run())

    @property
    def last(self) -> GcReport | None:
        """What the last round did; ``None`` before the first one."""
        return self._schedule.last

    async def collect(
        self, *, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None
    ) -> GcReport:
        """Do one round now. ``dry_run`` changes nothing and tells what a round would do, and why.

        ``on_progress`` is called after each request that deletes. A cancelled caller abandons the wait, not the round.

        Raises `InvalidError` if the database does not exist or was never finished, `UnavailableError`, and what a
        closed collector raises. Raises `CorruptionError` if something that the database needs cannot be read; then
        nothing was deleted."""
        self._check()
        work = self._supervisor.run("one GC round", self._schedule.collect(dry_run, on_progress))
        return await self._guard.while_open(work)

    async def rounds(self) -> AsyncIterator[GcReport]:
        """The report of each round that ends from now on, until the collector is closed. A slow caller misses some.

        Raises what the collector closed itself with."""
        self._check()
        while self._state == "open":
            seen = self._schedule.last
            await self._schedule.round_ended()
            last = self._schedule.last
            if last is not None and last is not seen:
                yield last
        if self._cause is not None:
            raise self._closed_failure()

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``.

        ``cache.*`` and ``store.*`` count for all databases that share the `Environment` and the bucket."""
        opened = self._opened
        return {**opened.sweeper.stats.metrics(), **shared_counters(self._context, opened.driver, opened.register)}

    # ---- its life (see `Handle`)

    def _ended(self, cause: BaseException | None) -> None:
        self._schedule.notify()

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return metadata_closers(self._opened.driver, self._opened.register)

    def __repr__(self) -> str:
        return f"<GarbageCollector {self._name} {self._state}>"
