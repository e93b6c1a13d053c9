"""The log as everybody but its writer may read it: what is at its tail, and which of it counts.

Ordering rule (rule 13): nothing that a `Chunk` says holds unless a head read *afterwards* still starts the log at or
below the position it was read from; otherwise the chunk is dropped, and with it that it was read.

Rules 12 and 13: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from slate_async.codec.header import ObjectKind
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.storage.log.names import PREFIX, contiguous_key, epoch_key, parse_contiguous
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.reader import READS_IN_PARALLEL, LogReader
from slate_async.storage.log.recovery import ContiguousWalk, EpochRange, Verdict, owner_of
from slate_async.storage.manifest.state import ManifestState

CHUNK_BYTES = 32 << 20
CHUNK_OBJECTS = 256
"""A chunk ends at the object that reaches one of these; what is read and not yet in a table stays bounded."""
MAX_WIDTH = 4_096
"""Looking past a missing object ends here, far past any fence's width."""


class Position(NamedTuple):
    """A place in the log: the id that comes next, and the epoch below which objects from there on are a zombie's."""

    next_id: int
    floor: int


def start_of(state: ManifestState) -> Position:
    """Where the log of ``state`` starts. Rule 12: the epochs to ignore come from ``log_floor``, never from an epoch."""
    return Position(state.log_start, state.log_floor)


@dataclass(frozen=True, slots=True)
class Gap:
    """An object that is not there. ``reach`` says how far past it another one stands: no writer is ever a fence's
    width past its lowest missing object. ``None``: it was there once, for sure."""

    id: int
    key: str
    reach: int | None = None

    def lost(self, state: ManifestState) -> bool:
        """Whether it is lost, judged by a state that was read after the object was missed and whose log still needs
        it."""
        return self.reach is None or self.reach >= state.fence_width


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was found from one position on.

    objects: data objects that count, in order; fences and zombies are left out
    end: the position behind everything found
    gap: where the log stops although it may go on
    more: whether a bound ended the chunk
    """

    objects: tuple[LogObject, ...]
    end: Position
    gap: Gap | None = None
    more: bool = False


class Tail(Protocol):
    """One database's log."""

    async def read(self, position: Position) -> Chunk:
        """Objects from ``position`` on, without a gap. Raises `CorruptionError`, `UnavailableError`."""

    async def more(self, position: Position) -> bool:
        """Whether there is something at ``position``. One cheap request. For polls: ``False`` proves nothing."""

    async def there(self, gap: Gap) -> bool:
        """Whether the missing object is there by now: a listing may overtake its put."""


class ContiguousTail:
    """The contiguous log: ids without gaps."""

    def __init__(self, store: ObjectStore, reader: LogReader) -> None:
        self._store = store
        self._reader = reader

    async def read(self, position: Position) -> Chunk:
        """See `Tail`. One listing, and the objects."""
        wanted, gap, more = await self._present(position.next_id)
        walk = ContiguousWalk(position.next_id, position.floor)
        objects: list[LogObject] = []
        for logged, (log_id, key) in zip(await self._reader.read_many(wanted) if wanted else (), wanted, strict=True):
            if logged is None:
                gap, more = Gap(log_id, key), False
                break
            if (
                walk.offer(log_id, logged.header.writer_epoch) is Verdict.VALID
                and logged.header.kind is not ObjectKind.FENCE
            ):
                objects.append(logged)
        return Chunk(tuple(objects), Position(walk.next_id, walk.floor), gap, more)

    async def _present(self, first: int) -> tuple[list[tuple[int, str]], Gap | None, bool]:
        """Ids and keys from ``first`` on, up to a bound; the gap behind them; whether the bound ended it."""
        wanted: list[tuple[int, str]] = []
        nbytes = reach = 0
        async for info in self._store.list(PREFIX, start_after=contiguous_key(first - 1)):
            missing = first + len(wanted)
            reach = parse_contiguous(info.key) - missing
            if reach > MAX_WIDTH:
                break
            if reach:
                continue
            if nbytes >= CHUNK_BYTES or len(wanted) >= CHUNK_OBJECTS:
                return wanted, None, True
            wanted.append((missing, info.key))
            nbytes += info.size
        missing = first + len(wanted)
        return wanted, Gap(missing, contiguous_key(missing), reach) if reach else None, False

    async def more(self, position: Position) -> bool:
        """See `Tail`."""
        try:
            await self._store.head(contiguous_key(position.next_id))
        except ObjectNotFoundError:
            return False
        return True

    async def there(self, gap: Gap) -> bool:
        """See `Tail`."""
        return await self._reader.read_header(gap.id, gap.key) is not None


class EpochPrefixedTail:
    """The epoch-prefixed log, up to where it is committed and never past it. ``bounds`` reads the owners of its
    positions and the last committed one."""

    def __init__(self, reader: LogReader, bounds: Callable[[], Awaitable[tuple[Sequence[EpochRange], int]]]) -> None:
        self._reader = reader
        self._bounds = bounds

    async def read(self, position: Position) -> Chunk:
        """See `Tail`. One read of the bounds, and the objects."""
        ranges, last = await self._bounds()
        objects: list[LogObject] = []
        next_id, floor, nbytes = position.next_id, position.floor, 0
        while next_id <= last:
            if nbytes >= CHUNK_BYTES or len(objects) >= CHUNK_OBJECTS:
                return Chunk(tuple(objects), Position(next_id, floor), more=True)
            wanted: list[tuple[int, str]] = []
            for log_id in range(next_id, min(last + 1, next_id + READS_IN_PARALLEL)):
                owner = owner_of(log_id, ranges)
                if owner is None:  # given up as compacted by a takeover
                    return Chunk(tuple(objects), Position(next_id, floor), Gap(log_id, f"log position {log_id}"))
                wanted.append((log_id, epoch_key(owner, log_id)))
            for logged, (log_id, key) in zip(await self._reader.read_many(wanted), wanted, strict=True):
                if logged is None:
                    return Chunk(tuple(objects), Position(next_id, floor), Gap(log_id, key))
                if logged.header.writer_epoch != owner_of(log_id, ranges):
                    raise CorruptionError(
                        f"was written by epoch {logged.header.writer_epoch}, not by its position's owner",
                        object_name=key,
                    )
                objects.append(logged)
                nbytes += len(logged.data)
                next_id, floor = log_id + 1, max(floor, logged.header.writer_epoch)
        return Chunk(tuple(objects), Position(next_id, floor))

    async def more(self, position: Position) -> bool:
        """See `Tail`. One read of the bounds."""
        _, last = await self._bounds()
        return last >= position.next_id

    async def there(self, gap: Gap) -> bool:
        """See `Tail`. What the register commits is in the store before."""
        return False
