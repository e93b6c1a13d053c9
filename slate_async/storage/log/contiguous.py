"""The contiguous log: ``log/{id:020}.sst``, ids without gaps, each put at most once (put-if-absent).

Takeover: replay, put a fence object at the first free id, then fill the whole width any writer's parallel puts may
span, then read the head again (rules 9 to 13). A live writer starts behind its fences, so it never meets an older
writer's object; a fenced writer meets a fence on its next put, or is behind one and can acknowledge nothing.

Rules 9, 10, 11, 12, 13, 14, 21 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind
from slate_async.errors import CorruptionError, FencedError, InternalError, UnavailableError
from slate_async.objectstore.protocol import CREATE, ObjectExistsError, ObjectStore
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.protocol import Runtime
from slate_async.storage.format.log_segment import encode_fence
from slate_async.storage.log.listing import LogMovedError, contiguous_ids
from slate_async.storage.log.names import contiguous_key
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
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
LOST_IDS_BEFORE_WAITING = 16


class ContiguousLog:
    """See `slate_async.storage.log.protocol.Log`. ``load_head`` reads the committed head from the metastore."""

    def __init__(
        self,
        store: ObjectStore,
        reader: LogReader,
        load_head: Callable[[], Awaitable[ManifestState | None]],
        runtime: Runtime,
        *,
        deadline_ms: int,
        takeover_deadline_ms: int,
        poll_interval_ms: int,
        check_place: CheckPlace = nothing_to_prove,
    ) -> None:
        self._store = store
        self._reader = reader
        self._load_head = load_head
        self._check_place = check_place
        self._runtime = runtime
        self._deadline_ms = deadline_ms
        self._takeover_deadline_ms = takeover_deadline_ms
        self._poll_interval_ms = poll_interval_ms
        self._epoch = 0

    def key(self, log_id: int) -> str:
        """``log/{id:020}.sst``"""
        return contiguous_key(log_id)

    # ---- takeover

    async def take_over(self, claimed: ManifestState, replay: Replay = NO_REPLAY) -> Inherited:
        """Replay up to the log's end, fence it there, and validate against the head read last (rule 9)."""
        self._epoch = claimed.writer_epoch
        state = claimed
        backoff = Backoff(self._runtime, self._takeover_deadline_ms, "taking over the log")
        while True:
            try:
                fence_id, objects = await self._walk(state, replay)
            except LogMovedError as moved:
                state = await self._after_gap(claimed, moved)
                await backoff.wait(moved)
                continue
            end = await self._widen_fence(state, fence_id)
            head = await self._validated_head(claimed)
            if self._replay_still_holds(state, head, fence_id):
                return Inherited(state, tuple(objects), end + 1)
            logger.info(
                "takeover begins again: the log's start moved from %d to %d meanwhile", state.log_start, head.log_start
            )
            await backoff.wait()
            state = head

    async def _after_gap(self, claimed: ManifestState, moved: LogMovedError) -> ManifestState:
        """The head to walk from. Raises `CorruptionError` if the object is missing and still belongs to the log; a
        listing that overtook its put only made it look so, and so does a newer writer with a wider window, which
        `FencedError` tells."""
        key = contiguous_key(moved.missing)
        found = await self._reader.read_header(moved.missing, key)
        head = await self._validated_head(claimed)
        if found is None and head.log_start <= moved.missing:
            await self._check_place(head)
            raise CorruptionError(str(moved), object_name=key) from moved
        return head

    async def _validated_head(self, claimed: ManifestState) -> ManifestState:
        """The head as it is now. Rule 9: it must still name this claim."""
        return check_claim(await self._load_head(), claimed)

    def _replay_still_holds(self, base: ManifestState, head: ManifestState, fence_id: int) -> bool:
        """Rules 9 and 21: the fence counts, and the replay's base stands, iff the log still starts where it did."""
        return head.log_start == base.log_start and head.log_start <= fence_id

    async def _walk(self, state: ManifestState, replay: Replay) -> tuple[int, list[LogObject]]:
        """Walk to the log's end and fence it there: the fence's id and the data objects before it."""
        walk = ContiguousWalk(state.log_start, self._initial_floor(state), self._epoch)
        backoff = Backoff(self._runtime, self._takeover_deadline_ms, "fencing the log")
        objects: list[LogObject] = []
        lost = 0
        replay.begin(state)
        while True:
            async with aclosing(self._present_from(walk.next_id, state.fence_width)) as present:
                async for found in present:
                    verdict = walk.offer(found.id, found.header.writer_epoch)
                    if verdict is Verdict.OWN:
                        return found.id, objects
                    if verdict is Verdict.HIGHER:
                        raise self._fenced_by(found.header, found.key)
                    if verdict is Verdict.VALID and found.header.kind is not ObjectKind.FENCE:
                        await replay.add(found)
                        objects.append(found.without_data())
            await replay.drain()  # an opening that cannot read the log must not fence it
            if walk.next_id <= state.log_last_seen:
                known_end = state.log_last_seen
                raise LogMovedError(f"is missing, though the log went on to {known_end}", walk.next_id, known_end)
            await self._check_place(state)  # that nothing is there counts only if this is the place (R10)
            if await self._put(walk.next_id, self._fence(state, walk.next_id)) is None:
                return walk.next_id, objects
            lost += 1  # a live writer got there first; after its next head check it stops (rule 14)
            if lost >= LOST_IDS_BEFORE_WAITING:
                await backoff.wait()
                await self._runtime.clock.sleep(self._poll_interval_ms / 1000)
                lost = 0

    def _initial_floor(self, state: ManifestState) -> int:
        """Rule 12: epochs below this are a zombie's from the start. Never taken from ``writer_epoch``, for a claim
        precedes its fence and the older epoch's objects between the two are valid."""
        return state.log_floor

    async def _present_from(self, first: int, width: int) -> AsyncGenerator[LogObject]:
        """The objects at ``first`` and the ids that follow it without a gap, read. Raises `LogMovedError` for one that
        was there once (see `contiguous_ids`)."""
        async with aclosing(self._reader.read_ahead(contiguous_ids(self._store, first, width))) as reading:
            async for log_id, _, found in reading:
                if found is None:
                    raise LogMovedError("was deleted while the log was read", log_id, log_id)
                yield found

    async def _widen_fence(self, state: ManifestState, fence_id: int) -> int:
        """Rule 10: fill ids after the fence, one after another, as wide as any writer's window. Returns the last."""
        end = fence_id + state.fence_width - 1
        for log_id in range(fence_id + 1, end + 1):
            found = await self._put(log_id, self._fence(state, log_id))
            if found is not None and found.writer_epoch > self._epoch:
                raise self._fenced_by(found, contiguous_key(log_id))
        return end

    def _fence(self, state: ManifestState, log_id: int) -> bytes:
        return encode_fence(
            database_id=state.database_id, log_id=log_id, epoch=self._epoch, manifest_version=state.version
        )

    def _fenced_by(self, header: ObjectHeader, key: str) -> FencedError:
        return FencedError(
            f"writer epoch {header.writer_epoch} took over from epoch {self._epoch} (it holds {key})",
            outcome="not_applied",
        )

    # ---- life

    async def write(self, log_id: int, data: bytes) -> None:
        """Put the object at its id; an id is never skipped and a body never moves to another id."""
        found = await self._put(log_id, data)
        if found is None:
            return
        key = contiguous_key(log_id)
        if found.writer_epoch > self._epoch:
            raise self._fenced_by(found, key)
        if found.writer_epoch == self._epoch:
            raise FencedError(
                f"{key} holds other bytes of epoch {self._epoch}, so another process writes as this epoch",
                outcome="unknown",
            )
        raise InternalError(
            f"{key} holds an object of epoch {found.writer_epoch} behind the fence of epoch {self._epoch}",
            outcome="unknown",
        )

    async def publish(self, log_id: int) -> None:
        """Nothing to do: an object put without a gap before it is part of the log."""

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """None: ids alone say what belongs to the log."""
        return ()

    async def _put(self, log_id: int, data: bytes) -> ObjectHeader | None:
        """Create the object. ``None``: these bytes are in, now or since an earlier attempt. Else what is there."""
        key = contiguous_key(log_id)
        own_header = data[:HEADER_BYTES]
        backoff = Backoff(self._runtime, self._deadline_ms, f"putting {key}")
        while True:
            cause: Exception
            try:
                put = self._store.put(key, data, mode=CREATE, metadata=copied_metadata(self._epoch, data))
                await backoff.attempt(put)
            except (ObjectExistsError, UnavailableError) as error:
                cause = error
            else:
                return None
            try:
                found = await backoff.attempt(self._reader.read_header(log_id, key))
            except UnavailableError as error:
                cause, found = error, None
            if found is not None:
                stored, header = found
                return None if stored == own_header else header
            await backoff.wait(cause)
