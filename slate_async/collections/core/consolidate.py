"""Consolidation: one update for each data and time, its difference the sum of all, and none where that is 0.

Sorted: `sorted_order` (or the order that rows are in already), boundaries by comparing neighbours, and
``np.add.reduceat`` over the differences. Unordered: Arrow's ``group_by``, which is faster than sorting.

Invariant: a sum that does not fit int64 is never wrapped. It is a `SumError` for users who append or ask for it. Where
nobody asks, in merges and deltas, it is kept in several updates of one data and time that add up to it: all but the
last are the extreme of its sign. So nothing is lost, and later updates may bring the sum back.

Source: ``consolidate_updates`` of differential dataflow.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slate_async.codec.arrays import mask_array, number_array, numbers_of
from slate_async.collections.core import ordering
from slate_async.collections.core.errors import SumError
from slate_async.collections.core.frontier import Mask
from slate_async.collections.core.updates import DIFF, Diffs, UpdateSchema, row_text

Starts: TypeAlias = npt.NDArray[np.int64]

_LOW = np.int64(2**32 - 1)


def consolidate(updates: pa.RecordBatch, schema: UpdateSchema, *, keep: bool = False) -> pa.RecordBatch:
    """``updates`` sorted and consolidated; the same object if they are so already.

    keep: a sum that does not fit int64 stays in several updates; otherwise it is a `SumError`"""
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
        return _in_several(updates, schema, starts, sums, wrong, keep)
    boundaries[starts[sums == 0]] = False
    keys = updates.select(schema.key).filter(mask_array(boundaries))
    return pa.RecordBatch.from_arrays([*keys.columns, number_array(sums[sums != 0])], schema=schema.arrow)


def consolidate_unordered(updates: pa.RecordBatch, schema: UpdateSchema) -> pa.Table:
    """``updates`` consolidated, in any order, in batches of any size.

    Raises `SumError` for a sum that does not fit int64."""
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


def sum_groups(diffs: Diffs, starts: Starts) -> tuple[Diffs, Mask | None]:
    """The sums of the groups of ``diffs`` that begin at ``starts``, and which of them do not fit int64, if any.

    Only where the largest difference times the number of rows might not fit, sums are taken of the upper and the lower
    32 bits apart, which is exact for 2**31 rows."""
    sums: Diffs = np.add.reduceat(diffs, starts)
    if _surely_fits(diffs):
        return sums, None
    low = np.add.reduceat(diffs & _LOW, starts)
    high = np.add.reduceat(diffs >> 32, starts) + (low >> 32)
    wrong = (high < -(2**31)) | (high >= 2**31)
    return sums, wrong if wrong.any() else None


def fits(total: int) -> bool:
    """Whether a difference may be ``total``."""
    return -(2**63) <= total < 2**63


def _surely_fits(diffs: Diffs) -> bool:
    return not len(diffs) or max(int(diffs.max()), -int(diffs.min())) * len(diffs) < 2**63


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def _in_several(
    updates: pa.RecordBatch, schema: UpdateSchema, starts: Starts, sums: Diffs, wrong: Mask, keep: bool
) -> pa.RecordBatch:
    """As `consolidate`, where the sums of the groups that are ``wrong`` do not fit."""
    diffs: Diffs = numbers_of(updates.column(DIFF))
    pieces: dict[int, list[int]] = {}
    for group in np.flatnonzero(wrong).tolist():
        end = starts[group + 1] if group + 1 < len(starts) else len(diffs)
        total = sum(diffs[starts[group] : end].tolist())
        if not keep:
            row = row_text(updates.select(schema.key), int(starts[group]))
            raise SumError(f"a sum of differences does not fit int64: {row} add up to {total}")
        pieces[group] = _pieces(total)
    counts = (sums != 0).astype(np.int64)
    counts[list(pieces)] = [len(several) for several in pieces.values()]
    kept, places = np.repeat(sums, counts), np.cumsum(counts) - counts
    for group, several in pieces.items():
        kept[places[group] : places[group] + len(several)] = several
    keys = updates.select(schema.key).take(number_array(np.repeat(starts, counts)))
    return pa.RecordBatch.from_arrays([*keys.columns, number_array(kept)], schema=schema.arrow)


def _pieces(total: int) -> list[int]:
    """Differences that add up to ``total``, as few as there can be, and none 0."""
    extreme = 2**63 - 1 if total > 0 else -(2**63)
    count, rest = divmod(total, extreme)
    return [extreme] * count + ([rest] if rest else [])
