"""The order of updates: by data, then time; nulls after all values; floats by their bits.

Two updates are of one sum iff every column of their key is equal. So floats cannot be compared as numbers, by which
-0.0 is 0.0 and NaN is not NaN: they are compared in the total order of IEEE 754, as integers made of their bits. That
order is the numeric one for all other values.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import number_array, numbers_of, where_true
from slate_async.codec.key_prefixes import Numbers, order_of_numbers, prefix_numbers
from slate_async.collections.core.frontier import Mask
from slate_async.collections.core.updates import UpdateSchema

Key: TypeAlias = tuple[Any, ...]
"""A row's key as Python values that compare as `sorted_order` sorts them."""

_SIGNED: dict[Any, tuple[Any, Any]] = {
    pa.float16(): (np.int16, pa.int16()),
    pa.float32(): (np.int32, pa.int32()),
    pa.float64(): (np.int64, pa.int64()),
}
_SAMPLE_ROWS = 256
_FEWEST_ROWS = 64
"""Fewer rows are sorted by whole keys at once."""


def key_columns(updates: pa.RecordBatch, schema: UpdateSchema) -> list[pa.Array]:
    """The columns of the key, as values of which equality and order are those of updates."""
    return [comparable(updates.column(name)) for name in schema.key]


def comparable(column: pa.Array) -> pa.Array:
    """``column``, or integers in its place: for floats their `total order <total_order>`, for dates and times
    what they count."""
    if pa.types.is_floating(column.type):
        return total_order(column)
    if pa.types.is_temporal(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def total_order(column: pa.Array) -> pa.Array:
    """Integers that are ordered as IEEE 754 orders the floats of ``column``, -0.0 before 0.0 and NaN by its bits."""
    signed, kind = _SIGNED[column.type]
    bits = _flip(column.view(kind), signed)
    return number_array(bits, missing=_nulls(column))


def from_total_order(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The floats of type ``kind`` of which ``column`` is the `total_order`, with all their bits."""
    signed, _ = _SIGNED[kind]
    return number_array(_flip(column, signed), missing=_nulls(column)).view(kind)


def boundaries(columns: list[pa.Array]) -> Mask | None:
    """bool[n]: whether a row's key differs from that of the row before it, True for the first; ``None`` if it is before
    that in a row. A few rows are asked first."""
    rows = len(columns[0])
    if rows > _SAMPLE_ROWS and boundaries([column[:_SAMPLE_ROWS] for column in columns]) is None:
        return None
    differ = np.ones(rows, np.bool_)
    same = np.ones(max(rows - 1, 0), np.bool_)
    for column in columns if rows > 1 else ():
        before, after = column[:-1], column[1:]
        if (same & _less(after, before)).any():
            return None
        same &= ~_differs(before, after)
        if not same.any():
            break
    differ[1:] = ~same
    return differ


def is_ascending(columns: list[pa.Array]) -> bool:
    """Whether every row's key is after that of the row before it."""
    if len(columns[0]) > 1 and _less(columns[0][:-1], columns[0][1:]).all():
        return True
    found = boundaries(columns)
    return found is not None and bool(found.all())


def differences(columns: list[pa.Array]) -> Mask:
    """`boundaries` of rows that are in order."""
    differ = np.ones(len(columns[0]), np.bool_)
    if len(differ) > 1:
        differ[1:] = False
        for column in columns:
            differ[1:] |= _differs(column[:-1], column[1:])
    return differ


def is_sorted(columns: list[pa.Array]) -> bool:
    """Whether no row's key is before that of the row before it."""
    return boundaries(columns) is not None


def sorted_order(columns: list[pa.Array]) -> pa.Array:
    """Row numbers in the order of keys; rows of one key come in any order.

    The first column is sorted as numbers where it can be (`_leading_numbers`), which is many times faster. Rows whose
    numbers are equal are then sorted by whole keys; they are nearly in order by then."""
    numbers = _leading_numbers(columns[0])
    if numbers is None:
        return _order_of_keys(columns)
    order = order_of_numbers(numbers)
    ordered = numbers[order]
    ties = np.zeros(len(order), np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=ties[1:])
    ties[:-1] |= ties[1:]
    if ties.any():
        among = order[ties]
        rows = number_array(among)
        keys = [number_array(ordered[ties]), *(column.take(rows) for column in columns)]
        order[ties] = among[numbers_of(_order_of_keys(keys))]
    return number_array(order)


def _order_of_keys(columns: list[pa.Array]) -> pa.Array:
    """Row numbers in the order of keys. Nulls come last, as Arrow has them where nothing else is said."""
    names = [str(number) for number in range(len(columns))]
    keys = pa.RecordBatch.from_arrays(columns, names=names)
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])


def _leading_numbers(column: pa.Array) -> Numbers | None:
    """Numbers that are in the order of ``column`` where they differ; ``None`` for too few rows, nulls, other types."""
    if len(column) < _FEWEST_ROWS or column.null_count:
        return None
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        numbers = prefix_numbers(column.view(pa.binary()))[0]
        return numbers if len(numbers) else None
    if pa.types.is_signed_integer(column.type):
        signed: Numbers = numbers_of(column).astype(np.int64).view(np.uint64) ^ np.uint64(2**63)
        return signed
    if pa.types.is_unsigned_integer(column.type):
        unsigned: Numbers = numbers_of(column).astype(np.uint64)
        return unsigned
    return None


def key_of(columns: list[pa.Array], row: int) -> Key:
    """The key of ``row``, to compare with other keys."""
    values = [column[row].as_py() for column in columns]
    return tuple((value is None, 0 if value is None else value) for value in values)


def rows_before(columns: list[pa.Array], key: Key) -> int:
    """How many rows of sorted ``columns`` are before ``key``, by bisection. A key of fewer columns than there are is
    before all that begin with it."""
    low, high = 0, len(columns[0])
    compared = columns[: len(key)]
    while low < high:
        middle = (low + high) // 2
        if key_of(compared, middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


def _flip(column: pa.Array, signed: Any) -> npt.NDArray[Any]:
    """All bits but the sign flipped where that is set; this undoes itself."""
    bits = np.frombuffer(column.buffers()[1], signed, len(column), column.offset * np.dtype(signed).itemsize)
    width = np.dtype(signed).itemsize * 8
    flipped: npt.NDArray[Any] = bits ^ ((bits >> (width - 1)) & np.array(np.iinfo(signed).max, signed))
    return flipped


def _nulls(column: pa.Array) -> Mask | None:
    if not column.null_count:
        return None
    return where_true(column.is_null())


def _differs(before: pa.Array, after: pa.Array) -> Mask:
    differ = where_true(pc.not_equal(before, after))
    if before.null_count or after.null_count:
        differ |= where_true(before.is_null()) != where_true(after.is_null())
    return differ


def _less(before: pa.Array, after: pa.Array) -> Mask:
    less = where_true(pc.less(before, after))
    if after.null_count:
        less |= where_true(before.is_valid()) & where_true(after.is_null())
    return less
