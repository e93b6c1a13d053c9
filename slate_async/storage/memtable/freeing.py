"""The rows of a memtable that nobody refers to any more are freed in steps, with a turn of the loop after each.

To free a full table in one go takes 10 ms and more, in which the event loop stands still.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import repeat

from slate_async.storage.memtable.order import SortedKeys
from slate_async.storage.memtable.rows_by_key import RowsByKey

STEP_ROWS = 1024
"""So many rows take about a quarter of a millisecond; a table of fewer is freed at once."""
STEP_BLOCKS = 16
"""Of sorted keys, which are all still referred to elsewhere."""


def free(
    keys: list[bytes],
    values: list[bytes],
    latest: dict[bytes, bytes | int],
    by_key: RowsByKey,
    order: SortedKeys,
) -> None:
    """Free what a table held, on the loop that runs in this thread; without one the caller's references were the last.

    Nothing may refer to the table any more: everything is empty in the end."""
    if len(keys) <= STEP_ROWS:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    _go_on(loop, steps(keys, values, latest, by_key, order))


def _go_on(loop: asyncio.AbstractEventLoop, left: Iterator[None]) -> None:
    for _ in left:
        loop.call_soon(_go_on, loop, left)
        return


def steps(
    keys: list[bytes],
    values: list[bytes],
    latest: dict[bytes, bytes | int],
    by_key: RowsByKey,
    order: SortedKeys,
) -> Iterator[None]:
    """Take everything out, the newest rows first."""
    while len(order):
        order.drop_last(STEP_BLOCKS)
        yield
    while keys:
        newest = keys[-STEP_ROWS:]
        del keys[-STEP_ROWS:], values[-STEP_ROWS:]
        deque(map(latest.pop, newest, repeat(None)), maxlen=0)
        by_key.forget(newest)
        del newest
        yield
