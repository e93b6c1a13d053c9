"""The order of rows inside an SST: by key ascending, then sequence number descending.

Keys are compared by the 8 bytes behind what all of them begin with, read as one number each. Where that does not tell
two different keys apart, all are compared whole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.format.block import binary_buffers
from slate_async.format.columns import Columns

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.int64]
RUN_ROWS = 16
"""Rows that lie in runs longer than this are merged; others are sorted anew."""


def order_of(rows: Columns) -> tuple[Order, Mask]:
    """Where each row belongs, as row numbers in order, and which of them (in that order) repeat the key before them.

    Rows of one key and one sequence number stay in the order they are in."""
    order, repeats = _by_key(rows.keys)
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
    repeats[1:] = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return repeats


def _by_key(keys: pa.BinaryArray) -> tuple[Order, Mask]:
    """Rows of one key in any order."""
    numbers = _numbers(keys)
    if numbers is None:
        order = _by_whole_key(keys)
        return order, repeated_keys(keys.take(pa.array(order)))
    in_runs = np.count_nonzero(numbers[1:] < numbers[:-1]) * RUN_ROWS < len(numbers)
    order = np.argsort(numbers, kind="stable" if in_runs else None)
    ordered = numbers[order]
    repeats = np.zeros(len(order), np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=repeats[1:])
    alike = _with_neighbour(repeats)
    among = order[alike]
    if len(among):
        found = keys.take(pa.array(among))
        again = repeated_keys(found)
        if not np.array_equal(again, repeats[alike]):
            places = _by_whole_key(found)
            order[alike] = among[places]
            again = repeated_keys(found.take(pa.array(places)))
        repeats[alike] = again
    return order, repeats


def _by_whole_key(keys: pa.BinaryArray) -> Order:
    order: Order = pc.array_sort_indices(keys).to_numpy().astype(np.int64)
    return order


def _with_neighbour(repeats: Mask) -> Mask:
    """The rows that repeat the one before them, or are repeated by the one behind."""
    shared = repeats.copy()
    shared[:-1] |= repeats[1:]
    return shared


def _numbers(keys: pa.BinaryArray) -> npt.NDArray[np.uint64] | None:
    """8 bytes of each key, zeros behind a shorter one, as a big-endian number; ``None`` for too few bytes."""
    offsets, data = binary_buffers(keys)
    heap = np.frombuffer(data, np.uint8)
    if len(heap) < 8:
        return None
    ends = pc.min_max(keys)
    shared = _shared_bytes(ends["min"].as_py(), ends["max"].as_py())
    starts = offsets[:-1].astype(np.int64) + shared
    last = len(heap) - 8
    words = np.ndarray(last + 1, ">u8", heap, strides=(1,))
    behind = np.maximum(starts - last, 0)
    numbers = words[starts - behind].astype(np.uint64)
    if behind[-1]:
        numbers <<= 8 * np.minimum(behind, 7).astype(np.uint64)
        numbers[behind > 7] = 0
    length = offsets[1:] - starts
    if int(length.min()) < 8:
        numbers &= _KEPT[np.minimum(length, 8)]
    return numbers


def _shared_bytes(low: bytes, high: bytes) -> int:
    pairs = enumerate(zip(low, high, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(low), len(high)))


_KEPT = np.array([0, *(2**64 - 2 ** (64 - 8 * kept) for kept in range(1, 9))], np.uint64)
"""The upper bytes of a number, by how many there are."""
