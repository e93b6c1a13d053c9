"""Listeners over pairs of times, which are neither before nor after one another as often as not (P6)."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.reader.listen import Delta, Listener
from tests.engine import settle
from tests.support.collection_bytes import PAIRS
from tests.unit.collections.reader.conftest import Keeper, ReadLake, Rows, at, expected_delta, move_on, rows_of, take

RNG = random.Random(8)
PAIR_ROWS: Rows = [
    (b"%d" % RNG.randrange(6), (RNG.randrange(9), RNG.randrange(9)), RNG.choice((1, 2, -1))) for _ in range(80)
]
STEPS = [
    Frontier(elements)
    for elements in ([(2, 0), (0, 1)], [(3, 0), (1, 2), (0, 4)], [(6, 0), (0, 5)], [(7, 0), (4, 6), (0, 8)], [])
]


@pytest.fixture
def pair_lake(lake: ReadLake) -> ReadLake:
    """Whose times are pairs."""
    lake.schema = UpdateSchema.of_bytes(PAIRS)
    return lake


def pairs_between(lower: Frontier, upper: Frontier) -> Rows:
    return [row for row in PAIR_ROWS if lower.less_equal(row[1]) and not upper.less_equal(row[1])]


@pytest.mark.parametrize("appends", list(Appends))
@pytest.mark.parametrize("merging", [False, True])
async def test_pairs_are_given_at_the_join_with_where_a_listener_began(
    pair_lake: ReadLake, appends: Appends, merging: bool
) -> None:
    """P6: also those that are neither before nor after it. So contents at all later times are right."""
    lake = pair_lake
    writer, keeper, reader = await lake.writer(appends), await Keeper.claim(lake), await lake.reader(appends)
    listeners, deltas = dict[Any, Listener](), dict[Any, list[Delta]]()
    lower = lake.minimum
    for step in STEPS:
        await writer.append(pairs_between(lower, step), upper=step)
        for as_of, started in listeners.items():
            deltas[as_of] += await take(started, step)
        for as_of in ((1, 0), (0, 3), (5, 1), (3, 5)):
            if as_of not in listeners and not step.less_equal(as_of):
                listeners[as_of], deltas[as_of] = reader.subscribe(as_of), []
                deltas[as_of] += await take(listeners[as_of], step)
        if merging:
            await reader.downgrade_since(step)
            for _ in range(2):
                await keeper.round()
                await lake.clock.sleep(20)
                await move_on(lake, reader)
                await settle(100)  # for the renewal
        lower = step
    for as_of, given in deltas.items():
        for delta in given[1:]:
            assert rows_of(delta) == expected_delta(PAIR_ROWS, delta, as_of)
        for s in itertools.product(range(as_of[0], 10), range(as_of[1], 10)):
            assert at([row for delta in given for row in rows_of(delta)], s) == at(PAIR_ROWS, s)
    assert len(deltas) == 4


@pytest.mark.parametrize("appends", list(Appends))
async def test_a_restart_among_pairs_cuts_what_is_compacted(pair_lake: ReadLake, appends: Appends) -> None:
    """C2, P3."""
    lake = pair_lake
    writer, keeper = await lake.writer(appends), await Keeper.claim(lake)
    lower = lake.minimum
    for step in STEPS:
        await writer.append(pairs_between(lower, step), upper=step)
        lower = step
    for start in STEPS[:-1]:
        keeping = await lake.reader(appends)
        await keeping.downgrade_since(start.step_back())
        for older in lake.readers[:-1]:
            await older.expire()
        for _ in range(4):
            await keeper.round()
        reader = await lake.reader(appends, pending_memory_bytes=400)
        given = [delta async for delta in reader.listen(start=start)]
        assert len(given) > 1
        assert given[0].lower == start
        for delta in given:
            assert rows_of(delta) == expected_delta(PAIR_ROWS, delta)
        assert all(before.upper == after.lower for before, after in itertools.pairwise(given))
