"""Where to cut rows into pieces of bounded size."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from slate_async.codec.arrays import Offsets

STEP_BYTES = 1 << 20
"""Keys and values of one piece, about a millisecond of work to convert. A single row may exceed it."""

STEP_ROWS = 256
"""With `STEP_BYTES` the bounds of one conversion step: a tenth of a millisecond for small rows that have left the
processor's cache. Several conversions may take a step in one turn of the loop; and for so few rows numpy does not give
up the interpreter, which a worker would then keep for longer than the step takes."""


def spans(ends: Offsets) -> list[tuple[int, int]]:
    """The rows cut so that each piece holds about `STEP_BYTES`, or one row. No rows make one empty piece.

    ends: 0, and how many bytes each row has together with those before it"""
    rows = len(ends) - 1
    if rows <= 1 or ends[-1] <= STEP_BYTES:
        return [(0, rows)]
    sizes: list[int] = ends.tolist()
    cuts = [0]
    while cuts[-1] < rows:
        low = cuts[-1]
        cuts.append(max(low + 1, bisect_right(sizes, sizes[low] + STEP_BYTES) - 1))
    return list(pairwise(cuts))
