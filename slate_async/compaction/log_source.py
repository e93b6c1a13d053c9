"""The log as a compactor may take it: without a WAL its objects are SSTs, the newest level above L0.

Nothing is written here, not even the writer's register. Rule 12: which epochs are a zombie's is judged from the
manifest's ``log_floor``. Rule 13: what was concluded from ids holds iff a head read *afterwards* still starts the log
where it started; otherwise the look begins anew from that head.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from metastores.protocol import Register
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.format.header import ObjectKind
from slate_async.log.extent import LogExtent, find_extent, log_keys
from slate_async.log.names import epoch_key
from slate_async.log.protocol import LogObject, LogReader
from slate_async.log.recovery import ContiguousWalk, Verdict
from slate_async.manifest.state import ManifestState
from slate_async.objectstore.protocol import ObjectStore

logger = logging.getLogger(__name__)
LOOKS = 8
"""How often a log whose start moves under the look is looked at anew."""


@dataclass(frozen=True, slots=True)
class LogLook:
    """Positions ``state.log_start`` to ``end`` of the log, all of them part of it for good.

    state: the head that the look was validated against
    end: the last position, ``state.log_start - 1`` if there is none
    floor: the highest epoch among valid objects up to there
    objects: the SSTs at those positions, oldest first; fences and zombies' objects left out
    """

    state: ManifestState
    end: int
    floor: int
    objects: tuple[LogObject, ...]


class LogSource:
    """Looks at the log of one database without a WAL. ``reader`` reads headers; ``register`` is ``None`` for a
    contiguous log. A header is read once: an object of the log never changes."""

    def __init__(
        self,
        store: ObjectStore,
        reader: LogReader,
        register: Register | None,
        load_head: Callable[[], Awaitable[ManifestState | None]],
    ) -> None:
        self._store = store
        self._reader = reader
        self._register = register
        self._load_head = load_head
        self._known: dict[str, LogObject] = {}

    async def look(self, *, limit: int) -> LogLook:
        """Up to ``limit`` positions from the log's start on.

        Raises `CorruptionError` for an object that is missing or is no SST, `InvalidError` if the database is gone,
        `UnavailableError`."""
        for _ in range(LOOKS):
            extent = await find_extent(self._store, self._load_head, self._register)
            state = await self._head()
            found, missing = await self._look(state, extent, limit)
            head = await self._head()
            if head.log_start == state.log_start:
                if missing is not None:
                    raise CorruptionError("is missing, though it is part of the log", object_name=missing)
                return replace(found, state=head)
            logger.debug("the log's start moved from %d to %d under a look", state.log_start, head.log_start)
        raise UnavailableError(f"the log's start moved under each of {LOOKS} looks at it")

    async def _head(self) -> ManifestState:
        head = await self._load_head()
        if head is None:
            raise InvalidError("there is no database here any more")
        return head

    async def _look(self, state: ManifestState, extent: LogExtent, limit: int) -> tuple[LogLook, str | None]:
        """What is there, and the key of the first object that is not."""
        end = min(extent.end, state.log_start + limit - 1)
        wanted = log_keys(state.log_protocol, extent.ranges, state.log_start, end)
        walk = ContiguousWalk(state.log_start, state.log_floor)
        objects: list[LogObject] = []
        missing: str | None = None
        for (log_id, key), one in zip(wanted, await self._read(wanted), strict=True):
            if one is None:
                missing = key
                break
            epoch = one.header.writer_epoch
            if state.log_protocol == "epoch_prefixed" and key != epoch_key(epoch, log_id):
                raise CorruptionError(f"made by epoch {epoch}", object_name=key)
            if walk.offer(log_id, epoch) is Verdict.VALID and one.header.kind is not ObjectKind.FENCE:
                objects.append(_sst(one))
        return LogLook(state, walk.next_id - 1, walk.floor, tuple(objects)), missing

    async def _read(self, wanted: list[tuple[int, str]]) -> list[LogObject | None]:
        """The headers of ``wanted``; those of other positions are forgotten."""
        self._known = {key: self._known[key] for _, key in wanted if key in self._known}
        new = [(log_id, key) for log_id, key in wanted if key not in self._known]
        if new:
            for one in await self._reader.read_many(new):
                if one is not None:
                    self._known[one.key] = one
        return [self._known.get(key) for _, key in wanted]


def _sst(one: LogObject) -> LogObject:
    if one.header.kind is not ObjectKind.SST:
        raise CorruptionError(f"a {one.header.kind.name} where an SST belongs", object_name=one.key, offset=10)
    return one
