"""What the footer of a merged batch says of the values in a row group, for `slate_async.collections.core.filtering`.

Invariant: where Parquet's order of a type is not Arrow's, or is not known here, nothing is said. Nor is it where a
value was too long to be kept: some releases of Arrow then show the other bound, and an empty one in its place.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.collections.core.filtering import ColumnRange
from slate_async.collections.core.updates import UpdateSchema

_ORDERED = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def group_ranges(
    metadata: pq.FileMetaData, group: int, schema: UpdateSchema, columns: Collection[str]
) -> dict[str, ColumnRange]:
    """What is known of those data columns that are among ``columns`` in row group ``group``."""
    found = metadata.row_group(group)
    return {
        field.name: _range(found.column(number).statistics, found.num_rows, field.type)
        for number, field in enumerate(schema.data)
        if field.name in columns
    }


def _range(statistics: pq.Statistics | None, rows: int, kind: pa.DataType) -> ColumnRange:
    if statistics is None:
        return ColumnRange(rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max:
        return ColumnRange(rows, nulls=nulls)
    return ColumnRange(rows, *_bounds(statistics, kind), nulls)


def _bounds(statistics: pq.Statistics, kind: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_temporal(kind):
        integer = pa.int32() if kind.bit_width == 32 else pa.int64()
        low, high = pa.array([statistics.min_raw, statistics.max_raw], integer).view(kind)
        return low, high
    if any(is_ordered(kind) for is_ordered in _ORDERED) and statistics.max not in (b"", ""):
        return pa.scalar(statistics.min, kind), pa.scalar(statistics.max, kind)
    return None, None
