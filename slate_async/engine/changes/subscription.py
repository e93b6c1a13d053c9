"""`Subscription`: the checkpoint that keeps what a feed has not delivered, or its consumer not acknowledged.

Invariant: what is above the mark that the manifest has is all there while the checkpoint is. The mark follows the
consumer, seldom: a commit for every batch would get in the way of the writer's own. It moves when half of the
checkpoint's life is over, with the commit that lengthens it; of a subscription with a name, when there is something to
move and an eighth of that time has passed since the last commit; and whenever it is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

import anyio

from slate_async.engine.follow.tail import Position
from slate_async.errors import ClosedError, CorruptionError, NotFoundError, SlateError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.subscriptions import MoveSubscription, OpenSubscription
from slate_async.storage.manifest.state import Checkpoint, FeedMark, ManifestState

logger = logging.getLogger(__name__)
PATIENCE = 1 / 8
MAX_LOG_POSITIONS = 1_024
END_LIMIT_S = 10.0
"""Ending waits no longer for a checkpoint to be removed or moved."""


class LogPosition(NamedTuple):
    """Every row above ``seq`` is in the log from ``position`` on."""

    seq: int
    position: Position


class FeedPosition(NamedTuple):
    """Where a feed is, for a process that reads on from there elsewhere. Rows above ``seq`` come next: up to
    ``log_seq`` from SSTs, if it is larger, and above it from the log, position ``log_position`` on.

    log_floor: the epoch below which objects from there on are a zombie's"""

    seq: int
    log_seq: int
    log_position: int
    log_floor: int


@dataclass(slots=True)
class SubscriptionStats:
    """Counters of the subscriptions of one database's feeds."""

    made: int = 0
    moved: int = 0
    lost: int = 0


class Subscription:
    """One subscription, whose checkpoint is ``made``.

    pace_ms: commits that nobody waits for are an eighth of this apart, or more
    life_ms: how long it lives after each commit; ``None`` forever
    """

    def __init__(
        self,
        made: Checkpoint,
        driver: ManifestDriver,
        runtime: Runtime,
        *,
        pace_ms: int,
        life_ms: int | None,
        stats: SubscriptionStats,
        path: str,
    ) -> None:
        assert made.feed is not None
        self.id: UUID = made.id
        self.name = made.name
        self._driver = driver
        self._runtime = runtime
        self._pace_ms = pace_ms
        self._life_ms = life_ms
        self._stats = stats
        self._path = path
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._adopt(made)

    def _adopt(self, made: Checkpoint) -> None:
        assert made.feed is not None
        mark = made.feed
        self.id = made.id
        self._mark = mark
        self._expire_ms = made.expire_ms
        self._committed_ms = self._runtime.clock.now_ms()
        self.acknowledged = mark.seq
        self._log_positions = [LogPosition(mark.log_seq, Position(mark.log_position, mark.log_floor))]

    # ---- where it stands

    def passed(self, position: LogPosition) -> None:
        """Rows up to ``position`` were read from the log. Positions come in order."""
        self._log_positions.append(position)
        if len(self._log_positions) > MAX_LOG_POSITIONS:  # coarser from now on: a little more is retained
            self._log_positions = [
                self._log_positions[0],
                *self._log_positions[2::2],
            ]

    def position_of(self, seq: int) -> FeedPosition:
        """Where a feed that has given the rows up to ``seq`` stands, as far as is known: perhaps a little before."""
        last = max(0, bisect_right(self._log_positions, seq, key=lambda position: position.seq) - 1)
        log_seq, (position, floor) = self._log_positions[last]
        return FeedPosition(seq, log_seq, position, floor)

    def acknowledge(self, seq: int) -> None:
        """Rows up to ``seq`` are not needed any more. Never goes back."""
        self.acknowledged = max(self.acknowledged, seq)
        if self._due():
            self._wake.set()

    @property
    def _target(self) -> FeedMark:
        """Where it should stand."""
        last = bisect_right(self._log_positions, self.acknowledged, key=lambda position: position.seq) - 1
        if last < 0:
            return replace(self._mark, seq=self.acknowledged)
        seq, (position, floor) = self._log_positions[last]
        return replace(self._mark, seq=self.acknowledged, log_seq=seq, log_position=position, log_floor=floor)

    # ---- commits

    async def commit(self) -> None:
        """Commit what was acknowledged by the call to the manifest. Raises `InvalidError` if the subscription no longer
        exists, `UnavailableError`."""
        async with self._lock:
            target, now = self._target, self._runtime.clock.now_ms()
            expire_ms = None if self._life_ms is None else now + self._life_ms
            if target == self._mark and expire_ms == self._expire_ms:
                return
            await self._driver.commit(MoveSubscription(self.id, target, expire_ms))
            self._mark, self._expire_ms, self._committed_ms = target, expire_ms, now
            self._log_positions = [position for position in self._log_positions if position.seq >= target.log_seq]
            self._stats.moved += 1

    async def renew(self, life_ms: int | None) -> None:
        """From now on it lives so long after each commit, the one that this makes included; ``None``: forever. Raises
        as `commit`."""
        self._life_ms = life_ms
        await self.commit()

    def _due(self) -> bool:
        now = self._runtime.clock.now_ms()
        if self._expire_ms is not None and self._life_ms is not None and self._expire_ms - now < self._life_ms / 2:
            return True
        moved = self.name is not None and self.acknowledged > self._mark.seq
        return moved and now - self._committed_ms >= self._pace_ms * PATIENCE

    @property
    def _pause_s(self) -> float:
        """Between two looks at the clock: some while half of a short life is over, too."""
        shortest_ms = self._pace_ms if self._life_ms is None else min(self._pace_ms, self._life_ms)
        return shortest_ms * PATIENCE / 1000

    async def _run(self) -> None:
        """Keep it alive and moving until `end`, then give it up."""
        while not self._ended:
            with anyio.move_on_after(self._pause_s):
                await self._wake.wait()
            self._wake.clear()
            if not self._ended and self._due():
                await self._try("moved", self.commit)
        await self._give_up()

    async def _give_up(self) -> None:
        """A subscription with a name stays, where its consumer stands; any other is removed, or expires."""
        with anyio.move_on_after(END_LIMIT_S):
            if self.name is None:
                await self._try("removed", self.remove)
            elif self.acknowledged > self._mark.seq:
                await self._try("moved", self.commit)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ClosedError:
            pass
        except UnavailableError as error:
            logger.warning("%s: a change feed's subscription could not be %s: %s", self._path, what, error)
        except SlateError as error:  # its feed finds out, and its consumer with it
            logger.info("%s: a change feed's subscription could not be %s: %s", self._path, what, error)

    async def anew(self, seq: int) -> tuple[ManifestState, FeedMark]:
        """Retain what the newest state has of the rows above ``seq`` (with a name: above what was acknowledged), in
        place of what is retained now; the state, and the mark in it. Raises `InvalidError` if it does not have all of
        it."""
        async with self._lock:
            now = self._runtime.clock.now_ms()
            expire_ms = None if self._life_ms is None else now + self._life_ms
            since = seq if self.name is None else min(seq, self.acknowledged)
            edit = OpenSubscription(self._runtime.ids.uuid(), now, expire_ms, since, name=self.name, instead_of=self.id)
            made = await open_subscription(self._driver, edit)
            self._stats.lost += 1
            self._adopt(made.checkpoint)
            return made.state, self._mark

    async def remove(self) -> None:
        """Remove the checkpoint. Idempotent."""
        await self._driver.commit(DeleteCheckpoints(frozenset((self.id,))))

    # ---- its end

    def start(self, supervisor: Supervisor) -> None:
        """Start the task that keeps it."""
        self._task = supervisor.spawn("change feed's subscription", self._run(), critical=False)

    async def finish(self) -> None:
        """`end`, and wait until that is done. Idempotent; a caller that is cancelled stops waiting."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task])

    def end(self) -> None:
        """Wait for the end of the task. Idempotent."""
        self._ended = True
        self._wake.set()

    def abandon(self) -> None:
        """As `end`, from whichever thread collects a feed that was dropped."""
        if not self._ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.end)


class LoadedSubscription(NamedTuple):
    """A subscription in the manifest, and the state it names."""

    checkpoint: Checkpoint
    state: ManifestState


async def open_subscription(driver: ManifestDriver, edit: OpenSubscription) -> LoadedSubscription:
    """Commit ``edit``. Raises what it raises, `UnavailableError`."""
    return await load_subscription(driver, await driver.commit(edit), edit.id)


async def load_subscription(driver: ManifestDriver, state: ManifestState, subscription_id: UUID) -> LoadedSubscription:
    """The subscription of that id in the committed ``state``, with the state it names. Raises `InvalidError` if it does
    not exist."""
    found = state.checkpoint(subscription_id)
    if found is None or found.feed is None:
        raise subscription_lost(None)
    kept = await driver.read(found.ref)
    if kept is None:
        head = await driver.load()
        if head is None or head.checkpoint(subscription_id) is None:
            raise subscription_lost(found.name)
        raise CorruptionError(
            f"is missing, though checkpoint {subscription_id} names it",
            object_name=f"manifest version {found.ref.version}",
        )
    return LoadedSubscription(found, kept)


def subscription_lost(name: str | None) -> NotFoundError:
    """The error of a feed whose subscription is not there any more."""
    what = "this feed's subscription" if name is None else f"the subscription {name!r} of this feed"
    return NotFoundError(
        f"{what} no longer exists: it expired, it was deleted, or another feed took it over; open a feed after the last"
        " sequence number that was processed"
    )
