"""The log as a compactor may take it: without a WAL its objects are SSTs, the newest level above L0.

Nothing is written here, not even the writer's register. Rule 12: which epochs are a zombie's is judged from the
manifest's ``log_floor``. Rule 13: what was concluded from ids holds iff a head read *afterwards* still starts the log
where it started; otherwise the look begins anew from that head.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from metastores.protocol import Register
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.format.header import ObjectKind
from slate_async.log import register as codec
from slate_async.log.names import PREFIX, contiguous_key, epoch_key, parse_contiguous
from slate_async.log.protocol import LogObject, LogReader
from slate_async.log.recovery import ContiguousWalk, Verdict
from slate_async.log.register import EMPTY, WriterRegister
from slate_async.manifest.driver import translated
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
    """Looks at the log of one database without a WAL. ``register`` is ``None`` for a contiguous log.

    Headers are read once: an object of the log never changes."""

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

    async def look(self, state: ManifestState, limit: int) -> LogLook:
        """Up to ``limit`` positions from ``state.log_start`` on.

        Raises `CorruptionError` for an object that is missing or is no SST, `InvalidError` if the database is gone,
        `UnavailableError`."""
        for _ in range(LOOKS):
            found, missing = await self._look(state, limit)
            head = await self._load_head()
            if head is None:
                raise InvalidError("there is no database here any more")
            if head.log_start == state.log_start:
                if missing is not None:
                    raise CorruptionError("is missing, though it is committed", object_name=missing)
                return LogLook(head, found.end, found.floor, found.objects)
            logger.debug("the log's start moved from %d to %d under a look", state.log_start, head.log_start)
            state = head
        raise UnavailableError(f"the log's start moved under each of {LOOKS} looks at it")

    async def _look(self, state: ManifestState, limit: int) -> tuple[LogLook, str | None]:
        """What is there, and the key of an object that should be and is not."""
        if self._register is None:
            return await self._contiguous(state, limit), None
        cell = await translated(self._register.read())
        return await self._epoch_prefixed(state, EMPTY if cell is None else codec.decode(cell.value), limit)

    async def _contiguous(self, state: ManifestState, limit: int) -> LogLook:
        wanted: list[tuple[int, str]] = []
        async for info in self._store.list(PREFIX, start_after=contiguous_key(state.log_start - 1)):
            if parse_contiguous(info.key) != state.log_start + len(wanted) or len(wanted) == limit:
                break
            wanted.append((state.log_start + len(wanted), info.key))
        walk = ContiguousWalk(state.log_start, state.log_floor)
        objects: list[LogObject] = []
        for one in await self._read(wanted):
            if one is None:
                break  # collected since it was listed: the head will tell
            if walk.offer(one.id, one.header.writer_epoch) is Verdict.VALID and one.header.kind is not ObjectKind.FENCE:
                objects.append(_sst(one))
        return LogLook(state, walk.next_id - 1, walk.floor, tuple(objects))

    async def _epoch_prefixed(
        self, state: ManifestState, register: WriterRegister, limit: int
    ) -> tuple[LogLook, str | None]:
        end = min(register.last_written, state.log_start + limit - 1)
        wanted: list[tuple[int, str]] = []
        for log_id in range(state.log_start, end + 1):
            owner = register.owner(log_id)
            if owner is None:
                return LogLook(state, log_id - 1, state.log_floor, ()), f"the range of log position {log_id}"
            wanted.append((log_id, epoch_key(owner, log_id)))
        objects: list[LogObject] = []
        for (_, key), one in zip(wanted, await self._read(wanted), strict=True):
            if one is None:
                return LogLook(state, state.log_start - 1, state.log_floor, ()), key
            if epoch_key(one.header.writer_epoch, one.id) != key:
                raise CorruptionError(f"made by epoch {one.header.writer_epoch}", object_name=key)
            objects.append(_sst(one))
        floor = max([state.log_floor, *(one.header.writer_epoch for one in objects)])
        return LogLook(state, max(end, state.log_start - 1), floor, tuple(objects)), None

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
