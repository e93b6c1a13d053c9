"""Which blocks of a table are merged with which.

A block is worth a merge if it is small, if more than a fifth of its rows are deleted, or, in a table that is sorted, if
others have rows between its lowest and its highest. The smallest come first, and a large block joins small ones only
once they weigh half as much: so a row is written again a number of times that grows with the logarithm of its table.

Invariant: a group holds live rows of at most ``target_bytes``, so it becomes about one block. Each leaves fewer
blocks or fewer deleted rows, so plans come to an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TARGET_BYTES: Final = 128 << 20
MAX_INPUTS: Final = 1_000
"""Blocks of one group."""
WASTED: Final = 5
"""A block is rewritten if more than one row in so many is deleted."""
Counts = npt.NDArray[np.int64]


def merge_plan(
    blocks: pa.Table, dead: Counts, *, target_bytes: int = TARGET_BYTES, sort_by: int | None = None
) -> list[list[int]]:
    """Groups of numbers of ``blocks``, the rows of `slate_async.tables.core.chain.BLOCK`, smallest blocks first.

    dead: of each block, how many rows are deleted
    sort_by: the id of the first column by which the table is sorted"""
    rows = blocks.column("rows").to_numpy()
    sizes = blocks.column("size").to_numpy()
    live = np.maximum(sizes * (rows - dead) // np.maximum(rows, 1), 1)
    wasted = dead * WASTED > rows
    order, overlaps = _by_value(blocks, sort_by)
    wanted = (live * 2 < target_bytes) | wasted | overlaps
    if order is None:
        order = np.argsort(live, kind="stable")
    groups: list[list[int]] = []
    group: list[int] = []
    weight = 0
    for at in (int(number) for number in order if wanted[number]):
        if group and (weight + live[at] > target_bytes or len(group) == MAX_INPUTS):
            groups.append(group)
            group, weight = [], 0
        group.append(at)
        weight += int(live[at])
    groups.append(group)
    worth = (_worth(group, live, wasted, overlaps, target_bytes) for group in groups)
    return sorted((group for group in worth if group), key=lambda group: int(live[group].max()))


def _worth(
    group: list[int], live: Counts, wasted: npt.NDArray[np.bool_], overlaps: npt.NDArray[np.bool_], target: int
) -> list[int]:
    """``group`` without blocks that outweigh the rest of it, unless it becomes a large one; empty if nothing is left to
    do."""
    kept = list(group)
    while len(kept) > 1:
        largest = max(kept, key=lambda at: int(live[at]))
        weight = int(live[kept].sum())
        if weight * 2 >= target or int(live[largest]) * 3 <= weight * 2 or wasted[largest] or overlaps[kept].all():
            return kept
        kept.remove(largest)
    return kept if kept and wasted[kept[0]] else []


def _by_value(blocks: pa.Table, sort_by: int | None) -> tuple[Counts | None, npt.NDArray[np.bool_]]:
    """The order of blocks by their lowest value, if that is known, and of each one whether others have rows between its
    lowest and its highest."""
    count = blocks.num_rows
    none = np.zeros(count, np.bool_)
    low, high = (f"{name}.{sort_by}" for name in ("low", "high"))
    if sort_by is None or low not in blocks.column_names or high not in blocks.column_names:
        return None, none
    lows, highs = blocks.column(low).combine_chunks(), blocks.column(high).combine_chunks()
    order = np.asarray(pc.sort_indices(lows).to_numpy(), np.int64)
    ranks = _ranks(lows, highs)
    if ranks is None:
        return order, none
    starts, ends = ranks
    top, previous = -1, -1
    for at in order.tolist():
        if starts[at] < 0:
            continue
        if previous >= 0 and starts[at] < top:
            none[at] = none[previous] = True
        if ends[at] > top:
            top, previous = int(ends[at]), at
    return order, none


def _ranks(lows: pa.Array, highs: pa.Array) -> tuple[Counts, Counts] | None:
    """Both bounds as numbers in the same order; -1 where one is not known."""
    known = pc.and_(pc.is_valid(lows), pc.is_valid(highs)).to_numpy(zero_copy_only=False)
    ranked = pc.rank(pa.concat_arrays([lows, highs]), sort_keys="ascending", tiebreaker="dense")
    both = np.asarray(ranked.to_numpy(), np.int64)
    starts, ends = both[: len(lows)], both[len(lows) :]
    if not known.any():
        return None
    return np.where(known, starts, -1), np.where(known, ends, -1)


def dead_rows(blocks: pa.Table, deleted: npt.NDArray[np.int64]) -> Counts:
    """Of each block, how many of ``deleted``, a set, are between its lowest and its highest row id: all of its deleted
    rows, and of one that carries its rows' ids maybe rows of others."""
    first = np.searchsorted(deleted, blocks.column("first_row").to_numpy())
    last = np.searchsorted(deleted, blocks.column("last_row").to_numpy(), side="right")
    counts: Counts = np.minimum(last - first, blocks.column("rows").to_numpy())
    return counts


def unsure(blocks: pa.Table, dead: Counts) -> Sequence[int]:
    """Numbers of blocks of which `dead_rows` may be too many, and that matters."""
    carried = blocks.column("carried").to_numpy(zero_copy_only=False)
    rows = blocks.column("rows").to_numpy()
    found: list[int] = np.flatnonzero(carried & (dead * WASTED > rows)).tolist()
    return found
