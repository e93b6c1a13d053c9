"""`Batch`: what one append puts, checked, and cut where a part of it is known already.

All that is wrong with a batch is said before anything of it is stored.

Rule C4 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import FEW, extremes, mask_array, numbers_of
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.parts import PartRef
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.updates import DIFF, UpdateSchema, UpdatesLike, check_within
from slate_async.errors import InvalidError

_LOW = np.int64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Batch:
    """All updates from the lower to the upper of ``bounds``, as they were written.

    token: of this append; no other one has it
    rows, diff_sum: of ``updates``, or of all ``parts`` together
    parts: where the updates are, if they were put before; ``updates`` is ``None`` then
    """

    bounds: Bounds
    token: str
    rows: int
    diff_sum: int
    updates: pa.RecordBatch | None
    parts: tuple[PartRef, ...] = ()

    def description(self, shard: str) -> Description:
        """What it says about itself in ``shard``."""
        return Description(
            self.bounds.lower, self.bounds.upper, self.token, shard, self.rows, self.diff_sum, parts=self.parts
        )

    def beyond(self, coverage: Frontier, schema: UpdateSchema) -> Batch:
        """What of it is not covered by ``coverage`` (C4). A batch of parts stays whole: readers cut it."""
        if self.updates is None or coverage <= self.bounds.lower:
            return self
        updates = cut(self.updates, schema, coverage)
        return replace(
            self,
            bounds=self.bounds.cut(coverage),
            rows=updates.num_rows,
            diff_sum=sum_of_diffs(updates),
            updates=updates,
        )


@contextmanager
def naming(collection: str) -> Iterator[None]:
    """Within, an `InvalidError` about what is to be appended gets the name of the ``collection``, and an outcome."""
    try:
        yield
    except InvalidError as error:
        if error.outcome is None:
            error.args = (f"{collection}: {error}",)
            error.outcome = "not_applied"
        raise


def bounds_of(lower: FrontierLike, upper: FrontierLike, schema: UpdateSchema) -> Bounds:
    """Bounds as a user writes them. Raises `InvalidError` unless lower is at or below upper."""
    kind = schema.kind
    return Bounds(Frontier.of(lower, kind), Frontier.of(upper, kind), Frontier.minimum(kind))


def checked(updates: UpdatesLike, schema: UpdateSchema, bounds: Bounds) -> pa.RecordBatch:
    """``updates`` as columns of ``schema``. Raises `InvalidError`, which names the row, for updates of another form,
    for times outside of ``bounds``, and for a sum of differences that does not fit int64."""
    batch = schema.batch(updates)
    check_values(batch, schema, bounds)
    return batch


def check_values(batch: pa.RecordBatch, schema: UpdateSchema, bounds: Bounds) -> None:
    """Raise as `checked` for times and sums of ``batch``, whose columns are those of ``schema``."""
    check_within(batch, schema, bounds)
    if not surely_fit([batch]):
        consolidate(batch, schema)


def surely_fit(updates: Iterable[pa.RecordBatch]) -> bool:
    """Whether no sum of differences can be beyond int64, whatever the data are."""
    most = 0
    for batch in updates:
        diffs = numbers_of(batch.column(DIFF))
        if len(diffs):
            least, largest = extremes(diffs)
            most += max(largest, -least) * len(diffs)
    return most < 2**63


def cut(updates: pa.RecordBatch, schema: UpdateSchema, coverage: Frontier) -> pa.RecordBatch:
    """Those of ``updates`` that are at times beyond ``coverage``."""
    return updates.filter(mask_array(coverage.mask(schema.times(updates))))


def sum_of_diffs(updates: pa.RecordBatch) -> int:
    """Of all rows, of which there are fewer than 2**31. It may be beyond int64."""
    diffs = numbers_of(updates.column(DIFF))
    if len(diffs) <= FEW:
        return sum(diffs.tolist())
    return (int((diffs >> 32).sum()) << 32) + int((diffs & _LOW).sum())
