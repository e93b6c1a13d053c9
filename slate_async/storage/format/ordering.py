"""The order of rows inside an SST: by key ascending, then sequence number descending.

Keys are compared by 8 bytes each (`slate_async.codec.key_prefixes`). Where that does not tell two different keys apart,
all are compared whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import mask_of, number_array, numbers_of
from slate_async.codec.columns import Columns
from slate_async.codec.key_prefixes import order_of_numbers, prefix_numbers

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.int64]


def order_of(rows: Columns) -> tuple[Order, Mask]:
    """Where each row belongs, as row numbers in order, and which of them (in that order) repeat the key before them.

    Rows of one key and one sequence number stay in the order they are in."""
    order, repeats = _by_key(rows.keys)
    if not repeats.any():
        return order, repeats
    seqs, again = rows.seqs[order], repeats[1:]
    misplaced = again & ((seqs[1:] > seqs[:-1]) | ((seqs[1:] == seqs[:-1]) & (order[1:] < order[:-1])))
    if misplaced.any():
        shared = _with_neighbour(repeats)
        among = order[shared]
        order[shared] = among[np.lexsort((among, ~rows.seqs[among], np.cumsum(~repeats)[shared]))]
    return order, repeats


def repeated_keys(keys: pa.BinaryArray) -> Mask:
    """bool[n]: whether a key equals the one before it; False for the first."""
    repeats = np.zeros(len(keys), np.bool_)
    repeats[1:] = mask_of(pc.equal(keys[1:], keys[:-1]))
    return repeats


def _by_key(keys: pa.BinaryArray) -> tuple[Order, Mask]:
    """Rows of one key in any order."""
    numbers, whole = prefix_numbers(keys)
    if not len(numbers):
        order = _by_whole_key(keys)
        return order, repeated_keys(keys.take(number_array(order)))
    order = order_of_numbers(numbers)
    ordered = numbers[order]
    repeats = np.zeros(len(order), np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=repeats[1:])
    if repeats.any() and not whole:
        alike = _with_neighbour(repeats)
        among = order[alike]
        found = keys.take(number_array(among))
        again = repeated_keys(found)
        if not np.array_equal(again, repeats[alike]):
            places = _by_whole_key(found)
            order[alike] = among[places]
            again = repeated_keys(found.take(number_array(places)))
        repeats[alike] = again
    return order, repeats


def _by_whole_key(keys: pa.BinaryArray) -> Order:
    order: Order = numbers_of(pc.array_sort_indices(keys)).astype(np.int64)
    return order


def _with_neighbour(repeats: Mask) -> Mask:
    """The rows that repeat the one before them, or are repeated by the one behind."""
    shared = repeats.copy()
    shared[:-1] |= repeats[1:]
    return shared
