"""Predicates keep the rows that SQL keeps, and statistics never skip a span that has one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from slate_async.tables.core.binding import Mask, bind
from slate_async.tables.core.predicate import Predicate, from_json, predicate_of, to_json
from tests.property.tables.predicates import COLUMNS, PREDICATES, ROWS, passes, table_of


@given(ROWS, PREDICATES)
def test_rows_pass_as_sql_says(rows: list[dict[str, Any]], predicate: Predicate) -> None:
    table = table_of(rows)
    expected = [passes(predicate, row) is True for row in rows]
    kept = table.append_column("row", pa.array(range(len(rows)), pa.int64())).filter(
        bind(predicate, COLUMNS).expression()
    )
    assert kept.column("row").to_pylist() == [at for at, passed in enumerate(expected) if passed]


class SpansOf:
    """Statistics of parts of a table. ``known``: which of them are told; texts and bytes are cut to two."""

    def __init__(self, table: pa.Table, cuts: list[int], told: dict[str, list[bool]]) -> None:
        ends = sorted({0, *(cut for cut in cuts if cut < table.num_rows), table.num_rows})
        self.parts = [table.slice(begin, end - begin) for begin, end in pairwise(ends)]
        self.told = told

    @property
    def count(self) -> int:
        return len(self.parts)

    def low(self, column: str) -> pa.Array | None:
        return self._bounds(column, lowest=True)

    def high(self, column: str) -> pa.Array | None:
        return self._bounds(column, lowest=False)

    def may_have_nan(self, column: str) -> bool:
        return self.told[column][0]

    def all_null(self, column: str) -> Mask | None:
        nulls = [part.column(column).null_count == part.num_rows for part in self.parts]
        return np.array(nulls, np.bool_) if self.told[column][1] else None

    def no_null(self, column: str) -> Mask | None:
        return np.array([part.column(column).null_count == 0 for part in self.parts], np.bool_)

    def _bounds(self, column: str, *, lowest: bool) -> pa.Array | None:
        kind = COLUMNS.field(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not self.told[column][2]:
            return None
        return pa.array([self._bound(part.column(column), lowest, self.told[column][0]) for part in self.parts], kind)

    def _bound(self, values: pa.ChunkedArray, lowest: bool, no_nan: bool) -> Any:
        found = [value for value in values.to_pylist() if value is not None]
        floats = [value for value in found if isinstance(value, float)]
        real = [value for value in floats if value == value]
        if floats:
            if len(real) < len(floats) and not lowest and not no_nan:
                return float("nan")
            return (min if lowest else max)(real, default=None if no_nan else float("nan"))
        if not found:
            return None
        return (min if lowest else max)(found, key=lambda value: value.encode() if isinstance(value, str) else value)


@given(st.data(), ROWS, PREDICATES)
def test_a_span_with_a_row_that_passes_is_never_skipped(
    data: st.DataObject, rows: list[dict[str, Any]], predicate: Predicate
) -> None:
    told = {name: data.draw(st.lists(st.booleans(), min_size=3, max_size=3), name) for name in COLUMNS.names}
    spans = SpansOf(table_of(rows), data.draw(st.lists(st.integers(1, 12)), "cuts"), told)
    bound = bind(predicate, COLUMNS)
    mask = bound.may_pass(spans)
    assert len(mask) == spans.count
    for part, may in zip(spans.parts, mask, strict=True):
        assert may or part.filter(bound.expression()).num_rows == 0


@given(PREDICATES)
def test_json_and_back(predicate: Predicate) -> None:
    assert repr(from_json(to_json(predicate))) == repr(predicate_of(predicate))


def test_nan_is_as_in_duckdb() -> None:
    values = [float("nan"), float("inf"), 1.5, -0.0, None]
    stored = pa.table({"real": pa.array(values, pa.float64()), "place": range(5)})
    for sign in ("==", "!=", "<", "<=", ">", ">="):
        for literal in ("nan", "1.5", "inf", "0.0"):
            query = f"select place from stored where real {sign.replace('==', '=')} '{literal}'::DOUBLE order by place"
            bound = bind(predicate_of([("real", sign, float(literal))]), stored.schema)
            ours = stored.filter(bound.expression()).column("place").to_pylist()
            assert ours == [place for (place,) in duckdb.execute(query).fetchall()], query


def test_long_lists_are_no_deep_expressions() -> None:
    table = pa.table({"n": pa.array(range(5000), pa.int64())})
    bound = bind(predicate_of([("n", "in", list(range(0, 5000, 2)))]), table.schema)
    assert pc.sum(table.filter(bound.expression()).column("n")).as_py() == sum(range(0, 5000, 2))
