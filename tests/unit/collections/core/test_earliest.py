"""`Earliest`: passes over updates give each of them once, in the order of their first coordinate."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from slate_async.collections.core.earliest import Earliest, from_first
from slate_async.collections.core.updates import UpdateSchema
from tests.support.collection_bytes import BYTES, PAIRS

PAIR_BYTES = UpdateSchema.of_bytes(PAIRS)


def passes(slices: Sequence[pa.RecordBatch], schema: UpdateSchema, limit: int) -> list[list[tuple[bytes, int, int]]]:
    """What each pass keeps."""
    found: list[list[tuple[bytes, int, int]]] = []
    first = 0
    while True:
        earliest = Earliest(schema, limit)
        for updates in slices:
            earliest.add(from_first(updates, schema, first))
        rows = [(row["data"], row["_time"], row["_diff"]) for piece in earliest.rows for row in piece.to_pylist()]
        assert earliest.nbytes == sum(piece.nbytes for piece in earliest.rows)
        assert earliest.nbytes <= limit or len({row[1] for row in rows}) == 1
        found.append(rows)
        if earliest.end is None:
            return found
        assert earliest.end > first
        assert all(first <= row[1] < earliest.end for row in rows)
        first = earliest.end


@pytest.mark.parametrize("limit", [1, 300, 5000, 10**9])
@pytest.mark.parametrize("pairs", [False, True])
def test_every_update_is_in_one_pass(limit: int, pairs: bool) -> None:
    rng = random.Random(limit)
    schema = PAIR_BYTES if pairs else BYTES
    for _ in range(20):
        rows = [(b"%d" % rng.randrange(9), rng.randrange(rng.choice((1, 4, 50))), 1) for _ in range(rng.randrange(90))]
        stored = [(data, (time, rng.randrange(5)) if pairs else time, diff) for data, time, diff in rows]
        slices = [schema.batch(stored[start : start + 7]) for start in range(0, len(rows), 7)]
        found = passes(slices, schema, limit)
        assert sorted(row for rows_of_pass in found for row in rows_of_pass) == sorted(rows)
        if limit == 10**9:
            assert len(found) == 1
