"""Consolidation: one update for each data and time, its difference the sum of all, and none where that is 0.

Sorted: `sorted_order` (or the order that rows are in already), boundaries by comparing neighbours, and
``np.add.reduceat`` over the differences. Unordered: Arrow's ``group_by``, which is faster than sorting.

Invariant: a sum that does not fit int64 is an error, never wrapped: `InvalidError` for what a user appends,
`CorruptionError` for what a merge reads, of the object that it names.

Source: ``consolidate_updates`` of differential dataflow.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import mask_array, number_array, numbers_of
from slate_async.collections.core import ordering
from slate_async.collections.core.updates import DIFF, Diffs, UpdateSchema, row_text
from slate_async.errors import CorruptionError, InvalidError

Starts: TypeAlias = npt.NDArray[np.int64]

_LOW = np.int64(2**32 - 1)


def consolidate(updates: pa.RecordBatch, schema: UpdateSchema, *, stored: str | None = None) -> pa.RecordBatch:
    """``updates`` sorted and consolidated; the same object if they are so already.

    stored: the object they were read from; a sum that does not fit int64 then is its `CorruptionError`, otherwise an
    `InvalidError`"""
    columns = ordering.key_columns(updates, schema)
    boundaries = ordering.boundaries(columns)
    if boundaries is None:
        updates = updates.take(ordering.sorted_order(columns))
        boundaries = ordering.differences(ordering.key_columns(updates, schema))
    diffs: Diffs = numbers_of(updates.column(DIFF))
    if boundaries.all():
        return updates if diffs.all() else updates.filter(mask_array(diffs != 0))
    starts = np.flatnonzero(boundaries)
    sums, wrong = sum_groups(diffs, starts)
    if wrong is not None:
        raise _overflowed(updates, int(starts[wrong]), stored)
    boundaries[starts[sums == 0]] = False
    keys = updates.select(schema.key).filter(mask_array(boundaries))
    return pa.RecordBatch.from_arrays([*keys.columns, number_array(sums[sums != 0])], schema=schema.arrow)


def consolidate_unordered(updates: pa.RecordBatch, schema: UpdateSchema) -> pa.Table:
    """``updates`` consolidated, in any order, in batches of any size.

    Raises `InvalidError` for a sum that does not fit int64."""
    diffs: Diffs = numbers_of(updates.column(DIFF))
    if not _surely_fits(diffs):
        return pa.Table.from_batches([consolidate(updates, schema)])
    floats = {field.name: field.type for field in schema.data if pa.types.is_floating(field.type)}
    columns = dict(zip(updates.schema.names, updates.columns, strict=True))
    columns |= {name: ordering.total_order(columns[name]) for name in floats}
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    table = table.group_by(schema.key, use_threads=False).aggregate([(DIFF, "sum")])
    sums = numbers_of(_one_array(table.column(f"{DIFF}_sum")))
    if not sums.all():
        table = table.filter(mask_array(sums != 0))
    arrays = {name: table.column(name) for name in (*schema.key, f"{DIFF}_sum")}
    arrays |= {name: ordering.from_total_order(_one_array(arrays[name]), kind) for name, kind in floats.items()}
    return pa.Table.from_arrays(list(arrays.values()), schema=schema.arrow)


def sum_groups(diffs: Diffs, starts: Starts) -> tuple[Diffs, int | None]:
    """The sums of the groups of ``diffs`` that begin at ``starts``, and the first group whose sum does not fit int64.

    Only where the largest difference times the number of rows might not fit, sums are taken of the upper and the lower
    32 bits apart, which is exact for 2**31 rows."""
    sums: Diffs = np.add.reduceat(diffs, starts)
    if _surely_fits(diffs):
        return sums, None
    low = np.add.reduceat(diffs & _LOW, starts)
    high = np.add.reduceat(diffs >> 32, starts) + (low >> 32)
    wrong = (high < -(2**31)) | (high >= 2**31)
    return sums, int(wrong.argmax()) if wrong.any() else None


def _surely_fits(diffs: Diffs) -> bool:
    return not len(diffs) or max(int(diffs.max()), -int(diffs.min())) * len(diffs) < 2**63


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def _overflowed(updates: pa.RecordBatch, row: int, stored: str | None) -> InvalidError | CorruptionError:
    text = f"the differences of one data and time have a sum that does not fit int64: {row_text(updates, row)} and more"
    return InvalidError(text) if stored is None else CorruptionError(text, object_name=stored)
