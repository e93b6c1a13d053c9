"""The epoch-prefixed log: ``log/{epoch:018}.{id:018}.sst``, over a store that may lack conditional puts.

The writer's register decides everything (rules 15 to 18): a takeover reads and replaces in one compare-and-set the
very cell by which the old writer commits its acknowledgements, so what was committed is inside what is inherited.
Objects past a closed epoch's end, or outside an epoch's range, are garbage.

Rules 15, 16, 17, 18 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from metastores.protocol import Cell, Committed, Conflict, Register
from slate_async.errors import CorruptionError, FencedError, UnavailableError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log import register as codec
from slate_async.storage.log.listing import has_log
from slate_async.storage.log.names import PREFIX, epoch_key, parse_epoch_prefixed
from slate_async.storage.log.protocol import (
    NO_REPLAY,
    CheckPlace,
    Inherited,
    LogObject,
    Replay,
    check_claim,
    copied_metadata,
    nothing_to_prove,
)
from slate_async.storage.log.reader import LogReader
from slate_async.storage.log.recovery import recover_epoch_prefixed
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)


class EpochPrefixedLog:
    """See `slate_async.storage.log.protocol.Log`. ``load_head`` reads the committed head from the metastore."""

    def __init__(
        self,
        store: ObjectStore,
        reader: LogReader,
        register: Register,
        load_head: Callable[[], Awaitable[ManifestState | None]],
        runtime: Runtime,
        *,
        deadline_ms: int,
        takeover_deadline_ms: int,
        gap_wait_ms: int,
        check_place: CheckPlace = nothing_to_prove,
    ) -> None:
        self._store = store
        self._reader = reader
        self._register = register
        self._load_head = load_head
        self._check_place = check_place
        self._runtime = runtime
        self._deadline_ms = deadline_ms
        self._takeover_deadline_ms = takeover_deadline_ms
        self._gap_wait_ms = gap_wait_ms
        self._epoch = 0
        self._held = EMPTY
        self._tag: str | None = None

    def key(self, log_id: int) -> str:
        """``log/{epoch:018}.{id:018}.sst`` of the writer's own epoch."""
        return epoch_key(self._epoch, log_id)

    # ---- takeover

    async def take_over(self, claimed: ManifestState, replay: Replay = NO_REPLAY) -> Inherited:
        """Take the register, replay what it says, and validate against the head read last."""
        self._epoch = claimed.writer_epoch
        backoff = Backoff(self._runtime, self._takeover_deadline_ms, "taking over the writer's register")
        await self._take_register(claimed, backoff)
        next_id = self._held.last_written + 1
        state = claimed
        while True:
            objects, missing = await self._replay(state, next_id, replay)
            head = await self._validated_head(claimed)
            if missing is None and head.log_start == state.log_start:
                return Inherited(state, tuple(objects), next_id)
            if missing is not None and head.log_start <= missing:
                await self._check_place(head)
                raise CorruptionError(
                    "a committed log object is missing", object_name=epoch_key(self._held.owner(missing) or 0, missing)
                )
            await backoff.wait()
            state = head

    async def _take_register(self, claimed: ManifestState, backoff: Backoff) -> None:
        """Rules 16 to 18: replace the register, upwards in epoch only, inheriting what its owner left."""
        while True:
            cause: UnavailableError | None = None
            try:
                if await self._try_to_take(claimed):
                    return
            except UnavailableError as error:
                cause = error
            await backoff.wait(cause)

    async def _try_to_take(self, claimed: ManifestState) -> bool:
        cell, current = await self._read()
        if cell is None and await has_log(self._store, claimed.log_start):
            cell, current = await self._read()
            if cell is None:
                raise CorruptionError("is missing, though there is a log", object_name="writer register")
        if current.epoch > self._epoch:
            raise FencedError(f"writer epoch {current.epoch} took over from epoch {self._epoch} while it was opening")
        if current.epoch == self._epoch:
            if current.token != claimed.writer_token:
                raise FencedError(f"another writer holds epoch {self._epoch} in the writer register")
            self._hold(current, cell)  # an attempt of ours whose answer was lost
            return True
        end = await self._end_of(current)
        await self._check_place(claimed)  # that nothing more is there counts only if this is the place (R10)
        taken = current.claim(
            self._epoch,
            claimed.writer_token,
            inherited_end=end,
            log_start=claimed.log_start,
            held_from=self._held_from(claimed),
        )
        outcome = await translated(
            self._register.compare_and_set(None if cell is None else cell.tag, codec.encode(taken))
        )
        if not isinstance(outcome, Committed):
            return False
        self._held, self._tag = taken, outcome.value
        return True

    def _held_from(self, claimed: ManifestState) -> int:
        """Change feeds read the log from before its start on, and ask the register whose its positions are. One that
        begins after the claim begins no lower than where the log of the claim starts."""
        return claimed.log_held_from

    async def _end_of(self, current: WriterRegister) -> int:
        """Rule 17: where the old epoch's objects end, those past ``last_written`` included while contiguous."""
        end = current.last_written
        if not current.ranges:
            return end
        present = await self._ids_past(current.epoch, end)
        if self._gap_wait_ms and present and max(present) != end + len(present):
            await self._runtime.clock.sleep(self._gap_wait_ms / 1000)
            present = await self._ids_past(current.epoch, end)
        objects = [(current.epoch, log_id) for log_id in present]
        log = recover_epoch_prefixed(objects, current.ranges, last_compacted=end)
        return log[0][1] if log else end

    async def _ids_past(self, epoch: int, last_written: int) -> dict[int, None]:
        ids: dict[int, None] = {}
        prefix = f"{PREFIX}{epoch:018}."
        async for info in self._store.list(prefix, start_after=epoch_key(epoch, last_written)):
            ids[parse_epoch_prefixed(info.key)[1]] = None
        return ids

    async def _replay(self, state: ManifestState, next_id: int, replay: Replay) -> tuple[list[LogObject], int | None]:
        """The objects from ``log_start`` on, or the first id that is not there."""
        replay.begin(state)
        objects: list[LogObject] = []
        for log_id in range(state.log_start, next_id):
            if self._held.owner(log_id) is None:
                return [], log_id
        async with aclosing(self._reader.read_ahead(self._wanted(state.log_start, next_id - 1))) as reading:
            async for log_id, _, found in reading:
                if found is None:
                    return objects, log_id
                if found.header.writer_epoch != self._held.owner(log_id):
                    raise CorruptionError(
                        f"was written by epoch {found.header.writer_epoch}, not by its position's owner",
                        object_name=found.key,
                    )
                await replay.add(found)
                objects.append(found.without_data())
        await replay.drain()
        return objects, None

    async def _wanted(self, first: int, last: int) -> AsyncGenerator[tuple[int, str, int]]:
        """``(position, key, size)`` of the positions from ``first`` to ``last``, which all have owners. A listing
        brings the sizes; it decides nothing: what it does not show is asked for all the same."""
        ranges = self._held.ranges
        for (epoch, start, _), later in zip(ranges, (*ranges[1:], None), strict=True):
            next_id, end = max(first, start), last if later is None else min(last, later.starting_sst - 1)
            if next_id > end:
                continue
            listing = self._store.list(f"{PREFIX}{epoch:018}.", start_after=epoch_key(epoch, next_id - 1))
            async for info in listing:
                listed = min(parse_epoch_prefixed(info.key)[1], end)
                for log_id in range(next_id, listed + 1):
                    yield log_id, epoch_key(epoch, log_id), info.size
                next_id = listed + 1
                if listed == end:
                    break
            for log_id in range(next_id, end + 1):
                yield log_id, epoch_key(epoch, log_id), 0

    async def _validated_head(self, claimed: ManifestState) -> ManifestState:
        """The head as it is now; it must still name this claim."""
        return check_claim(await self._load_head(), claimed)

    # ---- life

    async def write(self, log_id: int, data: bytes) -> None:
        """Put the object under this epoch's own name; repeating it changes nothing."""
        metadata = copied_metadata(self._epoch, data)
        backoff = Backoff(self._runtime, self._deadline_ms, f"putting {self.key(log_id)}")
        while True:
            try:
                await backoff.attempt(self._store.put(self.key(log_id), data, metadata=metadata))
            except UnavailableError as error:
                await backoff.wait(error)
            else:
                return

    async def publish(self, log_id: int) -> None:
        """Rule 15: ``last_written = log_id`` iff the register is still this epoch's and behind it."""
        backoff = Backoff(self._runtime, self._deadline_ms, f"committing log position {log_id}")
        while self._held.last_written < log_id:
            try:
                settled = await backoff.attempt(self._try_to_publish(log_id))
            except UnavailableError as error:  # refused unjudged, or not read: what was held still is
                await backoff.wait(error)
                continue
            if not settled:
                await backoff.wait()
                await self._reread(backoff)
            elif self._held.last_written < log_id:  # beaten by an earlier attempt of this writer's that came late
                await backoff.wait()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Those of the register as this writer took it."""
        return self._held.owners

    async def _try_to_publish(self, log_id: int) -> bool:
        """One compare-and-set; ``False`` if its outcome is unknown."""
        wanted = self._published(log_id)
        outcome = await translated(self._register.compare_and_set(self._tag, codec.encode(wanted)))
        if isinstance(outcome, Committed):
            self._held, self._tag = wanted, outcome.value
        elif isinstance(outcome, Conflict):
            current = EMPTY if outcome.current is None else codec.decode(outcome.current.value)
            self._check_owner(current)
            self._hold(current, outcome.current)
        else:
            return False
        return True

    async def _reread(self, backoff: Backoff) -> None:
        """After an unknown outcome: what the register holds now."""
        while True:
            try:
                cell, current = await backoff.attempt(self._read())
            except UnavailableError as error:
                await backoff.wait(error)
                continue
            self._check_owner(current)
            self._hold(current, cell)
            return

    def _published(self, log_id: int) -> WriterRegister:
        return self._held.publish(log_id)

    def _check_owner(self, current: WriterRegister) -> None:
        if current.epoch != self._epoch or current.token != self._held.token:
            raise FencedError(f"writer epoch {current.epoch} took over from epoch {self._epoch}", outcome="unknown")

    def _hold(self, current: WriterRegister, cell: Cell | None) -> None:
        self._held, self._tag = current, None if cell is None else cell.tag

    async def _read(self) -> tuple[Cell | None, WriterRegister]:
        cell = await translated(self._register.read())
        return cell, EMPTY if cell is None else codec.decode(cell.value)
