"""Large values that are read again when their rows are wanted.

A merge needs a row of each of its sources at once, and holds it for as long as another source's rows come first, or
its consumer does something else. It has no memory for rows that fill what one read may hold. So such a row goes into
the merge without its value: its key and numbers tell where it belongs and whether anybody sees it. The block that has
the value is lent memory meanwhile, which the next read that needs some takes back; then the block is read again when
one of its rows is wanted, and lent again for the others.

Ordering rule: memory is held while a block is decoded, and only lent afterwards. So a merge that waits for memory
holds none, and of any number of merges one goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import numpy as np

from slate_async.codec.arrays import binary_array, binary_buffers
from slate_async.codec.columns import Columns
from slate_async.errors import CorruptionError
from slate_async.storage.sst.shares import ReadShares

LATE_BYTES = 256 << 10
"""Smaller values stay with their rows."""


class LentBlock:
    """The rows of a block for as long as there is memory for them; ``nbytes`` is what they take now."""

    __slots__ = ("__weakref__", "_reload", "_rows", "_shares", "nbytes")

    def __init__(self, rows: Columns, reload: Callable[[], Awaitable[Columns]], shares: ReadShares) -> None:
        """``reload`` gives ``rows`` once more."""
        self._reload = reload
        self._shares = shares
        self._rows: Columns | None = None
        self.nbytes = 0
        self._keep(rows)

    def _keep(self, rows: Columns) -> None:
        self._rows = rows
        self.nbytes = rows.nbytes
        self._shares.lend(self)

    def take_back(self) -> None:
        """See `slate_async.runtime.memory_budget.Lent`."""
        self._rows = None
        self.nbytes = 0

    async def value(self, row: int) -> Columns:
        """Row number ``row`` with its value, which keeps no more than that in memory, or twice as much. Raises what
        reading raises."""
        rows = self._rows
        if rows is None:
            rows = await self._reload()
            if self._rows is None:
                self._keep(rows)
        found = rows.slice(row, row + 1)
        return found.take(np.zeros(1, np.int64)) if 2 * found.nbytes < rows.nbytes else found


class LateRow:
    """Row number ``row`` of ``block``; see `slate_async.codec.columns.LateValue`."""

    __slots__ = ("_block", "_row", "nbytes")

    def __init__(self, block: LentBlock, row: int, nbytes: int) -> None:
        self._block = block
        self._row = row
        self.nbytes = nbytes

    async def complete(self, row: Columns) -> Columns:
        """See `slate_async.codec.columns.LateValue`."""
        found = await self._block.value(self._row)
        if len(found) != 1 or found.keys[0] != row.keys[0] or found.seqs[0] != row.seqs[0]:
            raise CorruptionError("a block holds other rows than when it was read before", object_name="sst/")
        return replace(row, values=found.values, late=None)


def apart(
    rows: Columns, load: Callable[[], Awaitable[list[Columns]]], shares: ReadShares, first: int = 0
) -> list[Columns]:
    """``rows``, those of one block from its row ``first`` on, as a merge may hold them: if they take more than several
    blocks that are read together may, each large value is late, its row by itself. The rest is copied out of the block.

    load: reads the rows of the whole block once more, as one batch"""
    if rows.nbytes <= shares.nbytes:
        return [rows]
    sizes = np.diff(binary_buffers(rows.values)[0])
    large = np.flatnonzero(sizes >= LATE_BYTES).tolist()
    if not large:
        return [rows]
    stop = first + len(rows)

    async def reload() -> Columns:
        return (await load())[0].slice(first, stop)

    block = LentBlock(rows, reload, shares)
    parts: list[Columns] = []
    low = 0
    for at in large:
        if low < at:
            parts.append(_copied(rows, low, at))
        parts.append(_late_row(rows, at, LateRow(block, at, int(sizes[at]))))
        low = at + 1
    if low < len(rows):
        parts.append(_copied(rows, low, len(rows)))
    return parts


def _late_row(rows: Columns, at: int, late: LateRow) -> Columns:
    return Columns(
        binary_array([rows.keys[at].as_py()]),
        binary_array([b""]),
        rows.seqs[at : at + 1].copy(),
        rows.kinds[at : at + 1].copy(),
        None if rows.expire_ms is None else rows.expire_ms[at : at + 1].copy(),
        rows.create_ms[at : at + 1].copy(),
        rows.seen_from,
        late,
    )


def _copied(rows: Columns, start: int, stop: int) -> Columns:
    return replace(rows.take(np.arange(start, stop)), seen_from=rows.seen_from)


def drained(parts: list[Columns]) -> Iterator[Columns]:
    """``parts``, which are dropped here as they are given: a consumer may keep its iterator for long."""
    parts.reverse()
    while parts:
        yield parts.pop()
