"""Updates between two times, read by any process: `slate_async.collections.reader.update_split`."""

from __future__ import annotations

import pickle
import random

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.reader.lending import SharedHold, share_hold
from slate_async.collections.reader.split import look_ahead
from slate_async.collections.reader.update_split import UpdateSplit, split_updates
from slate_async.errors import CorruptionError
from tests.support.collection_bytes import COLLECTION, frontier
from tests.unit.collections.reader.conftest import Keeper, ReadLake, random_rows, revoke

ROWS = random_rows(random.Random(3), 40)
HOUR = 3_600_000
Rows = list[tuple[bytes, int, int]]


def between(lower: int, upper: int) -> Rows:
    return [row for row in ROWS if lower <= row[1] < upper]


def summed(rows: Rows) -> Rows:
    """Each data and time once."""
    sums: dict[tuple[bytes, int], int] = {}
    for data, time, diff in rows:
        sums[data, time] = sums.get((data, time), 0) + diff
    return sorted((*key, diff) for key, diff in sums.items() if diff)


async def planned(
    lake: ReadLake, lower: int, upper: Frontier, nbytes: int, appends: Appends = Appends.DEFINITE
) -> tuple[SharedHold, list[UpdateSplit]]:
    """What a planner hands to its tasks, pickled on the way."""
    context = lake.reading(appends, lease_ms=HOUR)
    hold, area = await share_hold(context)
    lent = await hold.lend(area.version)
    source = await look_ahead(context, lent, COLLECTION, area)
    splits = split_updates(COLLECTION, lent, area, source.taken, frontier(lower), upper, nbytes)
    return hold, [pickle.loads(pickle.dumps(split)) for split in splits]


async def read(lake: ReadLake, splits: list[UpdateSplit], appends: Appends = Appends.DEFINITE) -> Rows:
    """What tasks read, each as a process of its own."""
    found: Rows = []
    for split in splits:
        async for batch in split.batches(lake.reading(appends)):
            found += [(row["data"], row["_time"], row["_diff"]) for row in batch.to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("nbytes", [1, 1 << 30])
async def test_every_update_between_two_times_comes_once(lake: ReadLake, nbytes: int) -> None:
    """C4: from what is merged and what is pending, of writers that overlap; whatever is compacted meanwhile."""
    keeper = await Keeper.claim(lake)
    await lake.put(between(0, 10), 0, 10)
    await keeper.round()
    await lake.put(between(10, 16), 10, 16)
    await keeper.round(merge=False)
    await lake.put(between(16, 22), 16, 22, "a")
    await lake.put(between(10, 30), 10, 30, "b")
    for lower, upper in ((0, frontier(30)), (3, frontier(12)), (11, frontier(17)), (17, DONE), (30, DONE)):
        hold, splits = await planned(lake, lower, upper, nbytes)
        assert len(splits) <= (1 if nbytes > 1 else 4)
        end = 30 if upper.is_done else upper.elements[0][0]
        assert await read(lake, splits) == summed(between(lower, end))
        await keeper.round()
        assert await read(lake, splits) == summed(between(lower, end))
        await hold.expire()


async def test_what_is_read_of_a_chain_counts_only_under_a_hold_that_stands(lake: ReadLake) -> None:
    """C14."""
    writer = await lake.writer(Appends.COMPARE)
    await writer.append(between(0, 20), lower=0, upper=20)
    hold, splits = await planned(lake, 5, frontier(15), 1, Appends.COMPARE)
    assert await read(lake, splits, Appends.COMPARE) == summed(between(5, 15))
    await hold.leave()
    await revoke(lake)
    with pytest.raises(LeaseLostError):
        await read(lake, splits, Appends.COMPARE)


async def test_an_object_missing_under_a_hold_that_stands_is_corruption(lake: ReadLake) -> None:
    """C15."""
    await lake.put(between(0, 20), 0, 20)
    hold, splits = await planned(lake, 0, frontier(20), 1)
    await lake.store.delete([listed.key async for listed in lake.pending().list()])
    with pytest.raises(CorruptionError, match=r"is missing, and the hold .* stands"):
        await read(lake, splits)
    await hold.leave()
    await revoke(lake)
    with pytest.raises(LeaseLostError):
        await read(lake, splits)
