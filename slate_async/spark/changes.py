"""Changes as Spark has them, and ranges of a change feed, each of which one task reads.

The planner has a subscription, which retains what the tasks read. SSTs are in the order of keys: what is in them is
cut by keys, for else each task would read all of them. What is in the log is cut by sequence numbers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import slate_async as slate
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.subscription import FeedPosition
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.spark.typed_rows import microseconds
from slate_async.spark.worker import FeedName

ARROW_CHANGE = pa.schema(
    [
        pa.field("op", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("create_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("expire_time", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Step:
    """Changes up to ``position``: ``rows`` of them, ``nbytes`` of Arrow data."""

    position: FeedPosition
    rows: int
    nbytes: int


class FeedRange(NamedTuple):
    """What one task reads: the changes above ``after`` up to ``until`` of keys in ``span``."""

    after: FeedPosition
    until: int
    span: KeyRange


class ChangesPartition(InputPartition):
    """A range of the feed of that name."""

    def __init__(self, feed: FeedName, part: FeedRange) -> None:
        super().__init__((feed, part))
        self.feed = feed
        self.range = part


def log_ranges(begin: FeedPosition, steps: Sequence[Step], end: int, partition_bytes: int) -> list[FeedRange]:
    """``steps``, and what follows them, from ``begin`` to ``end``, in ranges of about ``partition_bytes``."""
    found: list[FeedRange] = []
    nbytes = 0
    for step in steps:
        nbytes += step.nbytes
        if nbytes >= partition_bytes and step.position.seq < end:
            found.append(FeedRange(begin, step.position.seq, EVERY_KEY))
            begin, nbytes = step.position, 0
    return [*found, FeedRange(begin, end, EVERY_KEY)] if begin.seq < end else found


def key_spans(splits: Sequence[slate.Split], count: int) -> list[KeyRange]:
    """All keys, in ``count`` ranges with about as many of ``splits``, or fewer."""
    firsts = sorted({len(splits) * number // count for number in range(count)})
    bounds = [None, *(splits[first].start for first in firsts[1:]), None]
    return [KeyRange(*pair) for pair in pairwise(bounds)]


async def changes_of(
    partition: ChangesPartition, environment: slate.Environment, ahead: ReadAhead | None = None
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The changes of one range, in batches of `ARROW_CHANGE`.

    ahead: of a range of all keys: what this process has found of that feed beyond what its tasks were asked for"""
    (after, until, (start, end)), name = partition.range, partition.feed
    async with environment.open_admin(name.path, metastore=name.metastore) as admin:
        changes = admin.read_changes(name.subscription, after, until, start=start, end=end, ahead=ahead)
        async for batch in changes:
            columns = {field.name: batch.column(field.name) for field in ARROW_CHANGE}
            columns["expire_time"] = microseconds(columns["expire_time"])
            cast = [columns[field.name].cast(field.type) for field in ARROW_CHANGE]
            yield pa.record_batch(cast, schema=ARROW_CHANGE)
