"""`Hold`: the checkpoint that keeps what a feed has not delivered, or its consumer not acknowledged.

Invariant: what is above the mark that the manifest has is all there while the checkpoint is. The mark follows the
consumer, seldom: a commit for every batch would get in the way of the writer's own. It moves when half of the
checkpoint's life is over, with the commit that lengthens it; of a hold with a name, when there is something to move and
an eighth of that time has passed since the last commit; and whenever it is asked for.
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
from slate_async.storage.manifest.edits.subscriptions import MoveHold, OpenHold
from slate_async.storage.manifest.state import Checkpoint, FeedMark, ManifestState

logger = logging.getLogger(__name__)
PATIENCE = 1 / 8
MOST_PLACES = 1_024
END_LIMIT_S = 10.0
"""Ending waits no longer for a checkpoint to be removed or moved."""


class Place(NamedTuple):
    """Every row above ``seq`` is in the log from ``position`` on."""

    seq: int
    position: Position


class FeedPlace(NamedTuple):
    """Where a feed stands, for who reads on from there elsewhere. Rows above ``seq`` come next: up to ``log_seq`` from
    SSTs, if it is larger, and above it from the log, position ``log_position`` on.

    log_floor: the epoch below which objects from there on are a zombie's"""

    seq: int
    log_seq: int
    log_position: int
    log_floor: int


@dataclass(slots=True)
class HoldStats:
    """Counters of the holds of one owner's feeds."""

    made: int = 0
    moved: int = 0
    lost: int = 0


class Hold:
    """One hold, whose checkpoint is ``made``.

    pace_ms: commits that nobody waits for are an eighth of this apart, or more
    life_ms: how long it lives after each commit; ``None`` for ever
    """

    def __init__(
        self,
        made: Checkpoint,
        driver: ManifestDriver,
        runtime: Runtime,
        *,
        pace_ms: int,
        life_ms: int | None,
        stats: HoldStats,
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
        self._places = [Place(mark.log_seq, Position(mark.log_position, mark.log_floor))]

    # ---- where it stands

    def passed(self, place: Place) -> None:
        """Rows up to ``place`` were read from the log. Places come in order."""
        self._places.append(place)
        if len(self._places) > MOST_PLACES:
            self._places = [self._places[0], *self._places[2::2]]  # coarser: a little more is held

    def place_of(self, seq: int) -> FeedPlace:
        """Where a feed that has given the rows up to ``seq`` stands, as far as is known: perhaps a little before."""
        last = max(0, bisect_right(self._places, seq, key=lambda place: place.seq) - 1)
        log_seq, (position, floor) = self._places[last]
        return FeedPlace(seq, log_seq, position, floor)

    def acknowledge(self, seq: int) -> None:
        """Rows up to ``seq`` are not needed any more. Never goes back."""
        self.acknowledged = max(self.acknowledged, seq)
        if self._due():
            self._wake.set()

    @property
    def _wanted(self) -> FeedMark:
        """Where it should stand."""
        last = bisect_right(self._places, self.acknowledged, key=lambda place: place.seq) - 1
        if last < 0:
            return replace(self._mark, seq=self.acknowledged)
        seq, (position, floor) = self._places[last]
        return replace(self._mark, seq=self.acknowledged, log_seq=seq, log_position=position, log_floor=floor)

    # ---- commits

    async def settle(self) -> None:
        """Let the manifest say what was acknowledged by the call. Raises `InvalidError` if the hold is gone,
        `UnavailableError`."""
        async with self._lock:
            wanted, now = self._wanted, self._runtime.clock.now_ms()
            expire_ms = None if self._life_ms is None else now + self._life_ms
            if wanted == self._mark and expire_ms == self._expire_ms:
                return
            await self._driver.commit(MoveHold(self.id, wanted, expire_ms))
            self._mark, self._expire_ms, self._committed_ms = wanted, expire_ms, now
            self._places = [place for place in self._places if place.seq >= wanted.log_seq]
            self._stats.moved += 1

    async def live(self, life_ms: int | None) -> None:
        """From now on it lives so long after each commit, the one that this makes included; ``None``: for ever. Raises
        as `settle`."""
        self._life_ms = life_ms
        await self.settle()

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
                await self._try("moved", self.settle)
        await self._give_up()

    async def _give_up(self) -> None:
        """A hold with a name stays, where its consumer stands; any other is removed, or expires."""
        with anyio.move_on_after(END_LIMIT_S):
            if self.name is None:
                await self._try("removed", self.remove)
            elif self.acknowledged > self._mark.seq:
                await self._try("moved", self.settle)

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ClosedError:
            pass
        except UnavailableError as error:
            logger.warning("%s: a change feed's hold could not be %s: %s", self._path, what, error)
        except SlateError as error:  # its feed finds out, and says so to whoever reads it
            logger.info("%s: a change feed's hold could not be %s: %s", self._path, what, error)

    async def anew(self, seq: int) -> tuple[ManifestState, FeedMark]:
        """Hold what the newest state has of the rows above ``seq`` (with a name: above what was acknowledged), in place
        of what is held now; the state, and the mark in it. Raises `InvalidError` if it does not have all of it."""
        async with self._lock:
            now = self._runtime.clock.now_ms()
            expire_ms = None if self._life_ms is None else now + self._life_ms
            since = seq if self.name is None else min(seq, self.acknowledged)
            edit = OpenHold(self._runtime.ids.uuid(), now, expire_ms, since, name=self.name, instead_of=self.id)
            made = await committed(self._driver, edit)
            self._stats.lost += 1
            self._adopt(made.checkpoint)
            return made.state, self._mark

    async def remove(self) -> None:
        """Remove the checkpoint. Idempotent."""
        await self._driver.commit(DeleteCheckpoints(frozenset((self.id,))))

    # ---- its end

    def start(self, supervisor: Supervisor) -> None:
        """Start the task that keeps it."""
        self._task = supervisor.spawn("change feed's hold", self._run(), critical=False)

    async def finish(self) -> None:
        """`end`, and wait until that is done. Idempotent; a caller that is cancelled stops waiting."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task])

    def end(self) -> None:
        """Let the task come to its end. Idempotent."""
        self._ended = True
        self._wake.set()

    def abandon(self) -> None:
        """As `end`, from whichever thread collects a feed that was dropped."""
        if not self._ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.end)


class Made(NamedTuple):
    """A hold in the manifest, and the state it names."""

    checkpoint: Checkpoint
    state: ManifestState


async def committed(driver: ManifestDriver, edit: OpenHold) -> Made:
    """Commit ``edit``. Raises what it raises, `UnavailableError`."""
    return await named(driver, await driver.commit(edit), edit.id)


async def named(driver: ManifestDriver, state: ManifestState, hold_id: UUID) -> Made:
    """The hold of that id in the committed ``state``, with the state it names. Raises `InvalidError` if it is gone."""
    found = state.checkpoint(hold_id)
    if found is None or found.feed is None:
        raise gone(None)
    kept = await driver.read(found.ref)
    if kept is None:
        head = await driver.load()
        if head is None or head.checkpoint(hold_id) is None:
            raise gone(found.name)
        raise CorruptionError(
            f"is missing, though checkpoint {hold_id} names it", object_name=f"manifest version {found.ref.version}"
        )
    return Made(found, kept)


def gone(name: str | None) -> NotFoundError:
    """The error of a feed whose hold is not there any more."""
    what = "this feed's hold" if name is None else f"the hold {name!r} of this feed"
    return NotFoundError(
        f"{what} is gone: it expired and was collected, it was deleted, or another feed took it over; open a feed from"
        " the last sequence number that was seen"
    )
