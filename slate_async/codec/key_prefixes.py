"""Keys as numbers, which are sorted many times faster: the 8 bytes behind what all of them begin with.

Where two numbers differ, the keys are in their order. Where they do not, the keys may differ behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import binary_buffers

Numbers = npt.NDArray[np.uint64]
RUN_ROWS = 16
"""Rows that lie in runs longer than this are merged; others are sorted anew."""


def order_of_numbers(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Row numbers in the order of ``numbers``. Those of equal numbers come in any order."""
    in_runs = np.count_nonzero(numbers[1:] < numbers[:-1]) * RUN_ROWS < len(numbers)
    order: npt.NDArray[np.int64] = np.argsort(numbers, kind="stable" if in_runs else None)
    return order


def prefix_numbers(keys: pa.BinaryArray) -> tuple[Numbers, bool]:
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
