"""`LowestKeys`: passes over updates of one time give each data once, in order, and keep no more than fits."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from slate_async.collections.core import ordering
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.lowest import LowestKeys
from tests.support.collection_bytes import BYTES


def passes(slices: Sequence[pa.RecordBatch], limit: int) -> list[list[tuple[bytes, int]]]:
    """What each pass keeps: the rest of each slice goes to the next one."""
    found: list[list[tuple[bytes, int]]] = []
    while True:
        lowest = LowestKeys(BYTES, limit)
        for updates in slices:
            lowest.add(updates)
            assert lowest.nbytes <= max(limit, 2 * 40)
        found.append([(row["data"], row["_diff"]) for piece in lowest.slices(5) for row in piece.to_pylist()])
        if lowest.end is None:
            return found
        rest = []
        for updates in slices:
            ordered = updates.take(ordering.sorted_order(ordering.key_columns(updates, BYTES)))
            rest.append(ordered.slice(ordering.rows_before(ordering.key_columns(ordered, BYTES), lowest.end)))
        slices = rest


@pytest.mark.parametrize("limit", [1, 300, 2000, 10**9])
def test_every_data_is_in_one_pass(limit: int) -> None:
    rng = random.Random(limit)
    for _ in range(20):
        rows = [(b"%03d" % rng.randrange(60), 7, rng.choice((1, -1, 3))) for _ in range(rng.randrange(150))]
        slices = [BYTES.batch(rows[start : start + 11]) for start in range(0, len(rows), 11)]
        expected = [(row["data"], row["_diff"]) for row in consolidate(BYTES.batch(rows), BYTES).to_pylist()]
        found = passes(slices, limit)
        assert [row for kept in found for row in kept] == expected
        if limit == 10**9:
            assert len(found) == 1
        if limit == 300 and len(expected) > 30:
            assert len(found) > 2


def test_a_sum_on_the_way_may_not_fit_where_the_whole_one_does() -> None:
    lowest = LowestKeys(BYTES, 1)
    for diff in (2**62, 2**62, -(2**62), -1):
        lowest.add(BYTES.batch([(b"a", 7, diff)]))
    (piece,) = lowest.slices(5)
    assert sum(piece.column("_diff").to_pylist()) == 2**62 - 1
