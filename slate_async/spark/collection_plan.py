"""What a batch read of a collection reads, cut into key ranges: planned once, then read by tasks in any process.

The planner takes a hold with a long lease and ends. Tasks read under it and prolong it; a hold that a process of its
own keeps (`slate_async.spark.collection_frames.reading_collection`) is prolonged by that.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql.datasource import InputPartition

import slate_async as slate
from slate_async.collections.core.area import Area
from slate_async.collections.core.filtering import ConditionLike
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.lending import LentHold
from slate_async.collections.core.times import Time, TimeKind
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.lending import SharedHold, TaskHold, share_hold
from slate_async.collections.reader.split import LentVersion, SnapshotSplit, look_ahead, newest_time, split_snapshot
from slate_async.spark.collection_filters import applicable
from slate_async.spark.collection_options import CollectionPlace, CollectionRead
from slate_async.spark.collection_place import leased, open_collection
from slate_async.spark.renewing import renewed

logger = logging.getLogger(__name__)
MOST_PARTITIONS = 10_000


@dataclass(frozen=True, slots=True)
class Lease:
    """A hold that tasks prolong, to ``lifetime_s`` from then on, whenever a quarter of it has passed.

    made_ms: wall clock: when it had its whole life before it"""

    hold: LentHold
    lifetime_s: float
    made_ms: int


class CollectionPartition(InputPartition):
    """One key range of a snapshot. ``lease``: of a hold that no process keeps."""

    def __init__(self, place: CollectionPlace, split: SnapshotSplit, lease: Lease | None) -> None:
        super().__init__((place, split, lease))
        self.place = place
        self.split = split
        self.lease = lease


async def plan_partitions(
    options: CollectionRead, where: Sequence[ConditionLike], environment: slate.Environment
) -> list[CollectionPartition]:
    """Fix what is read, and cut it. Raises `InvalidError` for a time that cannot be read, `LeaseLostError` for a hold
    that does not stand, `UnavailableError` if the time is not definite before the timeout."""
    made_ms = environment.runtime.clock.now_ms()
    async with open_collection(options.place, environment) as stores:
        context = leased(stores, options.lifetime_s)
        if options.hold is not None:
            area = await context.head()
            lent = LentHold(*options.hold, area.version)
            await TaskHold(context, lent).check_standing()
            splits = await _splits(context, stores.life.uuid, options, where, lent, area)
            return [CollectionPartition(options.place, split, None) for split in splits]
        shared, area = await share_hold(context, "spark read")
        try:
            lent = await shared.lend(area.version)
            splits = await _splits(context, stores.life.uuid, options, where, lent, area)
        except BaseException:
            await _given_up(shared)
            raise
        await (shared.leave() if splits else _given_up(shared))
        lease = Lease(lent, options.lifetime_s, made_ms)
        return [CollectionPartition(options.place, split, lease) for split in splits]


async def definite(
    context: ReaderContext, collection: UUID, options: CollectionRead, hold: LentHold, area: Area
) -> tuple[LentVersion, Time | None]:
    """What is read and at which time, once that is definite; no time: none is definite yet."""
    as_of = options.time(context.schema.kind)
    if as_of is None and context.schema.kind is not TimeKind.U64:
        raise slate.InvalidError(
            f"times of {context.name} are pairs, of which none is the greatest: give option asOf, such as (3,0)"
        )
    clock = context.runtime.clock
    deadline = clock.monotonic() + options.timeout_s
    while True:
        source = await look_ahead(context, hold, collection, area)
        if as_of is None:
            return source, newest_time(source, context.schema.kind)
        if not source.upper.less_equal(as_of):
            return source, as_of
        if clock.monotonic() >= deadline:
            raise slate.UnavailableError(
                f"{context.name} is definite up to {source.upper}, and asOf={Frontier([as_of])} was not within"
                f" {options.timeout_s:g} s (option timeout)"
            )
        await context.pause()


@asynccontextmanager
async def kept(context: ReaderContext, lease: Lease | None) -> AsyncGenerator[None, None]:
    """Prolong the hold inside the block, when it is time. A task that cannot logs a warning and tries again; if the
    hold was revoked, the read itself fails."""
    if lease is None:
        yield
        return
    hold = TaskHold(context, lease.hold)

    async def prolong() -> None:
        try:
            await hold.prolong()
        except slate.SlateError as error:
            logger.warning("the hold %s of %s was not prolonged: %s", lease.hold.reader, context.name, error)

    async with renewed(context.runtime.clock, lease.lifetime_s, lease.made_ms, prolong):
        yield


async def _splits(
    context: ReaderContext,
    collection: UUID,
    options: CollectionRead,
    where: Sequence[ConditionLike],
    hold: LentHold,
    area: Area,
) -> list[SnapshotSplit]:
    source, as_of = await definite(context, collection, options, hold, area)
    if as_of is None:
        return []  # nothing was appended
    chosen = applicable(where, context.schema)
    return await split_snapshot(context, source, as_of, chosen, MOST_PARTITIONS, least_bytes=options.partition_bytes)


async def _given_up(shared: SharedHold) -> None:
    try:
        await shared.expire()
    except slate.SlateError as error:
        logger.warning("the hold %s stays until its lease ends: %s", shared.reader, error)
