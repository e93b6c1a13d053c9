"""Memtable to Arrow without holding up the event loop.

Building Arrow arrays from Python objects holds the interpreter, so it is done on the loop in steps of about one
millisecond with a turn for everybody else between two of them; sorting releases the interpreter and runs in a
worker thread on Arrow data only, which no later append can touch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.format.columns import Columns
from slate_async.memtable.memtable import STEP_ROWS, Memtable
from slate_async.runtime.protocol import Offload

INLINE_SORT_ROWS = 2048
"""Fewer keys than this are sorted on the loop: that takes less time than a hand-over to a thread."""


async def convert(table: Memtable, start: int, stop: int) -> list[Columns]:
    """Rows ``start`` to ``stop`` (exclusive) in write order, as pieces of at most `STEP_ROWS` rows.

    The rows are fixed when the call starts; appends may go on meanwhile. Raises `InvalidError` for rows that
    are not there.
    """
    pieces: list[Columns] = []
    for piece in table.slices(start, stop):
        if pieces:
            await asyncio.sleep(0)
        pieces.append(piece)
    return pieces


async def sorted_columns(table: Memtable, offload: Offload) -> AsyncIterator[Columns]:
    """All rows that are in ``table`` now, every version, ordered by key ascending, then sequence number descending.

    Yields pieces of at most `STEP_ROWS` rows and about `STEP_BYTES` bytes, each built on demand.
    """
    stop = len(table)
    if stop == 0:
        return
    newest_first: list[pa.LargeBinaryArray] = []
    for high in range(stop, 0, -STEP_ROWS):
        newest_first.append(table.key_array(max(0, high - STEP_ROWS), high)[::-1])
        await asyncio.sleep(0)
    order = partial(_order_of, newest_first)
    rows = order() if stop <= INLINE_SORT_ROWS else await offload.run(order)
    for start in range(0, stop, STEP_ROWS):
        for piece in table.pieces(rows[start : start + STEP_ROWS].tolist()):
            yield piece
            await asyncio.sleep(0)


def _order_of(newest_first: list[pa.LargeBinaryArray]) -> npt.NDArray[np.int64]:
    """Row numbers by key, newest first within a key: a stable sort of the keys laid out newest row first."""
    keys = pa.concat_arrays(newest_first)
    positions: npt.NDArray[np.uint64] = pc.array_sort_indices(keys).to_numpy()
    return len(keys) - 1 - positions.astype(np.int64)
