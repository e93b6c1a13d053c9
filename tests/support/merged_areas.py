"""Versions of merged areas with made-up batches, whose names and numbers are short."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.names import MergedName
from slate_async.collections.store.merged import Stored

ZERO = Frontier([(0,)])
FILE = MergedName(ZERO, Frontier([(10,)]), 2, "c" * 32)
"""Of the second epoch."""


def at(*numbers: int) -> Frontier:
    """A frontier of u64 times; `DONE` without numbers."""
    return Frontier((number,) for number in numbers) if numbers else DONE


def merged(name: str, lower: int, upper: int, rows: int = 1, **fields: Any) -> MergedBatch:
    """A batch of u64 times; ``since``, ``times`` and all else as in ``fields``."""
    bounds = Bounds(at(lower), at(upper), fields.pop("since", ZERO))
    given = {"keys": rows, "times": min(rows, 1), "diff_sum": rows, "nbytes": 0, "crc": 0, **fields}
    return MergedBatch(name, bounds, rows, **given)


def of_file(stored: Stored) -> MergedBatch:
    """What a version says of the file `FILE`."""
    bounds = Bounds(at(0), at(10), at(0))
    return MergedBatch(str(FILE), bounds, stored.rows, 1, 1, 0, stored.nbytes, stored.crc, stored.parts)


def area_of(batches: Sequence[MergedBatch] = (), **fields: Any) -> Area:
    """A version, the ninth of epoch 1, of ``batches``; its since is as far as theirs, and its bound as well."""
    since = ZERO
    for batch in batches:
        since = since.join(batch.bounds.since)
    upper = batches[-1].bounds.upper if batches else ZERO
    given = {"since": since, "bound": since, "floor": 5, **fields}
    return Area(9, 1, "owner", ZERO, upper, batches=tuple(batches), **given)


def stacked(*rows: int) -> Area:
    """A version with a batch of so many rows for each of ``rows``, oldest first: ``b0``, ``b1`` and so on."""
    ends = itertools.pairwise(range(len(rows) + 1))
    return area_of([merged(f"b{i}", *end, count) for i, (end, count) in enumerate(zip(ends, rows, strict=True))])
