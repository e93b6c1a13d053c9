"""The rows of a large table that nobody refers to go in steps, with turns of the loop between them."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from slate_async.storage.memtable import Memtable
from slate_async.storage.memtable.freeing import STEP_ROWS
from slate_async.types import MAX_SEQ

STEPS = 5


def full_table(rows: int, *, asked: bool) -> Memtable:
    """A frozen table of ``rows`` rows, a third of which replace others; ``asked``: all that scans need is there."""
    table = Memtable()
    keys = [b"%06d" % (number - number % 3 // 2) for number in range(rows)]
    table.append_batch(keys, [b"value of " + key for key in keys], bytes(rows), 1, None, 5)
    if asked:
        assert sum(map(len, table.scan(None, None, MAX_SEQ))) == len(set(keys))
    table.freeze()
    return table


@pytest.mark.parametrize("asked", [False, True])
async def test_a_large_table_goes_in_steps(asked: bool) -> None:
    table = full_table(STEPS * STEP_ROWS, asked=asked)
    keys, values, latest, order, newest = (
        table._keys,
        table._values,
        table.latest,
        table._order,
        table._by_key._newest,
    )
    assert bool(len(order)) == bool(newest) == asked
    gone = weakref.ref(table)
    del table
    assert gone() is None
    assert len(keys) >= (STEPS - 1) * STEP_ROWS
    turns = 0
    while keys or len(order):
        before = len(keys), len(order)
        await asyncio.sleep(0)
        turns += 1
        assert before[0] - len(keys) <= STEP_ROWS
        assert (len(keys), len(order)) != before
    assert turns >= STEPS - 1
    assert not values
    assert not latest
    assert not newest


async def test_a_table_that_somebody_reads_stays_whole() -> None:
    table = full_table(STEPS * STEP_ROWS, asked=False)
    batches = table.scan(None, None, MAX_SEQ)
    found = len(next(batches))
    expected = len(table.latest)
    del table
    for batch in batches:
        await asyncio.sleep(0)
        found += len(batch)
    assert found == expected


async def test_a_small_table_goes_at_once() -> None:
    table = full_table(STEP_ROWS, asked=False)
    keys = table._keys
    del table
    await asyncio.sleep(0)
    assert len(keys) == STEP_ROWS  # those are the test's own


def test_without_a_loop_a_table_goes_at_once() -> None:
    table = full_table(STEPS * STEP_ROWS, asked=False)
    keys = table._keys
    del table
    assert len(keys) == STEPS * STEP_ROWS
