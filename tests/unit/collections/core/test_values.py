"""Values that a column would not keep as they are."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.core.values import array_of, scalar_of
from slate_async.errors import InvalidError

SECOND = dt.datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a column without a zone
HALF = SECOND.replace(microsecond=500_000)
ZONED = SECOND.replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "loss"),
    [
        (pa.int32(), 1.5, "is no integer"),
        (pa.int32(), Decimal("1.5"), "is no integer"),
        (pa.int64(), np.float64(2), "is no integer"),
        (pa.float32(), 1e300, "is too large"),
        (pa.float16(), 70000, "is too large"),
        (pa.date32(), SECOND, "has a time of day"),
        (pa.timestamp("s"), HALF, "is finer than s"),
        (pa.timestamp("ms"), SECOND.replace(microsecond=1), "is finer than ms"),
        (pa.timestamp("us"), ZONED, "has a time zone, and the column has none"),
        (pa.time32("s"), dt.time(1, 2, 3, 4), "is finer than s"),
        (pa.duration("ms"), dt.timedelta(microseconds=5), "is finer than ms"),
    ],
    ids=str,
)
def test_a_value_that_would_be_cut_off_is_refused(kind: pa.DataType, value: Any, loss: str) -> None:
    field = pa.field("x", kind)
    with pytest.raises(InvalidError, match=f"^row 1: .* is no value of column x, which is .*: it {loss}"):
        array_of([None, value], field)
    with pytest.raises(InvalidError, match=f"is no value of column x, which is .*: it {loss}"):
        scalar_of(value, field)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), np.int16(5)),
        (pa.float32(), 0.1),
        (pa.float32(), math.inf),
        (pa.float16(), math.nan),
        (pa.float64(), 1e300),
        (pa.date32(), dt.date(2024, 1, 2)),
        (pa.timestamp("s"), SECOND),
        (pa.timestamp("ms"), HALF),
        (pa.timestamp("ns"), np.datetime64(1, "ns")),
        (pa.timestamp("us", "UTC"), ZONED),
        (pa.time32("ms"), dt.time(1, 2, 3, 4000)),
        (pa.duration("ms"), dt.timedelta(milliseconds=5)),
        (pa.decimal128(9, 2), Decimal("1.50")),
        (pa.string(), "é"),
        (pa.binary(), b""),
        (pa.bool_(), True),
    ],
    ids=str,
)
def test_other_values_are_taken(kind: pa.DataType, value: Any) -> None:
    field = pa.field("x", kind)
    made = np.float16(value) if kind == pa.float16() else value  # which older releases of Arrow want
    assert array_of([value, None], field).equals(pa.array([made, None], kind)) or value != value
    assert scalar_of(value, field).type == kind


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 200),
        (pa.string(), b"\xff"),
        (pa.decimal128(9, 2), Decimal("1.555")),
        (pa.int8(), "1"),
        (pa.timestamp("us"), np.datetime64(1, "ns")),
    ],
)
def test_what_arrow_refuses_names_row_and_value(kind: pa.DataType, value: Any) -> None:
    field = pa.field("x", kind)
    with pytest.raises(InvalidError, match=r"^row 1: .* is no value of column x, which is "):
        array_of([None, value], field)
    with pytest.raises(InvalidError, match=r" is no value of column x, which is "):
        scalar_of(value, field)


def test_a_null_needs_a_column_that_may_have_it() -> None:
    with pytest.raises(InvalidError, match="row 1: x is null, which it may not be"):
        array_of([1, None], pa.field("x", pa.int8(), nullable=False))
