"""`HeadPolling`: looks at the manifest's head beside a writer, at each poll and when it is asked to.

A head that another writer owns ends this one; any other head is adopted.

Rules 14 and 23: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from slate_async.engine.write.reopen import Reopening
from slate_async.engine.write.writer import Writer
from slate_async.errors import ClosedError, UnavailableError
from slate_async.runtime.idle import IdlePoll, PollIntervals
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.polling import Poll, StorePolls
from slate_async.runtime.protocol import Clock
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import DestroyedError, fenced

logger = logging.getLogger(__name__)
POLL_LIMIT_S = 10.0
"""A poll without an answer then gives its turn back to the other databases."""


class HeadPolling:
    """Polls from `start` to `stop`, while ``guard`` is open and there is no outage. ``writer`` is replaced when the
    database opens again after one.

    fail: ends the database with a cause
    """

    def __init__(
        self,
        writer: Writer,
        driver: ManifestDriver,
        reopening: Reopening,
        polls: StorePolls,
        guard: LoopGuard,
        *,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.writer = writer
        self._driver = driver
        self._reopening = reopening
        self._name = reopening.context.name
        self._supervisor: Supervisor = reopening.supervisor
        self._polls = polls
        self._guard = guard
        self._fail = fail
        self.poll: Poll | None = None
        self._idle: IdlePoll | None = None
        self.polling = False

    def start(self, intervals: PollIntervals, clock: Clock) -> None:
        """Poll as often as the settings say."""
        self._idle = IdlePoll(self.poll_due, self._last_seq, intervals, clock, self._expects_more)
        self.poll = self._polls.register(self._idle.interval_s, self._tick, self._fail)

    def stop(self) -> None:
        """Poll no more."""
        if self.poll is not None:
            self._polls.cancel(self.poll)

    def _tick(self) -> None:
        assert self._idle is not None  # it is called by what `start` registers
        assert self.poll is not None
        self._polls.retime(self.poll, self._idle.interval_s)
        self._idle.tick()

    def poll_due(self) -> None:
        """The time for a poll has come; it is left out while another one is under way."""
        if self.polling or not self._guard.open or self._reopening.outage is not None:
            return
        self.polling = True
        self._supervisor.spawn("manifest poll", self._polls.limited(self.poll_once))

    async def poll_once(self) -> None:
        """One poll. Raises what ends the database."""
        try:
            with anyio.move_on_after(POLL_LIMIT_S) as limit:
                await self._adopt(poll=True)
            if limit.cancelled_caught:
                logger.warning("%s: no answer to a poll of the manifest within %g s", self._name, POLL_LIMIT_S)
        except self._reopening.passing as error:
            logger.warning("%s: the manifest could not be polled: %s", self._name, error)
        finally:
            self.polling = False
            self.writer.signals.polled()

    async def adopt_head(self) -> None:
        """Read the head and adopt it. Raises `FencedError`, after it ended the database, if another writer owns it."""
        await self._adopt()

    async def _adopt(self, *, poll: bool = False) -> None:
        """See `adopt_head`; with ``poll`` the head is polled (`ManifestDriver.poll`)."""
        head = await (self._driver.poll() if poll else self._driver.load())
        if head is None and self._reopening.outage is not None:
            raise UnavailableError("the store answers, but the manifest is missing: the store is empty, or another one")
        if head is None or not self._reopening.is_own(head):
            cause = DestroyedError("its manifest was removed") if head is None else fenced(head, self.writer.epoch)
            self._fail(cause)
            raise cause
        if self._guard.open and self._reopening.outage is None:
            try:
                await self.writer.follow(head)
            except ClosedError as error:
                self._guard.check()  # says why it closed
                raise UnavailableError(f"the store is out of reach: {self._reopening.outage}") from error

    def _last_seq(self) -> int:
        return self.writer.sequencer.last_seq

    def _expects_more(self) -> bool:
        return self.writer.ingests.expects_more()
