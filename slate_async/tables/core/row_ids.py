"""Sets of row ids: what deletes are made of, whatever file a row lies in.

A row's id is given by the commit that adds it, in the order of the rows of a block, and never given again. A set is a
sorted array without repeats. So a delete conflicts with nothing: not with appends, and not with merges of blocks, which
carry the ids along.

Rules T13 and T15.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

RowIds: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def no_rows() -> RowIds:
    """The empty set."""
    return np.empty(0, np.int64)


def set_of(ids: Iterable[int] | RowIds) -> RowIds:
    """``ids``, in any order and repeated, as a set."""
    return np.unique(np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), np.int64))


def union(sets: Iterable[RowIds]) -> RowIds:
    """What is in one of ``sets``."""
    parts = [part for part in sets if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else no_rows()
    return np.unique(np.concatenate(parts))


def difference(ids: RowIds, other: RowIds) -> RowIds:
    """What is in ``ids`` but not in ``other``."""
    return ids if not len(other) or not len(ids) else ids[~contained(ids, other)]


def contained(ids: RowIds, within: RowIds) -> Mask:
    """Of each of ``ids``, in any order: is it in the set ``within``?"""
    if not len(within):
        return np.zeros(len(ids), np.bool_)
    at = np.searchsorted(within, ids)
    at[at == len(within)] = 0
    found: Mask = within[at] == ids
    return found


def between(ids: RowIds, first: int, end: int) -> RowIds:
    """The part of the set ``ids`` in ``[first, end)``, without a copy."""
    low, high = np.searchsorted(ids, (first, end))
    return ids[low:high]


def alive(first: int, rows: int, deleted: RowIds) -> Mask | None:
    """Of rows ``first``, ``first + 1`` …, ``rows`` of them: which are not in the set ``deleted``; ``None``: all."""
    dead = between(deleted, first, first + rows)
    if not len(dead):
        return None
    mask = np.ones(rows, np.bool_)
    mask[dead - first] = False
    return mask


def is_set(ids: RowIds) -> bool:
    """Whether ``ids`` ascend without repeats, from zero on."""
    return not len(ids) or (int(ids[0]) >= 0 and bool((ids[1:] > ids[:-1]).all()))
