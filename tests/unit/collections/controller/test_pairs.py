"""Collections whose times are pairs."""

from __future__ import annotations

import itertools

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.merged import MergedSource
from tests.engine import InlineOffload
from tests.support.collection_bytes import PAIRS
from tests.unit.collections.kept import KeptLake

STEPS = [
    Frontier([(0, 0)]),
    Frontier([(0, 5), (3, 0)]),
    Frontier([(number, 40 - 2 * number) for number in range(16)]),  # its name is a hash
    Frontier([(20, 10), (0, 50)]),
    DONE,
]
ROWS = [(b"%d" % (first % 3), (first, second), 1) for first in range(22) for second in range(0, 60, 7)]


@pytest.mark.parametrize("appends", list(Appends))
async def test_all_is_taken_in_and_compacted(lake: KeptLake, appends: Appends) -> None:
    lake.schema = UpdateSchema.of_bytes(PAIRS)
    controller = await lake.controller(appends)
    writer = await lake.writer(appends, "a")
    for number, (lower, upper) in enumerate(itertools.pairwise(STEPS)):
        rows = [row for row in ROWS if lower.less_equal(row[1]) and not upper.less_equal(row[1])]
        await writer.append(rows, lower=lower, upper=upper)
        report = await controller.round()
        assert (report.appends, report.upper) == (1, upper), number
        await controller.merge()
    await controller.settle()
    head = await lake.head()
    assert head.upper.is_done
    assert await lake.keys("pending_batches/") == []
    rows = []
    for batch in head.batches:
        source = await MergedSource.open(lake.store, lake.schema, batch, InlineOffload())
        async for table in source.updates():
            rows += [(row["data"], (row["_time"], row["_time2"]), row["_diff"]) for row in table.to_pylist()]
    assert sorted(rows) == sorted(ROWS)
    assert [batch.times for batch in head.batches] == [len(ROWS)]
