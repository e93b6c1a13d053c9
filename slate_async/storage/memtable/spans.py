"""Where to cut rows into pieces of bounded size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import Offsets, binary_array, offsets_of
from slate_async.codec.columns import Columns

Rows = npt.NDArray[np.int64]

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


def pieces_of(
    columns: Callable[[Rows, pa.BinaryArray, pa.BinaryArray], Columns],
    rows: Rows,
    keys: list[bytes],
    values: list[bytes],
    reverse: bool = False,
) -> Iterator[Columns]:
    """The ``columns`` of ``rows`` with these keys and values, cut by `spans`; with ``reverse`` from the end, the rows
    of a piece in their order."""
    in_keys, in_values = offsets_of(keys), offsets_of(values)
    cuts = spans(in_keys + in_values)
    if len(cuts) == 1:
        yield columns(rows, binary_array(keys, offsets=in_keys), binary_array(values, offsets=in_values))
        return
    for low, high in reversed(cuts) if reverse else cuts:
        yield columns(rows[low:high], binary_array(keys[low:high]), binary_array(values[low:high]))
