"""What a snapshot and a listener give, of the updates that were read.

A snapshot at ``as_of`` is the sums of all updates at times at or before it, given at ``as_of``. A listener from there
gives every other update, once, at ``time join as_of``: where times are pairs, that includes those that are neither
before nor after ``as_of``. So the snapshot with all that was listened to, up to s, is the contents at every s at or
after ``as_of`` (property P6).

An update has one answer whether it was compacted or not, as long as what was read may be compacted to frontiers at or
below ``as_of`` only (rule C3): advancing moves no time across ``as_of``, and none beyond ``time join as_of``.

Rules C3 and C4 of collections.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import mask_array, number_array, numbers_of
from slate_async.collections.core.frontier import Frontier, Mask
from slate_async.collections.core.times import Time
from slate_async.collections.core.updates import DIFF, UpdateSchema, row_text
from slate_async.errors import InvalidError

MOST_ROWS = 2**31
"""That a batch of rows is expanded to."""


def snapshot_rows(updates: pa.RecordBatch, schema: UpdateSchema, as_of: Time) -> pa.RecordBatch:
    """Those of ``updates`` that a snapshot at ``as_of`` sums, at their own times; in the order they are in.

    A merge that advances to ``as_of`` then gives the snapshot, sorted and consolidated, from sorted sources."""
    return _chosen(updates, ~_after(updates, schema, as_of))


def listened_rows(
    updates: pa.RecordBatch, schema: UpdateSchema, covered: Frontier, as_of: Time | None
) -> pa.RecordBatch:
    """Those of ``updates`` that a listener gives, at the times it gives them; not consolidated.

    covered: what it gave before; only updates at times beyond it are new (rule C4)
    as_of: where it began; ``None`` after a restart, which goes on at times as they were written"""
    wanted = covered.mask(schema.times(updates))
    if as_of is None:
        return _chosen(updates, wanted)
    rows = _chosen(updates, wanted & _after(updates, schema, as_of))
    return schema.with_times(rows, Frontier([as_of]).advance_by(schema.times(rows)))


def expanded(updates: pa.RecordBatch, schema: UpdateSchema) -> pa.RecordBatch:
    """The data of ``updates``, each as often as its difference says: what a user takes the contents for.

    Raises `InvalidError` for a row that is there a negative number of times, and for `MOST_ROWS` or more."""
    diffs = numbers_of(updates.column(DIFF))
    if (diffs < 0).any():
        row = int((diffs < 0).argmax())
        raise InvalidError(f"a row that is there {diffs[row]} times cannot be shown: {row_text(updates, row)}")
    if float(diffs.sum(dtype=np.float64)) >= MOST_ROWS:
        row = int(diffs.argmax())
        raise InvalidError(f"rows that are there so many times cannot be shown one by one: {row_text(updates, row)}")
    rows = number_array(np.repeat(np.arange(len(diffs)), diffs))
    return updates.select(schema.data.names).take(rows)


def _after(updates: pa.RecordBatch, schema: UpdateSchema, as_of: Time) -> Mask:
    """Whether a time is not at or before ``as_of``."""
    columns = schema.times(updates)
    after: Mask = columns[0] > as_of[0]
    for column, number in zip(columns[1:], as_of[1:], strict=True):
        after |= column > number
    return after


def _chosen(updates: pa.RecordBatch, wanted: Mask) -> pa.RecordBatch:
    return updates if wanted.all() else updates.filter(mask_array(wanted))
