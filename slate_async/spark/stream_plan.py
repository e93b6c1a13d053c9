"""Where the micro-batches of a stream begin and end: `Planner`, which runs ahead of a query beside its driver.

It reads the change feed itself, so a micro-batch ends where a feed's batch does, never inside a `WriteBatch`, and has
the rows and bytes that were asked for. The tasks read the same again, each its range. The subscription moves when
Spark says that a micro-batch is done.

Invariant: a range of sequence numbers alone says what is in a micro-batch; the rest of an offset only says where that
is found quickly, and by which subscription. So it does not matter what a planner before this one had read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from uuid import uuid4

import slate_async as slate
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.spark.changes import FeedRange, Step, key_spans, log_ranges
from slate_async.spark.stream_options import StreamOptions

logger = logging.getLogger(__name__)
OffsetFields: TypeAlias = dict[str, Any]
Fits: TypeAlias = Callable[[int, int], bool]
"""Whether so many rows and bytes are within a micro-batch's limit."""
STEP_ROWS = 16_384
STEPS_PER_LIMIT = 8
"""Where bytes are limited, steps are a part of that, so that micro-batches come close to it."""
FIRST_ROW_BYTES = 1_024
"""Taken for the size of a row before any was read."""
UNPLANNED_S = 600.0
"""So long lives the subscription of a query that dies before it has planned its first micro-batch."""
SPLITS_PER_PARTITION = 4
"""Ranges of keys are made of smaller ones, which are looked for once."""


class Offset(NamedTuple):
    """A position in the feed, and the name of the subscription that keeps what comes after it.

    begin: where the query began. Spark writes down where a micro-batch ends, and before the first one is done it asks
    again where a query begins
    database_id: whose feed it is: another database may stand at the path when the query comes back"""

    subscription: str
    position: FeedPosition
    begin: FeedPosition
    database_id: str

    @property
    def seq(self) -> int:
        """Changes up to here are before it."""
        return self.position.seq

    def fields(self) -> OffsetFields:
        """For Spark, which writes it down as JSON. These names are in checkpoints of queries, so they stay."""
        position, begin = self.position._asdict(), self.begin._asdict()
        return {"hold": self.subscription, **position, "begin": begin, "database_id": self.database_id}

    @classmethod
    def of(cls, fields: OffsetFields) -> Self:
        """The inverse of `fields`. Raises `InvalidError` for what this never wrote."""
        try:
            return cls(str(fields["hold"]), _position(fields), _position(fields["begin"]), str(fields["database_id"]))
        except (KeyError, TypeError, ValueError) as error:
            raise slate.InvalidError(
                f"this is no offset of a slate stream, which names its database: {fields!r}; begin the query anew, with"
                " another checkpointLocation"
            ) from error


def _position(fields: OffsetFields) -> FeedPosition:
    return FeedPosition(*(int(fields[name]) for name in FeedPosition._fields))


class Planner:
    """See the module docstring. On one event loop, one call at a time: each holds ``turn``, also while it is
    cancelled."""

    def __init__(self, options: StreamOptions, environment: slate.Environment) -> None:
        self.turn = asyncio.Lock()
        self._options = options
        self._environment = environment
        self._open = AsyncExitStack()
        self._reader: slate.DbReader | None = None
        self._feed: slate.ChangeFeed | None = None
        self._subscription = ""
        self._begun: Offset | None = None
        self._planned = True
        """Whether Spark may have written an offset with this subscription down."""
        self._until: int | None = None
        self._steps: list[Step] = []
        """Read by the feed and not done with, in order."""
        self._row_bytes: float = FIRST_ROW_BYTES
        """Of Arrow data, in the step read last."""
        self._splits: list[slate.Split] | None = None

    # ---- what Spark asks for

    async def begin(self) -> Offset:
        """Where a new query begins, however often it is asked. From here on everything after it is retained, for as
        long as this planner lives; once a micro-batch is planned, which Spark then knows of, beyond that."""
        if self._begun is None:
            self._planned = False
            feed = await self._opened(f"spark {uuid4()}", await self._start())
            self._begun = Offset(self._subscription, feed.position, feed.position, await self._database_id())
        return self._begun

    async def _start(self) -> int | Literal["now"]:
        if self._options.start_time is None:
            return self._options.start
        reader = await self._own_reader()
        await reader.refresh()
        return reader.time_to_seq(self._options.start_time)

    async def newest(self) -> int:
        """The newest sequence number that is durable, as of the reader's last poll: how far a query is behind."""
        return await self._durable()

    async def stop_at_present(self) -> None:
        """There is to be nothing but what is durable now."""
        reader = await self._own_reader()
        await reader.refresh()
        self._until = reader.status().last_seq
        await self._close_feed()

    async def latest(self, start: Offset, fits: Fits) -> Offset:
        """The end of a micro-batch after ``start``: as much as is durable now and ``fits``, but one step at least;
        ``start`` itself if there is nothing.

        Of its last micro-batch a query that ends at present hears no `done`: Spark says that with the next one alone.
        But it asks for the next one only once it has written down that the last is done."""
        feed = await self._at(start)
        if self._until is None:
            durable = await self._durable()
        else:
            durable = self._until
            await self._acknowledge(feed, start.seq)
        end, index, rows, nbytes = start, 0, 0, 0
        while index < len(self._steps) or await self._read(feed, durable):
            step = self._steps[index]
            index += 1
            if step.position.seq <= start.seq:
                continue
            rows, nbytes = rows + step.rows, nbytes + step.nbytes
            if end is not start and not fits(rows, nbytes):
                break
            end = start._replace(position=step.position)
        if not self._planned:  # Spark writes down the end of an empty first micro-batch, too
            await feed.renew(self._options.subscription_lifetime_s)
            self._planned = True
        return end

    async def ranges(self, start: Offset, end: Offset) -> list[FeedRange]:
        """Ranges of a micro-batch, of ``partition_bytes`` where it is known how much is where, else one. From here on
        this planner retains what the tasks read."""
        begin = start.position if start.subscription == end.subscription else end.begin
        await self._at(end._replace(position=begin))
        steps = [step for step in self._steps if begin.seq < step.position.seq <= end.seq]
        stored = [step for step in steps if step.position.seq <= begin.log_seq]
        ranges: list[FeedRange] = []
        if stored:
            nbytes = sum(step.nbytes for step in stored)
            spans = await self._spans(max(1, nbytes // self._options.partition_bytes))
            ranges = [FeedRange(begin, stored[-1].position.seq, span) for span in spans]
            begin = stored[-1].position
        return [*ranges, *log_ranges(begin, steps[len(stored) :], end.seq, self._options.partition_bytes)]

    async def _spans(self, count: int) -> list[KeyRange]:
        """All keys, in ``count`` ranges with about as many bytes of SSTs, or fewer."""
        if count == 1:
            return [EVERY_KEY]
        if self._splits is None:
            reader = await self._own_reader()
            target = max(1, self._options.partition_bytes // SPLITS_PER_PARTITION)
            self._splits = await reader.splits(target_bytes=target)
        return key_spans(self._splits, count)

    async def done(self, end: Offset) -> None:
        """What is before ``end`` is not needed any more. It is written down soon, and when the query ends."""
        await self._acknowledge(await self._at(end), end.seq)

    async def close(self) -> None:
        """Stop reading; what was not consumed stays retained, if Spark knows of it, for its whole life from now on."""
        try:
            if self._planned:
                if self._feed is not None:
                    await self._feed.renew(self._options.subscription_lifetime_s)
                await self._close_feed()
            else:
                await self._give_up_begun()
        except slate.NotFoundError as error:
            logger.info("subscription %r is another query's by now, or deleted: %s", self._subscription, error)
        except slate.SlateError as error:
            logger.warning("subscription %r stays until it expires: %s", self._subscription, error)
        finally:
            await self._open.aclose()

    # ---- the feed

    async def _at(self, offset: Offset) -> slate.ChangeFeed:
        """The feed, no further back than at ``offset``. Raises `InvalidError` if that is another database's."""
        await self._check_database(offset)
        if self._subscription != offset.subscription:
            await self._give_up_begun()
        feed = self._feed or await self._opened(offset.subscription, offset.seq)
        while await self._read(feed, offset.seq):
            pass
        return feed

    async def _acknowledge(self, feed: slate.ChangeFeed, seq: int) -> None:
        await feed.acknowledge(seq)
        self._steps = [step for step in self._steps if step.position.seq > seq]

    async def _check_database(self, offset: Offset) -> None:
        here = await self._database_id()
        if offset.database_id != here:
            raise slate.InvalidError(
                f"the checkpoint of this query is of the changes of database {offset.database_id}, and"
                f" {self._options.path} is database {here}: read the same database, or begin the query anew, with"
                " another checkpointLocation"
            )

    async def _database_id(self) -> str:
        return (await self._own_reader()).status().database_id

    async def _opened(self, subscription: str, seq: int | Literal["now"]) -> slate.ChangeFeed:
        reader, lifetime_s = await self._own_reader(), self._options.subscription_lifetime_s
        feed = reader.changes(
            from_seq=seq,
            until_seq=self._until,
            subscription=subscription,
            subscription_lifetime=lifetime_s if self._planned else min(lifetime_s, UNPLANNED_S),
        )
        self._feed, self._subscription = await feed.__aenter__(), subscription
        return feed

    async def _own_reader(self) -> slate.DbReader:
        if self._reader is None:
            options = self._options
            opening = self._environment.open_reader(options.path, metastore=options.metastore)
            self._reader = await self._open.enter_async_context(opening)
        return self._reader

    async def _durable(self) -> int:
        """As of the reader's last poll."""
        reader = await self._own_reader()
        status = reader.status()
        if status.state != "open":
            await reader.refresh()  # says what closed it
        return status.last_seq

    async def _read(self, feed: slate.ChangeFeed, durable: int) -> bool:
        """Read one more step, unless the feed is at ``durable``. The rows of an ingest share a sequence number: one
        step."""
        before, rows, nbytes = feed.seq, 0, 0
        if before >= durable:
            return False
        async for batch in feed.batches(self._step_rows()):
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            if feed.seq > before:
                self._row_bytes = nbytes / rows
                self._steps.append(Step(feed.position, rows, nbytes))
                return True
        return False

    def _step_rows(self) -> int:
        most = min(STEP_ROWS, self._options.max_rows or STEP_ROWS)
        if self._options.max_bytes is None:
            return most
        return max(1, min(most, int(self._options.max_bytes / STEPS_PER_LIMIT / self._row_bytes)))

    async def _give_up_begun(self) -> None:
        """Nobody asks for what `begin` retains: the query had begun already, by another subscription, or does not
        begin."""
        await self._close_feed()
        begun, self._begun, self._planned = self._begun, None, True
        if begun is not None:
            opening = self._environment.open_admin(self._options.path, metastore=self._options.metastore)
            async with opening as admin:
                await admin.checkpoints.delete(begun.subscription)

    async def _close_feed(self) -> None:
        feed, self._feed = self._feed, None
        self._steps.clear()
        if feed is not None:
            await feed.aclose()
