"""How many batches a merge may read at once within its memory.

A batch of one object is in memory as a whole while it is read, because it is checked as a whole. Of one in parts a few
row groups are, fetched together. Of both there is a decoded row group, and that again while it is joined to what waits,
concatenated with others, sorted and taken. The output has a part that is encoded and one that is being put, each in a
buffer that doubles as it grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.collections.codec.merged import GROUP_BYTES, GROUP_ROWS
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.store.merged import FETCH_BYTES, PART_BYTES

EXPANSION = 8
"""A row group is taken for so many times its stored bytes, up to the largest one there is."""
COPIES = 5
"""Of a row group, while it is merged."""
OUTPUT_SHARE = 16
"""A part of an output is this share of the memory."""
FEWEST = 2
"""Fewer batches are no merge, however little memory there is."""


def part_bytes(memory_bytes: int) -> int:
    """The size of the parts of an output."""
    return min(PART_BYTES, memory_bytes // OUTPUT_SHARE)


def read_bytes(batch: MergedBatch) -> int:
    """What reading ``batch`` takes at most, about."""
    if batch.parts:
        return FETCH_BYTES + COPIES * GROUP_BYTES // 2
    row = EXPANSION * batch.nbytes // max(batch.rows, 1)
    return batch.nbytes + COPIES * min(GROUP_BYTES, max(row, 1) * min(batch.rows, GROUP_ROWS))


def at_once(memory_bytes: int, batches: Sequence[MergedBatch]) -> int:
    """How many of ``batches``, from the first on, may be read together."""
    left, count = memory_bytes - 4 * part_bytes(memory_bytes) - GROUP_BYTES, 0
    for batch in batches:
        left -= read_bytes(batch)
        if left < 0 and count >= FEWEST:
            break
        count += 1
    return max(count, FEWEST)


def fitting(memory_bytes: int, batches: Sequence[MergedBatch]) -> Sequence[MergedBatch]:
    """Those neighbours among ``batches`` that are to be merged first: all if they fit, else as many as do, of those the
    ones with the fewest rows."""
    if len(batches) <= FEWEST or at_once(memory_bytes, batches) >= len(batches):
        return batches
    windows = [batches[start : start + at_once(memory_bytes, batches[start:])] for start in range(len(batches) - 1)]
    most = max(map(len, windows))
    return min((window for window in windows if len(window) == most), key=lambda w: sum(batch.rows for batch in w))
