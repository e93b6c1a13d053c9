"""What is left to read of a range, by a query's filters."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from slate_async.engine.read.bounds import KeyRange
from slate_async.spark.pushdown import narrowed

KEY = ("key",)
ALL = KeyRange(None, None)


@pytest.mark.parametrize(
    ("span", "filters", "left"),
    [
        (ALL, [], ALL),
        (ALL, [IsNotNull(KEY)], ALL),
        (ALL, [EqualTo(("value",), b"b")], ALL),
        (ALL, [EqualTo(KEY, None)], ALL),
        (ALL, [EqualNullSafe(KEY, b"b")], ALL),
        (ALL, [EqualTo(KEY, bytearray(b"b"))], KeyRange(b"b", b"b\0")),
        (ALL, [GreaterThan(KEY, b"b"), LessThan(KEY, b"d")], KeyRange(b"b\0", b"d")),
        (ALL, [GreaterThanOrEqual(KEY, b"b"), LessThanOrEqual(KEY, b"d")], KeyRange(b"b", b"d\0")),
        (ALL, [In(KEY, (b"m", None, b"c"))], KeyRange(b"c", b"m\0")),
        (ALL, [In(KEY, ())], KeyRange(b"", b"")),
        (KeyRange(b"c", b"f"), [GreaterThanOrEqual(KEY, b"b"), LessThan(KEY, b"d")], KeyRange(b"c", b"d")),
        (KeyRange(b"c", b"f"), [EqualTo(KEY, b"x")], KeyRange(b"x", b"f")),
    ],
)
def test_filters_of_the_key_narrow_the_range(span: KeyRange, filters: list[Filter], left: KeyRange) -> None:
    assert narrowed(span, filters) == left
