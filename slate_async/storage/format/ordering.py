"""The order of rows inside an SST: by key ascending, then sequence number descending.

Keys are compared by the 8 bytes behind what all of them begin with, read as one number each. Where that does not tell
two different keys apart, all are compared whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_buffers, mask_of, number_array, numbers_of
from slate_async.codec.columns import Columns

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
RUN_ROWS = 16
"""Rows that lie in runs longer than this are merged; others are sorted anew."""


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
    numbers, whole = _numbers(keys)
    if not len(numbers):
        order = _by_whole_key(keys)
        return order, repeated_keys(keys.take(number_array(order)))
    in_runs = np.count_nonzero(numbers[1:] < numbers[:-1]) * RUN_ROWS < len(numbers)
    order = np.argsort(numbers, kind="stable" if in_runs else None)
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


def _numbers(keys: pa.BinaryArray) -> tuple[Numbers, bool]:
    """The 8 bytes of each key behind what all begin with, zeros behind a shorter one, as a big-endian number (none at
    all for too few bytes), and whether they are all that keys differ in."""
    offsets, data = binary_buffers(keys)
    if len(data) < 8:
        return np.empty(0, np.uint64), False
    lengths = np.diff(offsets)
    shortest, longest, shared = int(lengths.min()), int(lengths.max()), 0
    if shortest == longest >= 8:
        return _numbers_of_equal(data, int(offsets[0]), len(lengths), longest)
    words = np.ndarray(len(data) - 7, ">u8", np.frombuffer(data, np.uint8), strides=(1,))
    starts = offsets[:-1].astype(np.int64)
    while True:
        numbers = _words(words, starts + shared, offsets)
        differ = int(numbers.min()) ^ int(numbers.max())
        if differ >> 56 or shared >= longest:
            return numbers, shortest == longest <= shared + 8
        shared += (64 - differ.bit_length()) // 8


def _numbers_of_equal(data: memoryview, start: int, rows: int, length: int) -> tuple[Numbers, bool]:
    """As `_numbers`, of keys that all have ``length`` bytes, 8 or more: many times faster."""
    at, last = 0, length - 8
    while True:
        numbers: Numbers = np.ndarray(rows, ">u8", data, start + at, (length,)).astype(np.uint64)
        differ = int(numbers.min()) ^ int(numbers.max())
        if differ >> 56 or at == last:
            return numbers, at == last
        at = min(last, at + (64 - differ.bit_length()) // 8)


def _words(words: npt.NDArray[Any], starts: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32]) -> Numbers:
    """Those of ``words``, the numbers at all places of the keys' bytes, at ``starts``, cut at the ends of the keys."""
    behind = np.maximum(starts - (len(words) - 1), 0)
    numbers: Numbers = words[starts - behind].astype(np.uint64)
    if behind[-1]:
        numbers <<= 8 * np.minimum(behind, 7).astype(np.uint64)
    length = offsets[1:] - starts
    if int(length.min()) < 8:
        numbers &= _KEPT[np.clip(length, 0, 8)]
    return numbers


_KEPT = np.array([0, *(2**64 - 2 ** (64 - 8 * kept) for kept in range(1, 9))], np.uint64)
"""The upper bytes of a number, by how many there are."""
