"""`Watches`: the watches of an open database. Wiring only: one dispatcher, one shared feed for those behind, and their
tasks, which run while there is a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FeedOptions
from slate_async.engine.changes.updates import Updates
from slate_async.engine.watch.dispatcher import Dispatcher, WatchStats
from slate_async.engine.watch.options import WatchOptions
from slate_async.engine.watch.pieces import Limits, Place
from slate_async.engine.watch.session import same_error
from slate_async.engine.watch.shared_feed import SharedFeed
from slate_async.engine.watch.sources import FeedSource, Source
from slate_async.engine.watch.watch import Watch
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import ConflictError, InternalError, InvalidError, SlateError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.protocol import Clock
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget

END_LIMIT_S = 10.0
"""Closing waits no longer for what is retained to be let go."""


class Watches:
    """See the module docstring."""

    def __init__(
        self,
        source: Source,
        feeds: Feeds,
        updates: Updates,
        supervisor: Supervisor,
        clock: Clock,
        guard: LoopGuard,
        limits: Limits,
    ) -> None:
        self.guard = guard
        self.yield_budget = YieldBudget(clock)
        self.stats = WatchStats()
        self._source = source
        self._feeds = feeds
        self._updates = updates
        self._supervisor = supervisor
        self._clock = clock
        self._limits = limits
        self._watchers: dict[Watcher, None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._sessions: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._renew()

    def _renew(self) -> None:
        """A dispatcher and a shared feed without watchers."""
        self._dispatcher = Dispatcher(
            self._source,
            self._limits,
            self._clock,
            self.stats,
            lagging=lambda watcher: self._shared.add(watcher),
            pressed=lambda: self._shared.wake(),
        )
        self._shared = SharedFeed(self._feeds, self._dispatcher, self._clock, self._spawn_session)

    def _spawn_session(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """It ends by itself, soon after its last watcher."""
        if self._supervisor.is_closing:
            return
        session = self._supervisor.spawn("watch feed", self._run(work), critical=False)
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    # ---- watches

    def open(self, options: WatchOptions) -> Watch:
        """A watch that has not begun. Raises `InvalidError`, `ClosedError`, `FencedError`."""
        seq = options.from_seq if isinstance(options.from_seq, int) else self._source.durable_seq
        try:
            self.guard.check()
        except SlateError as error:
            error.last_seq = seq
            raise
        options.check()
        watcher = Watcher(options.prefix, Place(seq), options.on_lag, options.initial, self._limits)
        return Watch(self, watcher, options.cut)

    async def begin(self, watcher: Watcher) -> None:
        """See `Watching`. Raises `InvalidError` for a number that is not durable yet, or not here.

        One after another, in turns of the loop: a thousand clients may come back at once for what memory has."""
        if watcher.place.seq > self._source.durable_seq:
            durable = await self._updates.durable_seq()
            if watcher.place.seq > durable:
                raise InvalidError(
                    f"sequence number {watcher.place.seq} is not durable yet, the newest durable one is {durable}"
                )
        async with self._turn:
            if self.yield_budget.exhausted():
                await self.yield_budget.yield_now()
            self._begin(watcher)

    def _begin(self, watcher: Watcher) -> None:
        self.guard.check()
        self._watchers[watcher] = None
        if not self._dispatcher.active:
            self._dispatcher.start(watcher.place.seq)
            self._tasks = [
                self._supervisor.spawn("watch dispatcher", self._run(self._dispatcher.run), critical=False),
                self._supervisor.spawn("watches behind", self._run(self._shared.run), critical=False),
            ]
        if not self._dispatcher.admit(watcher):
            self._shared.add(watcher)

    def taken(self, watcher: Watcher) -> None:
        """See `Watching`."""
        if not watcher.live:
            self._shared.taken(watcher)

    def seq_of(self, watcher: Watcher) -> int:
        """See `Watching`."""
        return max(watcher.place, self._dispatcher.place).seq if watcher.live else watcher.place.seq

    def end(self, watcher: Watcher) -> None:
        """See `Watching`."""
        if watcher not in self._watchers:
            return
        del self._watchers[watcher]
        watcher.drop()
        self._dispatcher.remove(watcher)
        self._shared.remove(watcher)
        if not self._watchers:
            self._stop()

    # ---- the database

    def end_all(self, failure: Callable[[], SlateError] | None = None) -> None:
        """The database has ended, which its guard says; or every watch ends with ``failure``."""
        watchers, self._watchers = list(self._watchers), {}
        for watcher in watchers:
            if watcher.live:
                watcher.place = max(watcher.place, self._dispatcher.place)
                self._dispatcher.remove(watcher)
            self._shared.remove(watcher)
            if failure is not None:
                watcher.fail(failure)
            watcher.wake()
        self._stop()

    async def aclose(self) -> None:
        """The database closes on purpose: end all, and let go of what they needed."""
        tasks = self._tasks
        self.end_all()
        if tasks:
            await asyncio.wait(tasks)
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=END_LIMIT_S)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do ``work``; if it fails, every watch ends with that."""
        try:
            await work()
        except SlateError as error:
            self.end_all(partial(same_error, error))
        except Exception as error:  # noqa: BLE001 - raised in every watch
            failed = InternalError(f"watches of {self._feeds.path} have failed: {error!r}")
            failed.__cause__ = error
            self.end_all(partial(same_error, failed))

    def _stop(self) -> None:
        self._dispatcher.stop()
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._renew()

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        stats = self.stats
        return {
            "watch.watchers": len(self._watchers),
            "watch.behind": len(self._shared.behind),
            "watch.recent_bytes": self._dispatcher.recent.nbytes,
            "watch.changes": stats.changes,
            "watch.delivered": stats.delivered,
            "watch.lagged": stats.lagged,
            "watch.lost": stats.lost,
            "watch.feeds": stats.feeds,
        }


def reader_source(shown_seq: Callable[[], int], feeds: Feeds) -> FeedSource:
    """The source beside a reader."""

    def open_feed(seq: int) -> ChangeFeed:
        return feeds.open(FeedOptions(seq, None, True, "error", None, None, SORT_MEMORY_BYTES, SORT_SPILL_BYTES))

    return FeedSource(shown_seq, open_feed)


def reopened() -> SlateError:
    """Of a watch over an outage: writes whose outcome was unknown may be in."""
    return ConflictError(
        "the database was opened again after an outage of its store; watch again from last_seq", reason="reopened"
    )
