"""`SnapshotSplit`: a key range of a snapshot, which any process reads under the hold of the one that planned it.

A split says all that its rows depend on: the version with its batches, the pending batches beyond it, the time and the
filter. So a task that is repeated reads the same rows, whatever was appended or compacted meanwhile.

Rules C3 and C14 of collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.core import reading
from slate_async.collections.core.area import Area
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.errors import SinceError
from slate_async.collections.core.filtering import ConditionLike, conditions_of
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.lending import LentHold
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.splitting import KeySplit
from slate_async.collections.core.times import TIME_END, Time, TimeKind
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch, follower
from slate_async.collections.reader.lending import TaskHold
from slate_async.collections.reader.pins import Pins
from slate_async.collections.reader.snapshot import Snapshot, SnapshotSource
from slate_async.errors import ClosedError, InvalidError, UnavailableError


@dataclass(frozen=True, slots=True)
class LentVersion:
    """What tasks read under a hold that was lent. It can be pickled.

    collection: the uuid of the life
    area: the version, as it is stored
    taken: the pending batches beyond it
    upper: how far all of that takes a reader
    """

    collection: UUID
    hold: LentHold
    area: bytes
    taken: tuple[Taken[PendingBatch], ...]
    upper: Frontier

    @classmethod
    def of(
        cls, collection: UUID, hold: LentHold, area: Area, taken: Sequence[Taken[PendingBatch]], upper: Frontier
    ) -> LentVersion:
        """Of a version that ``hold`` covers. Tasks read what is ``taken`` themselves: each of many would carry it."""
        named = tuple(replace(found, batch=replace(found.batch, content=None)) for found in taken)
        return cls(collection, hold, encode_version(area), named, upper)

    def decoded(self, kind: TimeKind) -> Area:
        """The version."""
        return decode_version(self.area, self.hold.version, kind, object_name=f"version {self.hold.version}")


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """The rows of ``source`` at ``as_of`` that pass ``where`` and whose data lie in ``span``. It can be pickled."""

    source: LentVersion
    as_of: Time
    where: tuple[ConditionLike, ...]
    span: KeySplit[Key]

    def open(self, context: ReaderContext) -> Snapshot:
        """What it holds, read in any process. Reading raises as `Snapshot.batches` does."""
        return _snapshot(context, self.source, self.as_of, self.where, self.span)


async def look_ahead(context: ReaderContext, hold: LentHold, collection: UUID, area: Area) -> LentVersion:
    """``area``, which ``hold`` covers, with what is pending beyond it now. Raises `UnavailableError`."""
    found = await follower(context).look(area.upper)
    return LentVersion.of(collection, hold, area, found.taken, found.coverage)


def newest_time(source: LentVersion, kind: TimeKind) -> Time | None:
    """The greatest time that is definite; ``None``: none is. Raises `InvalidError` for pairs, of which none may be the
    greatest."""
    if kind is not TimeKind.U64:
        raise InvalidError(
            "times of this collection are pairs, of which none is the greatest: give the time to read at"
        )
    if source.upper.is_done:
        return (TIME_END - 1,)
    [(upper,)] = source.upper.elements
    return (upper - 1,) if upper else None


async def split_snapshot(
    context: ReaderContext,
    source: LentVersion,
    as_of: Time,
    where: Sequence[ConditionLike],
    count: int,
    *,
    least_bytes: int = 1,
) -> list[SnapshotSplit]:
    """At most ``count`` splits that hold every row at ``as_of`` once, in the order of data; at least one. There are
    only so many that each has about ``least_bytes`` of merged batches, or more.

    Raises `SinceError` if ``as_of`` was compacted, `UnavailableError` if it is not definite, and as
    `Snapshot.batches`."""
    area = source.decoded(context.schema.kind)
    if area.deleted:
        raise ClosedError(f"{context.name} was deleted")
    if not reading.may_read(area, as_of):
        raise since_error(context, as_of, area.since)
    if source.upper.less_equal(as_of):
        raise UnavailableError(f"{context.name} is definite up to {source.upper}, not at {Frontier([as_of])}")
    snapshot = _snapshot(context, source, as_of, tuple(where), None)
    splits = await snapshot.splits(count, least_bytes=least_bytes)
    return [SnapshotSplit(source, as_of, tuple(where), split.span) for split in splits]


def since_error(context: ReaderContext, as_of: Time, since: Frontier) -> SinceError:
    """Of a time that is compacted, or may be soon."""
    text = f"{reading.too_early(as_of, since)} of {context.name}"
    return SinceError(f"{text}: earlier times are compacted, so read at {since} or later", since=since)


def _snapshot(
    context: ReaderContext,
    source: LentVersion,
    as_of: Time,
    where: tuple[ConditionLike, ...],
    span: KeySplit[Key] | None,
) -> Snapshot:
    conditions, hold = conditions_of(where, context.schema), TaskHold(context, source.hold)
    made = SnapshotSource(context, hold, source.taken, as_of, conditions, lambda: None)
    pin = Pins().take(source.decoded(context.schema.kind))
    return Snapshot(made, pin, source.upper) if span is None else Snapshot(made, pin, source.upper, span)
