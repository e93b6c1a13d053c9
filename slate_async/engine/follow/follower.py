"""`Follower`: keeps a `ReaderState` at the head of a living database, round by round.

A round: objects at the log's tail -> the head, read after them -> if the log still starts where they were read from,
they are replayed, else the round is dropped (rule 13) -> the head is adopted, once a checkpoint of ours covers it (rule
20); before the replay if it applies an ingest that the state lacks, for the log's rows from there on come after that
one (rule 30). A poll that finds neither a next log object nor a next manifest version, where the last round found
nothing to do, is a round: it concludes nothing but that (`Follower._nothing_new`). A round that was cancelled or failed
has done a whole number of these steps, and the next one goes on.

Rules 13 and 30: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from uuid import UUID

import anyio

from slate_async.engine.follow.pins import ReaderPins
from slate_async.engine.follow.reader_state import ReaderState
from slate_async.engine.follow.tail import Chunk, Gap, Tail
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.runtime.protocol import Clock
from slate_async.storage.log.names import PREFIX, position_of
from slate_async.storage.log.protocol import CheckPlace
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.reader import MissingError

logger = logging.getLogger(__name__)
FULL_ROUND_S = 150.0
"""So long polls may go by what they do not find. Then the log and the manifest are listed."""
ROUNDS = 64
"""So many rounds in a row make one catching up; what is left waits for the next."""


class Follower:
    """See the module docstring. ``pins`` is ``None`` for a reader that writes nothing. ``check_place`` looks again
    whether this is the database's place, before anything is called lost."""

    def __init__(
        self,
        reader_state: ReaderState,
        tail: Tail,
        driver: ManifestDriver,
        pins: ReaderPins | None,
        clock: Clock,
        check_place: CheckPlace,
    ) -> None:
        self.reader_state = reader_state
        self.pins = pins
        self._tail = tail
        self._driver = driver
        self._clock = clock
        self._check_place = check_place
        self._lock = asyncio.Lock()
        self._turn_scope: anyio.CancelScope | None = None
        self._closed = False
        self._change = asyncio.Event()
        self._quiet: tuple[float, ManifestState] | None = None
        """When the last full round began, and the head it saw, if it left nothing to do."""
        self.rounds = self.dropped = 0
        self.caught_up_ms = 0
        """Wall clock: everything durable before then is in the reader's state."""

    @property
    def checkpoint_id(self) -> UUID | None:
        """See `ReaderSource`."""
        return None if self.pins is None else self.pins.current_id

    def expiry_time_ms(self, now_ms: int) -> int:
        """See `ReaderSource`: by the clock of the reader."""
        return now_ms

    async def catch_up(self, rounds: int = ROUNDS, *, patient: bool = False) -> bool:
        """Read the log and the manifest as they are now, or newer, in up to so many rounds; whether that was all.

        ``patient``: SSTs that hold what is in memory already may wait until going over to them is worth a commit.
        Raises `UnavailableError`, `CorruptionError`, `InvalidError` if there is no usable database any more."""
        async with self._turn():
            for _ in range(rounds):
                if self._closed or not await self._round(patient):
                    return True
        return False

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the lock for one turn, which `close` cancels in whichever task it runs."""
        async with self._lock:
            with anyio.CancelScope() as self._turn_scope:
                yield

    async def _round(self, patient: bool = False) -> bool:
        """One round; whether another one should follow at once."""
        self.rounds += 1
        began_ms, began = self._clock.now_ms(), self._clock.monotonic()
        if patient and await self._nothing_new(began):
            if self.pins is not None:
                await self.pins.upkeep()
            self.caught_up_ms = began_ms
            return False
        self._quiet = None
        first = self.reader_state.position.next_id
        chunk = await self._tail.read(self.reader_state.position)
        head = await self._head()
        if head.log_start > first:
            self.dropped += 1
            logger.debug("the log's start moved from %d to %d during a round", first, head.log_start)
            await self._adopt(head)
            return True
        await self._refuse_hole(chunk, head)
        await self._refuse_lost(chunk.gap, head)
        if self.reader_state.half_full or lacks_ingest(self.reader_state.manifest, head):
            await self._adopt(head)
            if self.reader_state.position.next_id != first:
                return True
        if not await self._replay(chunk):
            return True
        if not (patient and self._may_wait(head)):
            await self._adopt(head)
        elif self.pins is not None:
            await self.pins.upkeep()
        if not chunk.more:
            self.caught_up_ms = began_ms
            if not chunk.objects and chunk.gap is None:
                self._quiet = began, head
        return chunk.more

    async def _nothing_new(self, now: float) -> bool:
        """Whether there is neither a next object of the log nor, after that was asked, a next manifest version."""
        if self._quiet is None or (self.pins is not None and self.pins.current_id is None):
            return False
        began, head = self._quiet
        if now - began > FULL_ROUND_S or self._driver.head is not head:
            return False
        return not await self._tail.more(self.reader_state.position) and await self._driver.unchanged()

    async def _head(self) -> ManifestState:
        head = await self._driver.load()
        if head is None:
            raise NotFoundError(f"there is no database at {self._driver.name} any more")
        check_usable(head)
        if head.database_id != self.reader_state.manifest.database_id:
            raise NotFoundError(
                f"{self._driver.name} was destroyed, and another database made in its place; open a reader on that"
            )
        return head

    async def _refuse_hole(self, chunk: Chunk, head: ManifestState) -> None:
        """The state that is followed said before ``chunk`` was read how far the log went at least; ``head``, read
        since, still needs all of that, unless the marker, read now, says that this is another place."""
        next_id, known_end = chunk.end.next_id, self.reader_state.manifest.log_last_seen
        if not chunk.more and next_id <= known_end:
            await self._check_place(head)
            raise CorruptionError(
                f"log position {next_id} is missing, though the log went on to {known_end} at least", object_name="log/"
            )

    async def _refuse_lost(self, gap: Gap | None, head: ManifestState) -> None:
        if gap is not None and gap.lost(head) and not await self._tail.there(gap):
            head = await self._head()
            if head.log_start <= gap.id and gap.lost(head):
                await self._check_place(head)
                raise CorruptionError("is missing, though the log went on behind it", object_name=gap.key)

    async def _replay(self, chunk: Chunk) -> bool:
        """Replay what was found; ``False`` if it went meanwhile, which a reader without checkpoints may meet."""
        before = self.reader_state.last_seq
        try:
            await self.reader_state.replay(chunk.objects, chunk.end)
        except MissingError as missing:
            head = await self._head()
            if _names(head, missing.object_name):
                raise
            await self._adopt(head)
            return False
        finally:
            if self.reader_state.last_seq > before:
                self.notify()
        return True

    def _may_wait(self, head: ManifestState) -> bool:
        """Whether everything of ``head`` is here and in memory that is not crowded."""
        if self.pins is None or head.log_start > self.reader_state.position.next_id or self.reader_state.crowded:
            return False
        return self.pins.may_wait(head)

    async def _adopt(self, head: ManifestState) -> None:
        state = head if self.pins is None else await self.pins.pin(head)
        self.reader_state.adopt(state)
        self.notify()
        if self.pins is not None:
            await self.pins.upkeep()

    async def close(self) -> None:
        """Stop following and remove the checkpoints. Raises `UnavailableError`; what stays then expires."""
        self._closed = True
        if self._turn_scope is not None:
            self._turn_scope.cancel()
        async with self._lock:
            if self.pins is not None:
                await self.pins.close()

    # ---- tasks that wait

    async def wait_for_change(self) -> None:
        """Wait until the state has changed, or `notify` is called."""
        await self._change.wait()

    def notify(self) -> None:
        """Wake every task in `wait_for_change`."""
        self._change.set()
        self._change = asyncio.Event()

    # ---- what is missing

    async def advance_past(self, missing: MissingError) -> None:
        """Catch up to a state that does not name the object that was missed. Raises ``missing`` if the newest does."""
        begun = self.rounds
        async with self._turn():
            if self.rounds == begun and not self._closed:  # else somebody has looked since it was missed
                await self._round()
        if _names(self.reader_state.manifest, missing.object_name):
            raise missing


def lacks_ingest(state: ManifestState, head: ManifestState) -> bool:
    """Rule 30: whether ``head`` has applied an ingest that ``state`` lacks, and that log rows behind it follow."""
    return head.ingest_seq > state.ingest_seq


def _names(state: ManifestState, key: str) -> bool:
    if key.startswith(PREFIX) and position_of(key) >= state.log_start:
        return True
    return any(sst.location == key for sst in state.ssts())
