"""Where to cut rows into pieces of bounded size."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise

STEP_BYTES = 1 << 20
"""Keys and values of one piece, about a millisecond of work to convert. A single row may exceed it."""


def spans(keys: list[bytes], values: list[bytes]) -> list[tuple[int, int]]:
    """The rows cut so that each piece holds about `STEP_BYTES`, or one row. No rows make one empty piece."""
    if len(keys) == 1 or sum(map(len, keys)) + sum(map(len, values)) <= STEP_BYTES:
        return [(0, len(keys))]
    sizes = list(accumulate(map(int.__add__, map(len, keys), map(len, values)), initial=0))
    cuts = [0]
    while cuts[-1] < len(keys):
        low = cuts[-1]
        cuts.append(max(low + 1, bisect_right(sizes, sizes[low] + STEP_BYTES) - 1))
    return list(pairwise(cuts))
