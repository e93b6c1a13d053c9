"""The log as a compactor may take it: without a WAL its objects are SSTs, the newest level above L0.

Nothing is written here, not even the writer's register. Rule 12: which epochs are a zombie's is judged from the
manifest's ``log_floor``. Rule 13: what was concluded from ids holds iff a head read *afterwards* still starts the log
where it started; otherwise the look begins anew from that head.

Rules 12, 13 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from metastores.protocol import Register
from slate_async.codec.header import ObjectHeader, ObjectKind
from slate_async.engine.compaction.spec import LogSst
from slate_async.errors import CorruptionError, NotFoundError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.runtime.concurrent import map_bounded
from slate_async.storage.log.extent import find_extent, log_keys
from slate_async.storage.log.names import epoch_key
from slate_async.storage.log.protocol import CheckPlace, LogObject, nothing_to_prove
from slate_async.storage.log.reader import READS_IN_PARALLEL, LogReader
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.manifest.edits.compactions import LogTaken
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.reference import stored_sst_ref

logger = logging.getLogger(__name__)
LOOKS = 8
"""How often a log whose start moves under the look is looked at anew."""


@dataclass(frozen=True, slots=True)
class LogLook:
    """Positions ``state.log_start`` to ``end`` of the log, all of them part of it for good.

    state: the head that the look was validated against
    end: the last position, ``state.log_start - 1`` if there is none
    ssts: what lies there, oldest first; fences and zombies' objects left out
    taken: what a commit of all of it says
    """

    state: ManifestState
    end: int
    ssts: tuple[LogSst, ...]
    taken: LogTaken


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of one log object. ``ref`` and ``last_tick_ms`` are those of an SST; ``None`` of others."""

    header: ObjectHeader
    ref: SstRef | None
    last_tick_ms: int


class LogSource:
    """Looks at the log of one database without a WAL. ``register``: the writer's, ``None`` for a contiguous log;
    ``check_place``: see `CheckPlace`, asked when something is wrong.

    Each object is looked at once: it never changes while it belongs to the log."""

    def __init__(
        self,
        store: ObjectStore,
        ssts: SstOpener,
        reader: LogReader,
        register: Register | None,
        load_head: Callable[[], Awaitable[ManifestState | None]],
        check_place: CheckPlace = nothing_to_prove,
    ) -> None:
        self._store = store
        self._ssts = ssts
        self._reader = reader
        self._register = register
        self._load_head = load_head
        self._check_place = check_place
        self._known: dict[str, _Known] = {}

    async def look(self, *, limit: int) -> LogLook:
        """Up to ``limit`` positions from the log's start on.

        Raises `CorruptionError` for an object that is missing or is no SST, `InvalidError` if the database was
        destroyed or has left this place, `UnavailableError`."""
        try:
            return await self._look(limit)
        except CorruptionError:
            await self._check_place(await self._head())  # what is missed counts only if this is the place (R10)
            raise

    async def _look(self, limit: int) -> LogLook:
        for _ in range(LOOKS):
            extent = await find_extent(self._store, self._load_head, self._register)
            state = await self._head()
            end = min(extent.end, state.log_start + limit - 1)
            wanted = log_keys(state.log_protocol, extent.ranges, state.log_start, end)
            await self._learn(wanted)
            head = await self._head()
            if head.log_start == state.log_start:
                return self._judge(head, wanted)
            logger.debug("the log's start moved from %d to %d under a look", state.log_start, head.log_start)
        raise UnavailableError(f"the log's start moved during each of {LOOKS} looks at it; try again")

    async def _head(self) -> ManifestState:
        head = await self._load_head()
        if head is None:
            raise NotFoundError("there is no database any more: its manifest is missing")
        return head

    async def _learn(self, wanted: list[tuple[int, str]]) -> None:
        """Read what is not known of ``wanted``, and forget all else."""
        self._known = {key: self._known[key] for _, key in wanted if key in self._known}
        new = [(log_id, key) for log_id, key in wanted if key not in self._known]
        if not new:
            return
        objects = [logged for logged in await self._reader.read_many(new) if logged is not None]
        for logged, known in zip(objects, await map_bounded(self._open, objects, READS_IN_PARALLEL), strict=True):
            if known is not None:
                self._known[logged.key] = known

    async def _open(self, logged: LogObject) -> _Known | None:
        """The object's header and, of an SST, its statistics; ``None`` if it was collected meanwhile."""
        if logged.header.kind is not ObjectKind.SST:
            return _Known(logged.header, None, 0)
        reader = self._ssts.open_log(logged.key, logged.size, logged.header.object_id, must_exist=False)
        try:
            stats = (await reader.load()).stats
        except ObjectNotFoundError:
            return None
        ref = stored_sst_ref(logged.key, logged.header.object_id, logged.size, stats, logged.header.writer_epoch)
        return _Known(logged.header, ref, stats.max_create_ms)

    def _judge(self, state: ManifestState, wanted: list[tuple[int, str]]) -> LogLook:
        walk = ContiguousWalk(state.log_start, state.log_floor)
        ssts: list[LogSst] = []
        tick = 0
        for position, key in wanted:
            known = self._known.get(key)
            if known is None:
                raise CorruptionError("is missing, though it is part of the log", object_name=key)
            epoch = known.header.writer_epoch
            if state.log_protocol == "epoch_prefixed" and key != epoch_key(epoch, position):
                raise CorruptionError(f"was written by epoch {epoch}, not by its position's owner", object_name=key)
            if walk.offer(position, epoch) is not Verdict.VALID or known.header.kind is ObjectKind.FENCE:
                continue
            if known.ref is None:
                raise CorruptionError(f"is a {known.header.kind.name}, not an SST", object_name=key, offset=10)
            ssts.append(LogSst(position, known.ref))
            tick = max(tick, known.last_tick_ms)
        last_seq = max((sst.ref.max_seq for sst in ssts), default=0)
        expire = min((sst.ref.min_expire_ms for sst in ssts if sst.ref.min_expire_ms is not None), default=None)
        taken = LogTaken(state.log_start, walk.floor, last_seq, tick, expire)
        return LogLook(state, walk.next_id - 1, tuple(ssts), taken)
