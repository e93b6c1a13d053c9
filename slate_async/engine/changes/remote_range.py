"""A range of a change feed, read by another process than the one whose feed it is.

That feed has a subscription with a name, and says where the range begins (`FeedPosition`) and ends. Nothing is written
here: the subscription is neither taken over nor moved nor renewed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

import numpy as np
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_scalar, mask_of
from slate_async.codec.columns import Columns
from slate_async.engine.changes.change import record_batch
from slate_async.engine.changes.order import batches_of, up_to
from slate_async.engine.changes.source import ChangeSource, Reading
from slate_async.engine.changes.subscription import FeedPosition, LoadedSubscription, Subscription
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.errors import NotFoundError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.manifest.edits.subscriptions import check_exact
from slate_async.storage.manifest.state import FeedMark, ManifestState

LOOKS = 40
PAUSE_S = 0.25
"""Between looks for rows that are durable, so there."""


class BorrowedSubscription(Subscription):
    """The subscription of a feed elsewhere: never started, so it commits nothing."""

    async def anew(self, seq: int) -> tuple[ManifestState, FeedMark]:
        """What the newest state has, which nothing retains; for what the subscription does not have. Raises
        `InvalidError` if that does not have all of it."""
        head = await self._driver.existing()
        check_exact(head, seq)
        return head, FeedMark(seq, head.last_seq, head.log_start, head.log_floor)


def borrowed(made: LoadedSubscription, reading: Reading, runtime: Runtime) -> BorrowedSubscription:
    """The subscription ``made`` as one that is another's."""
    return BorrowedSubscription(
        made.checkpoint, reading.driver, runtime, pace_ms=0, life_ms=None, stats=reading.stats, path=reading.path
    )


async def read_range(
    made: LoadedSubscription,
    reading: Reading,
    runtime: Runtime,
    after: FeedPosition,
    until: int,
    max_rows: int,
    span: KeyRange,
) -> AsyncGenerator[RecordBatch, None]:
    """The changes above ``after.seq`` up to ``until``, which are durable, as `ChangeFeed.batches` gives them; those of
    keys in ``span``, outside of which ``reading`` need not read.

    Raises `InvalidError` if they were acknowledged, `UnavailableError`, `CorruptionError`."""
    assert made.checkpoint.feed is not None
    if after.seq < made.checkpoint.feed.seq:
        raise NotFoundError(
            f"the subscription {made.checkpoint.name!r} was acknowledged up to sequence number"
            f" {made.checkpoint.feed.seq}, so changes after {after.seq} are not retained any more"
        )
    mark = FeedMark(after.seq, after.log_seq, after.log_position, after.log_floor)
    source = ChangeSource(reading, made.state, mark, after.seq, borrowed(made, reading, runtime))
    looks = 0
    while source.seq < until:
        piece = await source.read(until)
        for rows in await runtime.offload.run(partial(_cut, piece.parts, until, max_rows, span)):
            yield await runtime.offload.run(partial(record_batch, rows))
        if not piece.more and source.seq < until:
            looks += 1
            if looks > LOOKS:
                raise UnavailableError(
                    f"{reading.path}: changes are durable up to sequence number {source.seq}, not up to {until};"
                    " try again later"
                )
            await runtime.clock.sleep(PAUSE_S)


def _cut(parts: list[Columns], until: int, max_rows: int, span: KeyRange) -> list[Columns]:
    wanted = (_within(up_to(part, until), span) for part in parts)
    return batches_of([part for part in wanted if len(part)], max_rows)


def _within(rows: Columns, span: KeyRange) -> Columns:
    """The rows whose keys are in ``span``; they are not in the order of keys."""
    inside = np.ones(len(rows), np.bool_)
    if span.start is not None:
        inside &= mask_of(pc.greater_equal(rows.keys, binary_scalar(span.start)))
    if span.end is not None:
        inside &= mask_of(pc.less(rows.keys, binary_scalar(span.end)))
    return rows if inside.all() else rows.take(np.flatnonzero(inside))
