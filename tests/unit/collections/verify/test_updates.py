"""`slate_async.collections.verify.updates`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.frontier import DONE
from slate_async.collections.verify.updates import UpdatesCheck, may_be_within
from tests.support.collection_bytes import ORDERS, PAIR_UPDATES, frontier

# ---- times of pairs


def test_which_times_compaction_may_have_made() -> None:
    bounds = Bounds(frontier((0, 5), (3, 0)), frontier((6, 6)), frontier((4, 1), (2, 3)))
    least = (2, 1)
    written = [(a, b) for a in range(9) for b in range(9) if bounds.contains((a, b))]
    made = {(max(a, least[0]), max(b, least[1])) for a, b in written}
    pairs = [(a, b) for a in range(9) for b in range(9)]
    columns = tuple(np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    found = {pair for pair, fits in zip(pairs, may_be_within(columns, bounds), strict=True) if fits}
    assert found == made


def test_times_of_a_batch_whose_since_is_done_are_as_they_were() -> None:
    bounds = Bounds(frontier(3), frontier(6), DONE)
    times = (np.arange(8, dtype=np.uint64),)
    assert list(np.flatnonzero(may_be_within(times, bounds))) == [3, 4, 5]


def test_pairs_of_times_are_counted() -> None:
    bounds = Bounds(frontier((0, 0)), DONE, frontier((0, 0)))
    check = UpdatesCheck(ORDERS, bounds, compacted=True)
    check.add(pa.Table.from_batches([consolidate(PAIR_UPDATES, ORDERS)]))
    assert (check.rows, check.diff_sum, check.times, check.faults) == (3, 7, 3, [])
