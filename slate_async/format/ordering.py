"""The order of rows inside an SST: by key ascending, then sequence number descending."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.format.columns import Columns

Mask = npt.NDArray[np.bool_]


def order_of(rows: Columns) -> tuple[npt.NDArray[np.int64], Mask]:
    """Where each row belongs, as row numbers in order, and which of them (in that order) repeat the key before them.

    Rows of one key and one sequence number stay in the order they are in."""
    order: npt.NDArray[np.int64] = pc.array_sort_indices(rows.keys).to_numpy().astype(np.int64)
    repeats = repeated_keys(rows.keys.take(pa.array(order)))
    seqs = rows.seqs[order]
    if np.any((seqs[1:] > seqs[:-1]) & repeats[1:]):
        order = order[np.lexsort((~seqs, np.cumsum(~repeats)))]
    return order, repeats


def repeated_keys(keys: pa.BinaryArray) -> Mask:
    """bool[n]: whether a key equals the one before it; False for the first."""
    repeats = np.zeros(len(keys), np.bool_)
    repeats[1:] = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return repeats
