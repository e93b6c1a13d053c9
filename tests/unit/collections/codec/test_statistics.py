"""Statistics of row groups: for every type, ranges that hold all values, or nothing."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slate_async.collections.codec.merged import encode_merged
from slate_async.collections.codec.statistics import group_ranges
from slate_async.collections.core.filtering import ColumnRange
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema

DAY = dt.date(2024, 1, 2)
LATE = dt.datetime(2262, 4, 1, 12)  # noqa: DTZ001 - a column without a zone


def ranges(values: list[Any], kind: pa.DataType) -> ColumnRange:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", kind)]))
    rows = len(values)
    columns = [pa.array(values, kind), pa.array([0] * rows, pa.uint64()), pa.array([1] * rows, pa.int64())]
    encoded = encode_merged(pa.RecordBatch.from_arrays(columns, schema=schema.arrow), schema)
    return group_ranges(pq.read_metadata(pa.BufferReader(encoded.data)), 0, schema, {"x"})["x"]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.bool_(), False, True),
        (pa.int8(), -128, 127),
        (pa.uint64(), 1, 2**64 - 1),
        (pa.int64(), -(2**63), 2**63 - 1),
        (pa.float32(), -1.5, 2.5),
        (pa.float64(), -1e300, 1e300),
        (pa.string(), "", "é"),
        (pa.large_binary(), b"", b"\xff"),
        (pa.binary(2), b"\0\0", b"\xff\0"),
        (pa.date32(), DAY, DAY + dt.timedelta(1)),
        (pa.date64(), DAY, DAY + dt.timedelta(1)),
        (pa.time32("s"), dt.time(1), dt.time(2)),
        (pa.time32("ms"), dt.time(1), dt.time(2)),
        (pa.time64("ns"), dt.time(1), dt.time(2)),
        (pa.timestamp("s"), dt.datetime(1900, 1, 1), LATE),  # noqa: DTZ001
        (pa.timestamp("us", "Europe/Berlin"), dt.datetime(1900, 1, 1), LATE),  # noqa: DTZ001
        (pa.timestamp("ns"), dt.datetime(1900, 1, 1), LATE),  # noqa: DTZ001
        (pa.duration("ms"), dt.timedelta(-1), dt.timedelta(1)),
    ],
    ids=str,
)
def test_ranges_are_the_smallest_and_the_largest_value(kind: pa.DataType, low: Any, high: Any) -> None:
    assert ranges([low, high, None], kind) == ColumnRange(3, pa.scalar(low, kind), pa.scalar(high, kind), 1)


@pytest.mark.parametrize("kind", [pa.float16(), pa.decimal128(9, 2), pa.decimal256(40, 2)], ids=str)
def test_of_other_types_nothing_but_nulls_is_known(kind: pa.DataType) -> None:
    assert ranges([None, None], kind) == ColumnRange(2, None, None, 2)
    values = pa.array([1.0, 2.0]).cast(kind).to_pylist()
    assert ranges([*values, None], kind) == ColumnRange(3, None, None, 1)


def test_nulls_and_nans_have_no_range() -> None:
    assert ranges([None, None], pa.string()) == ColumnRange(2, None, None, 2)
    found = ranges([float("nan"), float("nan")], pa.float64())
    assert (found.low, found.high, found.nulls) == (None, None, 0)


@pytest.mark.parametrize(("kind", "low", "high"), [(pa.string(), "a", ""), (pa.binary(), b"", b"")])
def test_an_empty_upper_bound_says_nothing(kind: pa.DataType, low: Any, high: Any) -> None:
    """Of a value of more than 4096 bytes; Arrow 17 says so, though only the lower bound was stored."""
    known = SimpleNamespace(has_min_max=True, has_null_count=True, null_count=0, min=low, max=high)
    group = SimpleNamespace(num_rows=2, column=lambda number: SimpleNamespace(statistics=known))
    footer = cast(pq.FileMetaData, SimpleNamespace(row_group=lambda number: group))
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", kind)]))
    assert group_ranges(footer, 0, schema, {"x"})["x"] == ColumnRange(2, None, None, 0)
    long = low + low[:0].ljust(5000, b"z" if kind == pa.binary() else "z")
    assert ranges([low, long], kind).high is None
