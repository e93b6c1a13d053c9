"""`FollowerPolling`: keeps a follower caught up, at each poll and when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import anyio

from slate_async.engine.follow.follower import Follower
from slate_async.engine.read.errors import about_a_read
from slate_async.errors import SlateError, UnavailableError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.polling import Poll, StorePolls
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)
POLL_ROUNDS = 4
"""A poll that finds more of the log than this many rounds read gives its turn back to the others."""
CLOSE_LIMIT_S = 10.0
"""Closing waits no longer for its checkpoints to be removed; they expire by themselves."""


class FollowerPolling:
    """Polls from `start` to `stop`, while ``guard`` is open.

    guard: raises if the reader can no longer answer
    give_up: gives back what the reader holds in the store, before an error ends it
    """

    def __init__(
        self,
        follower: Follower,
        name: str,
        supervisor: Supervisor,
        polls: StorePolls,
        guard: LoopGuard,
        give_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._follower = follower
        self._name = name
        self._supervisor = supervisor
        self._polls = polls
        self._guard = guard
        self._give_up = give_up
        self._poll: Poll | None = None
        self.polling = False
        self.failed_polls = 0
        """In a row."""

    def start(self, interval_s: float, on_failure: Callable[[BaseException], None]) -> None:
        """Poll every ``interval_s``; calls ``on_failure`` with the error that ends the polling."""
        self._poll = self._polls.register(interval_s, self.poll_due, on_failure)

    def stop(self) -> None:
        """Poll no more, and wake those that wait."""
        if self._poll is not None:
            self._polls.cancel(self._poll)
        self._follower.notify()

    async def refresh(self) -> None:
        """Catch up now. Raises `UnavailableError`, and what the guard raises."""
        work = self._supervisor.spawn("refresh", self._follower.catch_up(), critical=False)
        await asyncio.wait([work])  # a caller that is cancelled stops waiting; the work goes on
        self._guard.check()
        with about_a_read():
            work.result()

    async def wait_for(self, seq: int) -> None:
        """Wait until ``seq`` is here."""
        with contextlib.suppress(UnavailableError):  # then a later poll brings it
            await self.refresh()
        while self._follower.reader_state.last_seq < seq:
            await self._follower.wait_for_change()
            self._guard.check()

    async def close(self) -> None:
        """Stop following and remove the checkpoints. Not worth a failure, nor a long wait."""
        with anyio.move_on_after(CLOSE_LIMIT_S) as limit:
            try:
                await self._follower.close()
            except SlateError as error:
                logger.warning("%s: this reader's checkpoints stay until they expire: %s", self._name, error)
        if limit.cancelled_caught:
            logger.warning("%s: this reader's checkpoints stay until they expire: the store is slow", self._name)

    def poll_due(self) -> None:
        """The time for a poll has come; it is left out while another one is under way."""
        if not self.polling and self._guard.open:
            self.polling = True
            self._supervisor.spawn("poll", self._polls.limited(self.poll_once))

    async def poll_once(self) -> None:
        """One poll. Raises what ends the reader."""
        try:
            await self._follower.catch_up(POLL_ROUNDS, patient=True)
        except UnavailableError as error:
            self.failed_polls += 1
            logger.warning("%s: a poll of this reader failed, the next one tries again: %s", self._name, error)
        except SlateError:
            await self._give_up()  # this ends the reader, and what it holds must not keep a destroyed database
            raise
        else:
            self.failed_polls = 0
        finally:
            self.polling = False
