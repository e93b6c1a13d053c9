"""Where the micro-batches of a stream begin and end: `Planner`, which runs ahead of a query beside its driver.

It reads the change feed itself, so a micro-batch ends where a feed's batch does, never inside a `WriteBatch`, and has
the rows and bytes that were asked for. The tasks read the same again, each its stretch. What is held for them moves
when Spark says that a micro-batch is done.

Invariant: a range of sequence numbers alone says what is in a micro-batch; the rest of an offset only says where that
is found quickly, and under which hold. So it does not matter what a planner before this one had read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeAlias
from uuid import uuid4

import slate_async as slate
from slate_async.engine.changes.subscription import FeedPlace
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.spark.stream_options import StreamOptions

logger = logging.getLogger(__name__)
OffsetFields: TypeAlias = dict[str, Any]
Fits: TypeAlias = Callable[[int, int], bool]
"""Whether so many rows and bytes are within a micro-batch's limit."""
STEP_ROWS = 16_384
UNPLANNED_S = 600.0
"""So long lives what a query holds that dies before it has planned anything."""
SPLITS_PER_PARTITION = 4
"""Ranges of keys are made of smaller ones, which are looked for once."""


class Offset(NamedTuple):
    """A place in the feed, and the name of the hold that keeps what comes after it.

    begin: where the query began. Spark writes down where a micro-batch ends, and before the first one is done it asks
    again where a query begins"""

    hold: str
    place: FeedPlace
    begin: FeedPlace

    @property
    def seq(self) -> int:
        """Changes up to here are before it."""
        return self.place.seq

    def fields(self) -> OffsetFields:
        """For Spark, which writes it down as JSON."""
        return {"hold": self.hold, **self.place._asdict(), "begin": self.begin._asdict()}

    @classmethod
    def of(cls, fields: OffsetFields) -> Self:
        """The inverse of `fields`. Raises `InvalidError` for what this never wrote."""
        try:
            return cls(str(fields["hold"]), _place(fields), _place(fields["begin"]))
        except (KeyError, TypeError, ValueError) as error:
            raise slate.InvalidError(f"this is no offset of a slate stream: {fields!r}") from error


def _place(fields: OffsetFields) -> FeedPlace:
    return FeedPlace(*(int(fields[name]) for name in FeedPlace._fields))


@dataclass(frozen=True, slots=True)
class Step:
    """Changes up to ``place``: ``rows`` of them, ``nbytes`` of Arrow data."""

    place: FeedPlace
    rows: int
    nbytes: int


class Part(NamedTuple):
    """What one task reads of a micro-batch: the changes above ``after`` up to ``until`` of keys in ``span``."""

    after: FeedPlace
    until: int
    span: KeyRange


class Planner:
    """See the module docstring. On one event loop, one call at a time."""

    def __init__(self, options: StreamOptions, environment: slate.Environment) -> None:
        self._options = options
        self._environment = environment
        self._open = AsyncExitStack()
        self._reader: slate.DbReader | None = None
        self._feed: slate.ChangeFeed | None = None
        self._hold = ""
        self._begun: Offset | None = None
        self._planned = True
        """Whether Spark may have written an offset with this hold down."""
        self._until: int | None = None
        self._steps: list[Step] = []
        """Read by the feed and not done with, in order."""
        self._splits: list[slate.Split] | None = None

    # ---- what Spark asks for

    async def begin(self) -> Offset:
        """Where a new query begins, however often it is asked. From here on everything after it is held, for as long as
        this planner lives; once a micro-batch is planned, which Spark then knows of, beyond that."""
        if self._begun is None:
            self._planned = False
            feed = await self._opened(f"spark {uuid4()}", self._options.start)
            self._begun = Offset(self._hold, feed.place, feed.place)
        return self._begun

    async def stop_at_present(self) -> None:
        """There is to be nothing but what is durable now."""
        reader = await self._own_reader()
        await reader.refresh()
        self._until = reader.status().last_seq
        await self._close_feed()

    async def latest(self, start: Offset, fits: Fits) -> Offset:
        """The end of a micro-batch after ``start``: as much as is durable now and ``fits``, but one step at least;
        ``start`` itself if there is nothing."""
        feed = await self._at(start)
        durable = await self._durable() if self._until is None else self._until
        end, position, rows, nbytes = start, 0, 0, 0
        while position < len(self._steps) or await self._read(feed, durable):
            step = self._steps[position]
            position += 1
            if step.place.seq <= start.seq:
                continue
            rows, nbytes = rows + step.rows, nbytes + step.nbytes
            if end is not start and not fits(rows, nbytes):
                break
            end = Offset(start.hold, step.place, start.begin)
        if end is not start and not self._planned:
            await feed.keep(self._options.hold_lifetime_s)
            self._planned = True
        return end

    async def parts(self, start: Offset, end: Offset) -> list[Part]:
        """Parts of a micro-batch, of ``partition_bytes`` where it is known how much is where, else one. From here on
        what the tasks read is held, if it was not, and by this planner.

        SSTs are in the order of keys. So what is in them is cut by keys, for else each task would read all of them;
        what is in the log is cut by numbers."""
        begin = start.place if start.hold == end.hold else end.begin
        await self._at(Offset(end.hold, begin, end.begin))
        steps = [step for step in self._steps if begin.seq < step.place.seq <= end.seq]
        stored = [step for step in steps if step.place.seq <= begin.log_seq]
        parts: list[Part] = []
        if stored:
            nbytes = sum(step.nbytes for step in stored)
            spans = await self._spans(max(1, nbytes // self._options.partition_bytes))
            parts = [Part(begin, stored[-1].place.seq, span) for span in spans]
            begin = stored[-1].place
        return [*parts, *self._stretches(begin, steps[len(stored) :], end.seq)]

    def _stretches(self, begin: FeedPlace, steps: list[Step], end: int) -> list[Part]:
        """``steps``, and what follows them, from ``begin`` to ``end``."""
        found: list[Part] = []
        nbytes = 0
        for step in steps:
            nbytes += step.nbytes
            if nbytes >= self._options.partition_bytes and step.place.seq < end:
                found.append(Part(begin, step.place.seq, EVERY_KEY))
                begin, nbytes = step.place, 0
        return [*found, Part(begin, end, EVERY_KEY)] if begin.seq < end else found

    async def _spans(self, count: int) -> list[KeyRange]:
        """All keys, in ``count`` ranges with about as many bytes of SSTs, or fewer."""
        if count == 1:
            return [EVERY_KEY]
        if self._splits is None:
            reader = await self._own_reader()
            target = max(1, self._options.partition_bytes // SPLITS_PER_PARTITION)
            self._splits = await reader.splits(target_bytes=target)
        splits = self._splits
        firsts = sorted({len(splits) * number // count for number in range(count)})
        bounds = [None, *(splits[first].start for first in firsts[1:]), None]
        return [KeyRange(*pair) for pair in pairwise(bounds)]

    async def done(self, end: Offset) -> None:
        """What is before ``end`` is not needed any more. It is written down soon, and when the query ends."""
        feed = await self._at(end)
        await feed.acknowledge(end.seq)
        self._steps = [step for step in self._steps if step.place.seq > end.seq]

    async def close(self) -> None:
        """Stop reading; what was not consumed stays held, if Spark knows of it."""
        try:
            if self._planned:
                await self._close_feed()
            else:
                await self._give_up_begun()
        except slate.SlateError as error:
            logger.warning("hold %r stays until it expires: %s", self._hold, error)
        finally:
            await self._open.aclose()

    # ---- the feed

    async def _at(self, offset: Offset) -> slate.ChangeFeed:
        """The feed, no further back than at ``offset``."""
        if self._hold != offset.hold:
            await self._give_up_begun()
        feed = self._feed or await self._opened(offset.hold, offset.seq)
        while await self._read(feed, offset.seq):
            pass
        return feed

    async def _opened(self, hold: str, seq: int | str) -> slate.ChangeFeed:
        reader, lifetime_s = await self._own_reader(), self._options.hold_lifetime_s
        feed = reader.changes(
            from_seq=seq,  # type: ignore[arg-type]
            until_seq=self._until,
            hold=hold,
            hold_lifetime=lifetime_s if self._planned else min(lifetime_s, UNPLANNED_S),
        )
        self._feed, self._hold = await feed.__aenter__(), hold
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
        """Read one more step, unless the feed is at ``durable``. The rows of an ingest share a number: one step."""
        before, rows, nbytes = feed.seq, 0, 0
        if before >= durable:
            return False
        async for batch in feed.batches(min(STEP_ROWS, self._options.max_rows or STEP_ROWS)):
            rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
            if feed.seq > before:
                self._steps.append(Step(feed.place, rows, nbytes))
                return True
        return False

    async def _give_up_begun(self) -> None:
        """Nobody asks for what `begin` holds: the query had begun already, under another hold, or does not begin."""
        await self._close_feed()
        begun, self._begun, self._planned = self._begun, None, True
        if begun is not None:
            opening = self._environment.open_admin(self._options.path, metastore=self._options.metastore)
            async with opening as admin:
                await admin.delete_checkpoint(begun.hold)

    async def _close_feed(self) -> None:
        feed, self._feed = self._feed, None
        self._steps.clear()
        if feed is not None:
            await feed.aclose()
