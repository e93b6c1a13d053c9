"""Filters: what they keep, what they refuse, and which spans of rows they skip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.core.filtering import ColumnRange, Condition, conditions_of, filtered, may_pass
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError

SCHEMA = UpdateSchema(
    TimeKind.U64, pa.schema([("id", pa.int32()), ("name", pa.string()), ("price", pa.float64()), ("key", pa.binary())])
)
ROWS = SCHEMA.batch(
    [
        ((1, "ann", 1.5, b"a"), 0, 1),
        ((2, None, math.nan, b"b"), 0, 1),
        ((None, "bob", -0.0, None), 0, 1),
        ((4, "", None, b""), 0, 1),
    ]
)


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ([], [1, 2, None, 4]),
        ([("id", "==", 2)], [2]),
        ([("id", "!=", 2)], [1, 4]),
        ([("id", "<", 2)], [1]),
        ([("id", "<=", 2)], [1, 2]),
        ([("id", ">", 2)], [4]),
        ([("id", ">=", 2), ("name", "is not null")], [4]),
        ([("id", "in", [1, 4, 9])], [1, 4]),
        ([("id", "in", [])], []),
        ([("id", "is null")], [None]),
        ([("name", ">=", "ann")], [1, None]),
        ([("price", "==", 0.0)], [None]),
        ([("price", "!=", 1.5)], [2, None]),
        ([("price", ">", -1)], [1, None]),
        ([("price", "==", math.nan)], []),
        ([("key", "in", {b"a", b""})], [1, 4]),
    ],
)
def test_rows_pass_all_conditions(conditions: list[Any], kept: list[int | None]) -> None:
    found = filtered(ROWS, conditions_of(conditions, SCHEMA))
    assert found.column("id").to_pylist() == kept
    assert filtered(ROWS.slice(1), conditions_of(conditions, SCHEMA)).num_rows == len([k for k in kept if k != 1])


@pytest.mark.parametrize(("sign", "kept"), [("<", [-2.0]), ("==", [1.5]), ("!=", [-2.0, 3.0]), ("in", [1.5])])
def test_half_floats_are_compared(sign: str, kept: list[float]) -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", pa.float16())]))
    rows = schema.batch([(np.float16(x) if x is not None else None, 0, 1) for x in (-2, 1.5, None, 3)])
    value = np.float16(1.5)
    found = filtered(rows, conditions_of([("x", sign, [value] if sign == "in" else value)], schema))
    assert found.column("x").to_pylist() == kept


def test_a_filter_that_all_pass_copies_nothing() -> None:
    assert filtered(ROWS, conditions_of([("id", "in", [1, 2, 4])], SCHEMA)) is not ROWS
    assert filtered(ROWS.slice(0, 2), conditions_of([("id", ">", 0)], SCHEMA)).num_rows == 2
    assert filtered(ROWS, ()) is ROWS


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("id", "'id' is no condition"),
        (("id",), "is no condition"),
        (("id", "==", 1, 2), "is no condition"),
        (("_time", "==", 1), r"'_time' is no data column: those are \['id', 'name', 'price', 'key'\]"),
        (("id", "=", 1), "'=' is no comparison: those are ==, !="),
        (("id", "=="), "== takes a value"),
        (("id", "is null", 1), "is null takes no value"),
        (("id", "in", 1), "in takes a list"),
        (("id", "==", None), "nothing compares with null; ask for column id with 'is null'"),
        (("id", "in", [1, None]), "nothing compares with null"),
        (("id", "==", "x"), "'x' is no value of column id, which is int32"),
        (("id", "==", 2**40), "is no value of column id"),
        (("id", "==", 1.5), "1.5 is no value of column id"),
        (("name", "==", 5), "5 is no value of column name"),
    ],
)
def test_what_is_no_condition_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        Condition.of(given, SCHEMA)


def known(low: int | None, high: int | None, nulls: int | None = 0) -> ColumnRange:
    scalars = [None if value is None else pa.scalar(value, pa.int32()) for value in (low, high)]
    return ColumnRange(10, scalars[0], scalars[1], nulls)


@pytest.mark.parametrize(
    ("condition", "skipped", "kept"),
    [
        (
            ("id", "==", 5),
            [known(6, 9), known(1, 4), known(None, None, 10)],
            [known(5, 5), known(1, 9), known(None, 4)],
        ),
        (("id", "!=", 5), [known(5, 5), known(5, 5, 3)], [known(5, 6), known(None, None)]),
        (("id", "<", 5), [known(5, 9)], [known(4, 9), known(None, 9)]),
        (("id", "<=", 5), [known(6, 9)], [known(5, 9)]),
        (("id", ">", 5), [known(1, 5)], [known(1, 6)]),
        (("id", ">=", 5), [known(1, 4)], [known(1, 5)]),
        (("id", "in", [1, 9]), [known(2, 8)], [known(2, 9)]),
        (("id", "in", []), [known(2, 8)], []),
        (("id", "is null"), [known(1, 2)], [known(1, 2, 1), known(1, 2, None)]),
        (("id", "is not null"), [known(None, None, 10)], [known(None, None, 9), known(None, None, None)]),
    ],
)
def test_a_span_is_skipped_if_no_row_can_pass(
    condition: Any, skipped: list[ColumnRange], kept: list[ColumnRange]
) -> None:
    conditions = conditions_of([condition], SCHEMA)
    assert [may_pass(conditions, {"id": found}) for found in skipped] == [False] * len(skipped)
    assert [may_pass(conditions, {"id": found}) for found in kept] == [True] * len(kept)
    assert may_pass(conditions, {})


def test_one_condition_that_none_can_pass_skips_the_span() -> None:
    conditions = conditions_of([("id", ">", 5), ("id", "<", 8)], SCHEMA)
    assert not may_pass(conditions, {"id": known(1, 5)})
    assert not may_pass(conditions, {"id": known(8, 9)})
    assert may_pass(conditions, {"id": known(1, 9)})


def test_a_constant_of_floats_may_lie_beside_nans_that_differ() -> None:
    one = pa.scalar(1.5, pa.float64())
    assert may_pass(conditions_of([("price", "!=", 1.5)], SCHEMA), {"price": ColumnRange(2, one, one, 0)})


def test_what_is_no_list_of_conditions_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(InvalidError, match=r"where takes conditions \(column, comparison, value\), not 3"):
        conditions_of(wrong, SCHEMA)
