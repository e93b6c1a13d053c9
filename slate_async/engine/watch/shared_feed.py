"""`SharedFeed`: brings on all watchers that are behind, from memory if it has what they need, else by change feeds.

Memory keeps what a watcher needs that fell behind (rule 33). When that is too much, a subscription is made for what
comes from then on, and all that memory has by then waits in the watcher's queue. One `Session` serves all whose places
it retains. Another one begins for a watcher that asks for older changes.

Rule 33: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.options import Initial
from slate_async.engine.watch.dispatcher import Dispatcher
from slate_async.engine.watch.pieces import Place
from slate_async.engine.watch.retained_feed import RetainedFeed
from slate_async.engine.watch.session import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, Session, same_error
from slate_async.engine.watch.watcher import Watcher
from slate_async.errors import ClosedError, FencedError, NotFoundError, SlateError, UnavailableError
from slate_async.runtime.protocol import Clock
from slate_async.runtime.yield_budget import YieldBudget

MAX_SESSIONS = 4
"""So many change feeds at a time; what asks for older changes than all of them waits until one ends."""


class SharedFeed:
    """See the module docstring. ``spawn`` starts the task of a session."""

    def __init__(
        self,
        feeds: Feeds,
        dispatcher: Dispatcher,
        clock: Clock,
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        self.behind: dict[Watcher, Session | None] = {}
        """Each with its session, if it has one."""
        self._feeds = feeds
        self._dispatcher = dispatcher
        self._clock = clock
        self._spawn = spawn
        self._sessions: dict[Session, None] = {}
        self._compacted_seq = -1
        """No subscription can begin here, where memory ended when that was tried; memory goes on keeping."""
        self._woken = asyncio.Event()
        self._yield_budget = YieldBudget(clock)

    # ---- watchers

    def add(self, watcher: Watcher) -> None:
        """``watcher`` is behind."""
        self.behind[watcher] = None
        for session in self._sessions:
            if _retains(session.retained, watcher):
                self._assign(watcher, session)
                break
        self._keep()
        self._woken.set()

    def remove(self, watcher: Watcher) -> None:
        """It ended."""
        session = self.behind.pop(watcher, None)
        if session is not None:
            session.watchers.pop(watcher, None)
            session.wake()
        self._keep()

    def taken(self, watcher: Watcher) -> None:
        """A watcher that is behind has taken something."""
        session = self.behind.get(watcher)
        if session is None:
            self._woken.set()
        else:
            session.wake()

    def wake(self) -> None:
        """Memory keeps more than its limits allow."""
        self._woken.set()

    def _assign(self, watcher: Watcher, session: Session) -> None:
        self.behind[watcher] = session
        session.watchers[watcher] = None
        session.wake()

    def _alone(self) -> list[Watcher]:
        """Those without a session."""
        return [watcher for watcher, session in self.behind.items() if session is None]

    def _keep(self) -> None:
        """Memory keeps what no subscription retains."""
        recent = self._dispatcher.recent
        recent.keep = min((watcher.place for watcher in self._alone()), default=None)
        recent.trim()

    # ---- the task

    async def run(self) -> None:
        """Bring on those behind, for ever."""
        pause_s = SHORTEST_PAUSE_S
        while True:
            self._woken.clear()
            for watcher in self._alone():
                if watcher in self.behind and watcher.has_room:
                    self._admit(watcher)
                if self._yield_budget.exhausted():
                    await self._yield_budget.yield_now()
            older = [watcher for watcher in self._alone() if self._needed(watcher)]
            pressed = self._pressed and len(older) < len(self._alone())
            if not (pressed or older) or len(self._sessions) >= MAX_SESSIONS + pressed:
                await self._woken.wait()
                continue
            try:
                if pressed:
                    await self._go_on_from_here()
                else:
                    await self._begin(older)
                pause_s = SHORTEST_PAUSE_S
            except UnavailableError as error:
                for watcher in self._alone():
                    if watcher.first_queued is None:
                        watcher.fail(partial(same_error, error), passing=True)
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except (ClosedError, FencedError):
                return  # the database's handle tells them

    def _admit(self, watcher: Watcher) -> bool:
        """Let it go on from memory, or give it what there is room for of that."""
        waited = watcher.first_queued is None
        if not self._dispatcher.admit(watcher):
            if waited and watcher.first_queued is not None:
                watcher.wake()
            return False
        self.behind.pop(watcher, None)
        self._keep()
        return True

    def _needed(self, watcher: Watcher) -> bool:
        return watcher.place < self._dispatcher.recent.floor

    @property
    def _pressed(self) -> bool:
        dispatcher = self._dispatcher
        return dispatcher.recent.pressed and dispatcher.place.seq > self._compacted_seq

    async def _go_on_from_here(self) -> None:
        """A session for those whom memory brought on until now: it begins where memory ends.

        A source may give what others may not ask for any more: a reader's feed is behind what is compacted. Then memory
        keeps that, too, and a session begins further on."""
        seq = self._dispatcher.place.seq
        try:
            retained = await self._opened(seq)
        except NotFoundError:
            self._compacted_seq = seq
            return
        for watcher in self._alone():
            if not self._needed(watcher):
                waited = watcher.first_queued is None
                for piece in self._dispatcher.recent.after(watcher.place):
                    watcher.offer(piece, beyond=True)
                if waited:
                    watcher.wake()
        self._serve(retained)

    async def _begin(self, older: list[Watcher]) -> None:
        """A session that begins at the place furthest behind."""
        begin = min(watcher.place for watcher in older)
        snapshot = any(_begins_anew(watcher) for watcher in older)
        try:
            retained = await self._opened(begin.seq, "snapshot" if snapshot else "error")
        except (UnavailableError, ClosedError, FencedError):
            raise
        except SlateError as error:
            for watcher in older:
                if not isinstance(error, NotFoundError) or watcher.place <= begin:
                    self._fail(watcher, error)
        else:
            self._serve(retained)

    async def _opened(self, seq: int, initial: Initial = "error") -> RetainedFeed:
        retained = RetainedFeed(self._feeds)
        self._dispatcher.stats.feeds += 1
        try:
            await retained.open(seq, initial)
        except BaseException:
            self._spawn(retained.release)  # an answer may have been lost
            raise
        return retained

    def _serve(self, retained: RetainedFeed) -> None:
        session = Session(retained, self._clock, self._admit, self._needed)
        self._sessions[session] = None
        for watcher in self._alone():
            if _retains(retained, watcher):
                self._assign(watcher, session)
        self._keep()
        self._spawn(partial(self._run, session))

    async def _run(self, session: Session) -> None:
        try:
            await session.run()
        except (ClosedError, FencedError):
            return
        except NotFoundError:  # what it retained was removed: its watchers begin anew, if what they need is there
            pass
        except SlateError as error:
            for watcher in list(session.watchers):
                self._fail(watcher, error)
        finally:
            self._sessions.pop(session, None)
            for watcher in list(session.watchers):
                self.behind[watcher] = None
            self._keep()
            self._woken.set()

    def _fail(self, watcher: Watcher, error: SlateError) -> None:
        """It ends with ``error``; or begins with a snapshot, if it asked for that and has got nothing yet."""
        if isinstance(error, NotFoundError) and watcher.fresh and watcher.initial == "snapshot" and watcher.place.seq:
            watcher.place = Place(0)
            return
        watcher.fail(partial(same_error, error))
        self.remove(watcher)


def _begins_anew(watcher: Watcher) -> bool:
    """Whether a snapshot is what it asks for."""
    return watcher.fresh and watcher.initial == "snapshot" and watcher.place == Place(0)


def _retains(retained: RetainedFeed, watcher: Watcher) -> bool:
    """Whether the feed gives it all that it needs, wherever that is opened again."""
    if _begins_anew(watcher):
        return retained.lowest_seq == retained.snapshot_seq and retained.place == Place(0)
    return watcher.place.seq >= retained.lowest_seq
