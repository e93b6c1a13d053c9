"""`Dispatcher`: takes what becomes durable from one source, and brings each watcher what matches its prefix.

It works while there are watchers, and costs a writer nothing while there is none. Watchers that wait cost nothing for
changes that do not match: prefixes are looked up by their lengths.

Invariant: everything up to ``place`` was offered to each live watcher. One that has no room for a piece goes on from
where that begins (rule 33).

Rule 33: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from slate_async.engine.changes.change import Change
from slate_async.engine.watch.pieces import Limits, Piece, Place, Recent, size_of
from slate_async.engine.watch.sources import LostRowsError, Source
from slate_async.engine.watch.watcher import Watcher
from slate_async.engine.write.completions import CompletionQueue
from slate_async.errors import ClosedError, ConflictError, FencedError, SlateError, UnavailableError
from slate_async.runtime.protocol import Clock

RETRY_S = 1.0


@dataclass(slots=True)
class WatchStats:
    """Counters of one open database. ``changes``: taken in; ``delivered``: queued for watchers; ``lagged``: how often a
    watcher had no room; ``lost``: how often what came next had left memory; ``feeds``: opened for those behind."""

    changes: int = 0
    delivered: int = 0
    lagged: int = 0
    lost: int = 0
    feeds: int = 0


class Dispatcher:
    """See the module docstring. ``lagging`` is called with each watcher that is behind from then on; ``pressed`` when
    more is kept for those than the limits allow."""

    def __init__(
        self,
        source: Source,
        limits: Limits,
        clock: Clock,
        stats: WatchStats,
        *,
        lagging: Callable[[Watcher], None],
        pressed: Callable[[], None],
    ) -> None:
        self.stats = stats
        self.recent = Recent(limits)
        self.place = Place(0)
        self.active = False
        self._source = source
        self._limits = limits
        self._clock = clock
        self._lagging = lagging
        self._pressed = pressed
        self._live: dict[bytes, dict[Watcher, None]] = {}
        self._lengths: tuple[int, ...] = ()
        self._woken = CompletionQueue(lambda: None)

    # ---- watchers

    def start(self, from_seq: int) -> None:
        """Take in what becomes durable from now on, and of the past what is in memory above ``from_seq``."""
        self.active = True
        self.place = Place(self._source.start(from_seq, self._limits.rows))
        self.recent.restart(self.place)

    def stop(self) -> None:
        """There are no watchers any more."""
        self.active = False
        self._source.stop()
        self.recent.restart(self.place)

    def admit(self, watcher: Watcher) -> bool:
        """Let ``watcher`` go on from memory if what it needs next is there, and there is room for all of that."""
        if watcher.place < self.recent.floor:
            return False
        pieces = list(self.recent.after(watcher.place))
        if pieces and not watcher.offer_all(pieces):
            return False
        watcher.live = True
        if watcher.prefix not in self._live:
            self._live[watcher.prefix] = {}
            self._lengths = tuple(sorted({len(prefix) for prefix in self._live}))
        self._live[watcher.prefix][watcher] = None
        if watcher.first_queued is not None:
            watcher.wake()
        return True

    def remove(self, watcher: Watcher) -> None:
        """It ended, or is behind."""
        watcher.live = False
        same = self._live.get(watcher.prefix, {})
        same.pop(watcher, None)
        if not same and watcher.prefix in self._live:
            del self._live[watcher.prefix]
            self._lengths = tuple(sorted({len(prefix) for prefix in self._live}))

    def live(self) -> list[Watcher]:
        """Those that go on from memory."""
        return [watcher for same in self._live.values() for watcher in same]

    # ---- the task

    async def run(self) -> None:
        """Dispatch for ever."""
        while True:
            try:
                async with aclosing(self._source.pieces()) as pieces:
                    async for piece in pieces:
                        await self.dispatch(piece)
            except LostRowsError as lost:
                self._lose(Place(lost.seq))
            except UnavailableError:
                await self._clock.sleep(RETRY_S)
            except (ClosedError, FencedError):
                return  # the database's handle tells them

    async def dispatch(self, piece: Piece) -> None:
        """Bring ``piece`` to each live watcher it concerns, then let their tasks run."""
        begin, self.place = self.place, max(self.place, piece.end)
        self.stats.changes += len(piece.changes)
        waiters: list[asyncio.Future[None]] = []
        for prefix, changes in self._by_prefix(piece.changes):
            nbytes = size_of(changes)
            for watcher in list(self._live[prefix]):
                waiter = watcher.waiter
                if not watcher.offer(piece, changes, nbytes):
                    self._fall_behind(watcher, begin)
                elif waiter is not None and watcher.first_queued is not None:
                    waiters.append(waiter)
                    self.stats.delivered += len(changes)
                else:
                    self.stats.delivered += len(changes)
        self.recent.add(piece)  # which those that have just fallen behind may need
        if self.recent.pressed:
            self._pressed()
        self._woken.add(waiters)
        await asyncio.sleep(0)
        while self._woken.busy:  # noqa: ASYNC110 - it ends within some turns
            await asyncio.sleep(0)

    def _by_prefix(self, changes: Sequence[Change]) -> Iterable[tuple[bytes, Sequence[Change]]]:
        """The changes that match each prefix that any of them matches."""
        live = self._live
        if self._lengths == (0,):
            return [(b"", changes)] if changes else []
        found: dict[bytes, list[Change]] = {}
        for change in changes:
            if change.op == "delete_range":
                for prefix in live:
                    if change.touches(prefix):
                        found.setdefault(prefix, []).append(change)
                continue
            for length in self._lengths:
                if (prefix := change.key[:length]) in live and len(prefix) == length:
                    found.setdefault(prefix, []).append(change)
        return list(found.items())

    def _fall_behind(self, watcher: Watcher, begin: Place) -> None:
        """``watcher`` has no room for what follows ``begin``."""
        self.stats.lagged += 1
        self.remove(watcher)
        watcher.place = max(watcher.place, begin)
        if watcher.on_lag == "error":
            watcher.fail(lagged)
        else:
            self._lagging(watcher)

    def _lose(self, place: Place) -> None:
        """What follows up to ``place`` cannot be brought from memory."""
        self.stats.lost += 1
        live, begin = self.live(), self.place
        self.place = max(self.place, place)
        self.recent.restart(self.place)
        for watcher in live:
            if watcher.place < self.place:
                self.remove(watcher)
                watcher.place = max(watcher.place, begin)
                self._lagging(watcher)


def lagged() -> SlateError:
    """The error of a watcher that is too slow."""
    return ConflictError(
        "the watch was too slow: more changes waited than watch_buffer_rows or watch_buffer_bytes allow; watch again"
        ' from last_seq, or use on_lag="feed"',
        reason="lagged",
    )
