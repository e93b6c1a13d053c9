"""Arrow arrays over Python and numpy data, made from buffers.

`pyarrow.array` takes its memory from a pool that gives little of it back. And it imports pandas, where that is
installed: 50 MiB, and up to half a second in which an event loop would stand still. So do `to_numpy`, and Python
objects as arguments of `pyarrow.compute`; the functions here do not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.errors import InvalidError

Mask: TypeAlias = npt.NDArray[np.bool_]
Offsets: TypeAlias = npt.NDArray[np.int64]

FEW = 32
"""So many numbers are looked at one by one in less time than numpy takes to begin."""

_OFFSETS: dict[Any, Any] = {pa.binary(): np.int32, pa.large_binary(): np.int64, pa.string(): np.int32}
_NUMBERS = {pa.uint64().id: np.dtype(np.uint64), pa.int64().id: np.dtype(np.int64)}
"""Those that are asked for most; to look for one by its name takes as long as all the rest."""


def offsets_of(items: list[bytes]) -> Offsets:
    """Where each of ``items`` begins if they lie one after another, and where the last one ends."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.add.accumulate(np.fromiter(map(len, items), np.int64, len(items)), out=offsets[1:])
    return offsets


def binary_array(
    items: list[bytes],
    kind: pa.DataType = pa.binary(),  # noqa: B008 - a constant
    offsets: Offsets | None = None,
) -> pa.Array:
    """``items``, which together are below 2 GiB, or of any size as ``large_binary``; also ``string``, of UTF-8.

    offsets: the `offsets_of` them, where the caller has them"""
    known = offsets_of(items) if offsets is None else offsets
    stored = pa.py_buffer(known.astype(_OFFSETS[kind]))
    return pa.Array.from_buffers(kind, len(items), [None, stored, pa.py_buffer(b"".join(items))])


def number_array(
    numbers: npt.NDArray[Any], kind: pa.DataType | None = None, *, missing: Mask | None = None
) -> pa.Array:
    """``numbers`` without a copy, where they lie one after another. ``kind``: a type of as many bits that they are read
    as, such as a timestamp; ``missing``: where there is none"""
    data = np.ascontiguousarray(numbers)
    kind = pa.from_numpy_dtype(data.dtype) if kind is None else kind
    return pa.Array.from_buffers(kind, len(data), [_bits(missing, invert=True), pa.py_buffer(data)])


def is_larger(updates: pa.RecordBatch | pa.Table, nbytes: int) -> bool:
    """Whether ``updates`` have more than ``nbytes`` bytes. The buffers that they lie in are asked first, because that
    takes a hundredth of the time."""
    return bool(updates.get_total_buffer_size() > nbytes and updates.nbytes > nbytes)


def mask_array(mask: Mask) -> pa.BooleanArray:
    """``mask`` as booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, _bits(mask)])


def binary_scalar(item: bytes) -> pa.BinaryScalar:
    """``item`` as an argument of `pyarrow.compute`."""
    return binary_array([item])[0]


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of ``column``, which has no nulls, without a copy."""
    dtype = _NUMBERS.get(column.type.id) or np.dtype(str(column.type))
    if not len(column):
        return np.empty(0, dtype)
    _, data = column.buffers()
    return np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)


def extremes(numbers: npt.NDArray[np.integer[Any]]) -> tuple[int, int]:
    """The least and the largest of ``numbers``, of which there is one at least."""
    if len(numbers) > FEW:
        return int(numbers.min()), int(numbers.max())
    listed = numbers.tolist()
    return min(listed), max(listed)


def mask_of(column: pa.BooleanArray) -> Mask:
    """The booleans of ``column``, which has no nulls."""
    if not len(column):
        return np.zeros(0, np.bool_)
    return _mask_in(column.buffers()[1], column)


def where_true(column: pa.BooleanArray) -> Mask:
    """Where ``column`` is true, and not null."""
    if not column.null_count:
        return mask_of(column)
    valid, bits = column.buffers()
    return _mask_in(bits, column) & _mask_in(valid, column)


def _mask_in(bits: pa.Buffer, column: pa.Array) -> Mask:
    known = np.unpackbits(np.frombuffer(bits, np.uint8), count=column.offset + len(column), bitorder="little")
    return known[column.offset :].view(np.bool_)


def binary_buffers(column: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Offsets (int32[n+1], not starting at 0 in a slice) and the bytes they point into, without a copy.

    Raises `InvalidError` for another type or a column with nulls."""
    if column.type != pa.binary() or column.null_count:
        raise InvalidError(f"a key or value column must be binary without nulls, not {column.type}")
    _, offsets, data = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(1, np.int32), memoryview(b"")
    cut = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return cut, memoryview(b"" if data is None else data)


def _bits(mask: Mask | None, *, invert: bool = False) -> pa.Buffer | None:
    if mask is None:
        return None
    return pa.py_buffer(np.packbits(~mask if invert else mask, bitorder="little"))


def release_memory() -> None:
    """Give back to the system what Arrow keeps of the memory this thread has freed: a fraction of a millisecond."""
    pa.default_memory_pool().release_unused()
