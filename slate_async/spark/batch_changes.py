"""``read.format("slate-changes")``: the changes between two sequence numbers, or times, as a frame.

The planner makes a subscription for the job. It retains what the tasks read; they lengthen it, and it expires when no
job reads the frame any more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import slate_async as slate
from slate_async.engine.read.bounds import KeyRange
from slate_async.spark.changes import ChangesPartition, FeedRange, Step, changes_of, log_ranges
from slate_async.spark.lease import Lease, keep_checkpoint
from slate_async.spark.options import (
    DEFAULT_LIFETIME_S,
    DEFAULT_PARTITION_BYTES,
    Options,
    byte_count,
    natural,
    seconds,
    time,
)
from slate_async.spark.stream_options import start_seq
from slate_async.spark.worker import FeedName, this_worker

STEP_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class ChangesOptions:
    """What a batch read of changes is asked for.

    path, metastore: as of `slate_async.open`
    start, start_time: changes after that sequence number, or after that time, in seconds since 1970
    end, end_time: up to that sequence number, or that time; ``None`` of both: what is durable when the job is planned
    partition_bytes: of stored SSTs, or of keys and values in the log, for each task, about
    lifetime_s: of the subscription, from when no task reads any more
    """

    path: str
    metastore: str | None
    start: int | Literal["now"]
    start_time: float | None
    end: int | None
    end_time: float | None
    partition_bytes: int
    lifetime_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ChangesOptions:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        start = given.take("startingSeq", start_seq, None)
        changes = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            start=start or 0,
            start_time=given.take("startingTime", time, None),
            end=given.take("endingSeq", natural, None),
            end_time=given.take("endingTime", time, None),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            lifetime_s=given.take("subscriptionLifetime", seconds, DEFAULT_LIFETIME_S),
        )
        given.finish()
        if start is not None and changes.start_time is not None:
            raise slate.InvalidError("give one of the options startingSeq and startingTime")
        if changes.end is not None and changes.end_time is not None:
            raise slate.InvalidError("give one of the options endingSeq and endingTime")
        return changes


class LeasedRange(ChangesPartition):
    """A range of a feed whose subscription the tasks lengthen."""

    def __init__(self, feed: FeedName, part: FeedRange, lease: Lease) -> None:
        super().__init__(feed, part)
        self.lease = lease


class ChangesBatchReader(DataSourceReader):
    """Implements Spark's reader."""

    def __init__(self, options: ChangesOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Fix what is read, and cut it into ranges."""
        return this_worker().run(partial(plan_changes, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range."""
        if not isinstance(partition, LeasedRange):
            return iter(())  # of no partitions Spark makes one of its own
        return this_worker().iterate(partial(_leased, partition))


async def plan_changes(options: ChangesOptions, environment: slate.Environment) -> list[LeasedRange]:
    """The ranges of what is asked for, and a subscription that retains it. Raises `InvalidError` for what is not there
    yet, or was compacted."""
    path, metastore = options.path, options.metastore
    async with (
        environment.open_reader(path, metastore=metastore) as reader,
        environment.open_admin(path, metastore=metastore) as admin,
    ):
        after, until = _bounds(options, reader)
        if after == until:
            return []
        feed = FeedName(path, metastore, f"spark {uuid4()}")
        made_ms = environment.runtime.clock.now_ms()
        try:
            found = await _ranges(options, reader, feed, after, until)
            [made] = [held for held in await admin.checkpoints.list() if held.name == feed.subscription]
        except Exception:
            with suppress(slate.SlateError):  # it expires
                await admin.checkpoints.delete(feed.subscription)
            raise
    lease = Lease(path, metastore, made.id, options.lifetime_s, made_ms)
    return [LeasedRange(feed, part, lease) for part in found]


def _bounds(options: ChangesOptions, reader: slate.DbReader) -> tuple[int, int]:
    """Changes above the first number, up to the second one."""
    durable = until = reader.status().last_seq
    after = durable if options.start == "now" else options.start
    if options.start_time is not None:
        after = reader.time_to_seq(options.start_time)
    if options.end is not None:
        until = options.end
    if options.end_time is not None:
        until = reader.time_to_seq(options.end_time)
    if until > durable:
        raise slate.InvalidError(f"option endingSeq={until}: the newest sequence number that is durable is {durable}")
    if after > until:
        raise slate.InvalidError(f"the changes asked for begin after sequence number {after}, and end with {until}")
    return after, until


async def _ranges(
    options: ChangesOptions, reader: slate.DbReader, name: FeedName, after: int, until: int
) -> list[FeedRange]:
    """Of what is in the log, this reads all; of what is in SSTs, nothing."""
    async with _opened(options, reader, name, after, until) as feed:
        begin = feed.position
        if begin.log_seq <= after:
            return log_ranges(begin, await _steps(feed), until, options.partition_bytes)
    stored = min(until, begin.log_seq)
    splits = await reader.splits(target_bytes=options.partition_bytes)
    found = [FeedRange(begin, stored, KeyRange(split.start, split.end)) for split in splits]
    if stored == until:
        return found
    async with _opened(options, reader, name, stored, until) as feed:
        return [*found, *log_ranges(feed.position, await _steps(feed), until, options.partition_bytes)]


def _opened(
    options: ChangesOptions, reader: slate.DbReader, name: FeedName, after: int, until: int
) -> slate.ChangeFeed:
    return reader.changes(
        from_seq=after,
        until_seq=until,
        subscription=name.subscription,
        subscription_lifetime=options.lifetime_s,
    )


async def _steps(feed: slate.ChangeFeed) -> list[Step]:
    """Where what is in the log may be cut."""
    steps: list[Step] = []
    before, rows, nbytes = feed.seq, 0, 0
    async for batch in feed.batches(STEP_ROWS):
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if feed.seq > before:
            steps.append(Step(feed.position, rows, nbytes))
            before, rows, nbytes = feed.seq, 0, 0
    return steps


async def _leased(partition: LeasedRange, environment: slate.Environment) -> AsyncGenerator[pa.RecordBatch, None]:
    async with keep_checkpoint(environment, partition.lease):
        async with aclosing(changes_of(partition, environment)) as changes:
            async for batch in changes:
                yield batch
