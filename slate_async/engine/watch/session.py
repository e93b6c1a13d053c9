"""`Session`: one change feed for watchers that are behind, until each of them goes on from memory.

The feed begins at the watcher that is furthest behind, and goes as fast as the fastest watcher takes what it gives. One
that has no room is passed over. When it has room again, the feed is opened again where that watcher is: at once if no
other needs the feed, else after `TURN_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from slate_async.engine.watch.pieces import Piece, Place
from slate_async.engine.watch.retained_feed import RetainedFeed
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import SlateError, UnavailableError
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget

TURN_S = 5.0
PATIENCE_S = 0.5
"""So long the others wait for a watcher that has no room, before it is passed over."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


class Session:
    """See the module docstring.

    watchers: those it brings on, by the owner
    admit: lets a watcher go on from memory, if what it needs is there and there is room; whether it does
    needed: whether a watcher needs the feed to get on
    """

    def __init__(
        self, retained: RetainedFeed, clock: Clock, admit: Callable[[Watcher], bool], needed: Callable[[Watcher], bool]
    ) -> None:
        self.watchers: dict[Watcher, None] = {}
        self._retained = retained
        self._clock = clock
        self._admit = admit
        self._needed = needed
        self._woken = asyncio.Event()
        self._yield_budget = YieldBudget(clock)
        self._turn_began = clock.monotonic()
        self._step: asyncio.Task[Piece] | None = None
        self._pieces: AsyncGenerator[Piece, None] | None = None
        self._piece: Piece | None = None

    @property
    def retained(self) -> RetainedFeed:
        """Its feed."""
        return self._retained

    def wake(self) -> None:
        """A watcher of its own came, ended, or has taken something."""
        self._woken.set()

    async def run(self) -> None:
        """Until it has no watchers. An error ends it, and is raised: those it has are its owner's again. A task that is
        cancelled leaves what is retained to expire."""
        pause_s, cancelled = SHORTEST_PAUSE_S, False
        try:
            while True:
                try:
                    await self._bring_on()
                    return
                except UnavailableError as error:
                    await self._stop_reading()
                    for watcher in self.watchers:
                        if watcher.first_queued is None:
                            watcher.fail(partial(same_error, error), passing=True)
                    await self._clock.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            await self._stop_reading()
            if not cancelled:
                await self._retained.release()

    async def _bring_on(self) -> None:
        while True:
            self._woken.clear()
            for watcher in list(self.watchers):
                if watcher in self.watchers and watcher.has_room and self._admit(watcher):
                    self.watchers.pop(watcher, None)
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
            if not self.watchers:
                return
            await self._retained.acknowledge(min(watcher.place.seq for watcher in self.watchers))
            passed = [watcher for watcher in self.watchers if watcher.place < self._place and watcher.has_room]
            if not self._retained.is_open:
                await self._go_back(min(watcher.place for watcher in self.watchers))
            elif passed and (self._idle or self._clock.monotonic() - self._turn_began > TURN_S):
                await self._go_back(min(watcher.place for watcher in passed))
            elif self._piece is not None:
                await self._give(self._piece)
            elif any(self._needed(watcher) for watcher in self._attached()):
                await self._read()
            else:
                await self._woken.wait()

    @property
    def _place(self) -> Place:
        return self._retained.place

    def _attached(self) -> list[Watcher]:
        """Those for whom the next piece is."""
        return [watcher for watcher in self.watchers if watcher.place >= self._place]

    @property
    def _idle(self) -> bool:
        """Whether nobody is there to take the next piece."""
        return not any(watcher.has_room and self._needed(watcher) for watcher in self._attached())

    async def _read(self) -> None:
        """The next piece, or what woke it first."""
        if self._pieces is None:
            self._pieces = self._retained.pieces()
        if self._step is None:
            self._step = asyncio.ensure_future(anext(self._pieces))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait([self._step, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        if self._step.done():
            step, self._step = self._step, None
            self._piece = step.result()

    async def _give(self, piece: Piece) -> None:
        """Give ``piece`` to those it is for. If none of them has room, nothing happens before something is taken."""
        attached = self._attached()
        full: list[Watcher] = []
        for watcher in attached:
            if not _offered(watcher, piece):
                full.append(watcher)
            if self._yield_budget.exhausted():
                await self._yield_budget.yield_now()
        if attached and len(full) == len(attached):
            await self._woken.wait()
            return
        deadline = self._clock.monotonic() + PATIENCE_S
        while full and (left := deadline - self._clock.monotonic()) > 0:
            self._woken.clear()
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                break
            full = [watcher for watcher in full if watcher in self.watchers and not _offered(watcher, piece)]
        self._piece = None
        self._retained.given(piece)

    async def _go_back(self, place: Place) -> None:
        await self._stop_reading()
        await self._retained.leave()
        await self._retained.open(place.seq)
        self._turn_began = self._clock.monotonic()

    async def _stop_reading(self) -> None:
        self._piece = None
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait([self._step])
            self._step = None
        if self._pieces is not None:
            await self._pieces.aclose()
            self._pieces = None


def _offered(watcher: Watcher, piece: Piece) -> bool:
    waited = watcher.first_queued is None
    if not watcher.offer(piece):
        return False
    if waited and watcher.first_queued is not None:
        watcher.wake()
    return True


def same_error(error: SlateError) -> SlateError:
    """``error`` anew, for each task that it is raised in."""
    same = type(error).__new__(type(error), *error.args)
    same.args = error.args
    same.__dict__.update(error.__dict__)
    same.__cause__ = error
    return same
