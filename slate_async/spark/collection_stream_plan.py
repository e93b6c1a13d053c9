"""Where the micro-batches of a stream of a collection begin and end: `StreamPlanner`, in a process beside the driver.

Offsets are frontiers, so a micro-batch is all updates at times between two of them, whatever was appended or compacted
meanwhile. The planner keeps a hold with a long lease, whose since stays one step behind what Spark has committed (C2).
It outlives the planner; the next one, after a restart, adopts it by the name that is in every offset.

The planner reads on in pending batches, and goes to a newer version only if that ends at or below what is committed. So
a query that keeps up reads no merged batch again.

Rules C2 and C15 of collections.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from pyspark.sql.datasource import InputPartition

import slate_async as slate
from slate_async.collections.core import names, reading
from slate_async.collections.core.area import Area
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.errors import LeaseLostError, SinceError
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.lending import LentHold
from slate_async.collections.core.times import TimeKind
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import Follower, PendingBatch, follower
from slate_async.collections.reader.lending import SharedHold, adopt_hold, share_hold
from slate_async.collections.reader.split import LentVersion, SnapshotSplit, split_snapshot
from slate_async.collections.reader.update_split import UpdateSplit, split_updates
from slate_async.spark.collection_offset import Offset, Position
from slate_async.spark.collection_options import CollectionPlace, CollectionStream
from slate_async.spark.collection_place import check_life, leased, open_collection
from slate_async.spark.collection_plan import MOST_PARTITIONS

ZERO = Frontier([(0,)])


class UpdatesPartition(InputPartition):
    """A part of a micro-batch: of the contents that it begins with, or of the updates."""

    def __init__(self, place: CollectionPlace, split: SnapshotSplit | UpdateSplit) -> None:
        super().__init__((place, split))
        self.place = place
        self.split = split


class StreamPlanner:
    """See the module docstring. On one event loop, one call at a time: each holds ``turn``."""

    def __init__(self, options: CollectionStream, environment: slate.Environment) -> None:
        self.turn = asyncio.Lock()
        self._options = options
        self._environment = environment
        self._open = AsyncExitStack()
        self._stores: LifeStores | None = None
        self._hold: SharedHold | None = None
        self._begun: Offset | None = None
        self._planned = True
        """Whether Spark may have written an offset with this hold down."""
        self._area: Area | None = None
        """The version that is read; what is pending beyond it is in ``_taken``, and leads to ``_coverage``."""
        self._taken: list[Taken[PendingBatch]] = []
        self._coverage = ZERO
        self._follower: Follower | None = None
        self._looked_ms = float("-inf")
        self._until: Frontier | None = None

    # ---- what Spark asks for

    async def begin(self) -> Offset:
        """Where a new query begins, however often it is asked."""
        if self._begun is None:
            stores = await self._own_stores()
            context = self._context(stores)
            hold, area = await share_hold(context, "spark stream")
            self._planned = False
            self._take(context, hold, area)
            begin = await self._start(context, hold)
            lent = await hold.lend()
            self._begun = Offset(begin, begin, stores.life.uuid, stores.life.number, lent.reader, lent.beat)
        return self._begun

    async def newest(self) -> Frontier:
        """How far the collection is definite, as of the last look."""
        return self._coverage

    async def stop_at_present(self) -> None:
        """There is to be nothing but what is definite now."""
        stores = await self._own_stores()
        context = self._context(stores)
        area = await context.head()
        self._until = (await follower(context).look(area.upper)).coverage

    async def latest(self, start: Offset, max_times: int | None) -> Offset:
        """The end of a micro-batch after ``start``, at most ``max_times`` later; ``start`` if there is nothing."""
        context, at = await self._held(start), start.at
        if self._until is not None and at.since is None:  # of its last micro-batch Spark says nothing else
            await self.done(start)
        await self._look(context)
        end = self._coverage if self._until is None else self._until.meet(self._coverage)
        if max_times is not None:
            end = self._limited(at, end, max_times)
        if end <= at.frontier or (at.since is not None and end.less_equal((at.since,))):
            return start
        self._planned = True
        return replace(start, at=Position(end, None))

    async def partitions(self, start: Offset, end: Offset) -> list[UpdatesPartition]:
        """What is between them, for tasks of any process. Under the hold of ``end``: of a first micro-batch that is
        done again, another one goes with ``start``, and perhaps another beginning."""
        at, upper = start.at if start.hold == end.hold else end.begin, end.at.frontier
        context = await self._held(end)
        await self._reach(context, upper)
        area, hold = self._area, self._hold
        assert area is not None
        assert hold is not None
        place, collection, nbytes = self._options.place, end.collection, self._options.partition_bytes
        lent = await hold.lend(area.version)
        found: list[UpdatesPartition] = []
        lower = at.frontier
        if at.since is not None:
            source = LentVersion.of(collection, lent, area, self._taken, self._coverage)
            whole = await split_snapshot(context, source, (at.since,), (), MOST_PARTITIONS, least_bytes=nbytes)
            found += [UpdatesPartition(place, split) for split in whole]
            lower = Frontier([(at.since + 1,)])
        if not reading.may_restart(area, lower):
            raise SinceError(
                f"updates of {context.name} from {lower} on are asked for, and it is compacted to {area.since}, which"
                " is not before that",
                since=area.since,
            )
        splits = split_updates(collection, lent, area, self._taken, lower, upper, nbytes)
        return [*found, *(UpdatesPartition(place, split) for split in splits)]

    async def done(self, end: Offset) -> None:
        """What is before ``end`` is not needed any more."""
        context, frontier = await self._held(end), end.at.frontier
        area, hold = self._area, self._hold
        assert area is not None
        assert hold is not None
        since = reading.to_restart_from(frontier)
        head = await context.poll()
        if head.version > area.version and reading.may_adopt(head, [frontier]):
            await hold.move(version=head.version, since=since)
            self._area = head
            self._taken = [taken for taken in self._taken if not taken.end <= head.upper]
        elif not since <= hold.since:
            await hold.move(since=since)

    async def close(self) -> None:
        """Stop. What was not consumed is kept for the lease of the hold, if Spark knows of it."""
        hold, self._hold = self._hold, None
        try:
            if hold is not None:
                await (hold.leave() if self._planned else hold.expire())
        finally:
            await self._open.aclose()

    # ---- the hold

    async def _start(self, context: ReaderContext, hold: SharedHold) -> Position:
        """Where a query begins."""
        if hold.since.is_done:
            raise slate.InvalidError(f"{context.name} is closed, and compacted beyond all times")
        [(since,)] = hold.since.elements
        if self._options.start == "since":
            return Position(ZERO, since)
        if self._options.start == "now":
            await self._look(context)
            frontier = self._coverage
        else:
            frontier = Frontier([(self._options.start,)])
        if not reading.is_cut_at(hold.since, frontier):
            raise SinceError(
                f"option startAt={frontier}: {context.name} is compacted to {hold.since}, which is not before that",
                since=hold.since,
            )
        await hold.move(since=reading.to_restart_from(frontier))
        return Position(frontier, None)

    async def _held(self, offset: Offset) -> ReaderContext:
        """With the hold of ``offset``. Raises `InvalidError` if that is of another collection, `LeaseLostError`."""
        stores = await self._own_stores()
        check_life(stores, offset.collection, f"the checkpoint of this query (life {offset.life})")
        context = self._context(stores)
        if self._hold is None or self._hold.reader != offset.hold:
            if self._hold is not None:
                await self._hold.expire()  # nobody asks for what `begin` holds: the query had begun already
                self._hold = None
            lent = LentHold(offset.hold, offset.beat, 0)
            try:
                hold, area = await adopt_hold(context, lent, "spark stream")
            except LeaseLostError as error:
                raise LeaseLostError(
                    f"{error}. It is the hold of this query's checkpoint: the query was stopped for longer than"
                    " leaseLifetime, or the hold was expired. What was not read may be compacted: begin the query anew,"
                    " with another checkpointLocation"
                ) from error
            self._planned = True
            self._take(context, hold, area)
        return context

    def _take(self, context: ReaderContext, hold: SharedHold, area: Area) -> None:
        self._hold, self._area, self._coverage, self._taken = hold, area, area.upper, []
        self._follower, self._looked_ms = follower(context), float("-inf")

    # ---- what there is

    async def _reach(self, context: ReaderContext, end: Frontier) -> None:
        """Be at ``end``, where a planner before this one has been under the same hold. Raises `LeaseLostError`, and
        `CorruptionError` if the hold stands and what led there is missing (C15)."""
        if end <= self._coverage:
            return
        self._follower, self._looked_ms = follower(context), float("-inf")
        await self._look(context)
        if not end <= self._coverage:
            assert self._hold is not None
            await self._hold.lend()
            raise slate.CorruptionError(
                f"the checkpoint of this query is at {end}, and {context.name} ends at {self._coverage}: what was"
                " appended between them is missing",
                object_name=f"{context.name}/{names.PENDING_BATCHES.rstrip('/')}",
            )

    async def _look(self, context: ReaderContext) -> None:
        """Follow the pending area, once in a poll interval: Spark asks a hundred times a second."""
        if context.now_ms() - self._looked_ms < context.poll_interval_ms:
            return
        assert self._follower is not None
        found = await self._follower.look(self._coverage)
        self._taken += found.taken
        self._coverage, self._looked_ms = found.coverage, context.now_ms()

    def _limited(self, start: Position, end: Frontier, max_times: int) -> Frontier:
        """``end``, or an earlier frontier ``max_times`` after ``start``. Of a closed collection the end is reached in
        one step from the last time that an append names."""
        if start.frontier.is_done:
            return end
        first = start.frontier.elements[0][0] if start.since is None else start.since  # contents count as one time
        limit = Frontier([(first + max_times,)])
        assert self._area is not None
        named = [self._area.upper, self._area.lower, *(batch.bounds.lower for batch in self._area.batches)]
        named += [frontier for taken in self._taken for frontier in (taken.start, taken.end)]
        last = max((element[0] for frontier in named for element in frontier.elements), default=0)
        if end.is_done and first + max_times > last:
            return DONE
        return limit.meet(end)

    def _context(self, stores: LifeStores) -> ReaderContext:
        return leased(stores, self._options.lifetime_s)

    async def _own_stores(self) -> LifeStores:
        if self._stores is None:
            opening = open_collection(self._options.place, self._environment)
            self._stores = stores = await self._open.enter_async_context(opening)
            if stores.schema.kind is not TimeKind.U64:
                raise slate.InvalidError(f"times of {stores.name} are pairs, and a stream's offsets are numbers")
        return self._stores
