"""Memtable to Arrow without holding up the event loop.

Building Arrow arrays from Python objects holds the interpreter, so it is done on the loop in steps of a fraction of a
millisecond with a turn for everybody else between two of them; sorting and copying release the interpreter and run in
a worker thread on Arrow data only, which no later append can touch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import numbers_of
from slate_async.codec.columns import Columns, concat
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.ordering import order_of
from slate_async.storage.memtable.memtable import Memtable
from slate_async.storage.memtable.spans import STEP_ROWS

INLINE_ROWS = 2048
INLINE_BYTES = 1 << 20
"""So many rows of so many bytes are sorted on the loop: that takes less time than a hand-over to a thread."""
COPIED_BYTES = 256 << 20
"""A larger table is not copied to sort it."""
SORTED_BYTES = 4 << 20
"""About what a sorted piece of a copied table holds."""
JOINED_PIECES = 64
"""So many pieces of a table are joined at a time: a worker that joins a thousand keeps the interpreter for 3 ms."""


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


async def _convert_joined(table: Memtable, stop: int, offload: Offload) -> list[Columns]:
    """As `convert` of all rows before ``stop``, `JOINED_PIECES` pieces joined by a worker."""
    joined: list[Columns] = []
    pieces: list[Columns] = []

    def join() -> Columns:
        rows = concat(pieces)
        pieces.clear()
        return rows

    for piece in table.slices(0, stop):
        pieces.append(piece)
        if len(pieces) < JOINED_PIECES:
            await asyncio.sleep(0)
        else:
            joined.append(await offload.run(join))
    return [*joined, *pieces]


def sorted_columns(table: Memtable, offload: Offload) -> AsyncGenerator[Columns, None]:
    """All rows that are in ``table`` now, every version, ordered by key ascending, then sequence number descending.

    Yields pieces of some megabytes, each made on demand; a caller that stops before the end closes it. For a while the
    rows are in memory twice, unless the table is larger than `COPIED_BYTES`."""
    return _sorted_rows(table, offload) if table.nbytes > COPIED_BYTES else _sorted_copy(table, offload)


async def _sorted_copy(table: Memtable, offload: Offload) -> AsyncGenerator[Columns, None]:
    """Rows in write order, one after another in memory, are many times faster to convert than rows in key order."""
    stop = len(table)
    if stop == 0:
        return
    inline = stop <= INLINE_ROWS and table.nbytes <= INLINE_BYTES
    pieces = await (convert(table, 0, stop) if inline else _convert_joined(table, stop, offload))

    def sort() -> tuple[Columns, npt.NDArray[np.int64]]:
        rows = concat(pieces)
        pieces.clear()
        return rows, order_of(rows)[0]

    rows, order = sort() if inline else await offload.run(sort)
    step = max(1, stop * SORTED_BYTES // rows.nbytes)
    for start in range(0, stop, step):
        take = partial(rows.take, order[start : start + step])
        yield take() if inline else await offload.run(take)


async def _sorted_rows(table: Memtable, offload: Offload) -> AsyncGenerator[Columns, None]:
    """Pieces of at most `STEP_ROWS` rows and about `STEP_BYTES` bytes, converted in key order."""
    stop = len(table)
    newest_first: list[pa.LargeBinaryArray] = []
    for high in range(stop, 0, -STEP_ROWS):
        newest_first.append(table.key_array(max(0, high - STEP_ROWS), high)[::-1])
        await asyncio.sleep(0)
    order = partial(_order_of, newest_first)
    rows = order() if stop <= INLINE_ROWS else await offload.run(order)
    for start in range(0, stop, STEP_ROWS):
        for piece in table.pieces(rows[start : start + STEP_ROWS].tolist()):
            yield piece
            await asyncio.sleep(0)


def _order_of(newest_first: list[pa.LargeBinaryArray]) -> npt.NDArray[np.int64]:
    """Row numbers by key, newest first within a key: a stable sort of the keys laid out newest row first."""
    keys = pa.concat_arrays(newest_first)
    positions: npt.NDArray[np.uint64] = numbers_of(pc.array_sort_indices(keys))
    return len(keys) - 1 - positions.astype(np.int64)
