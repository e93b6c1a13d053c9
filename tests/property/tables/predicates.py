"""Rows of every type that predicates compare, predicates on them, and what SQL says of each row."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from slate_async.tables.core.predicate import And, Comparison, IsIn, IsNull, Not, Op, Or, Predicate, StartsWith, col

UTC = dt.UTC
COLUMNS = pa.schema(
    [
        ("tiny", pa.int8()),
        ("count", pa.uint64()),
        ("half", pa.float32()),
        ("real", pa.float64()),
        ("price", pa.decimal128(5, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms", "UTC")),
        ("local", pa.timestamp("s")),
        ("hour", pa.time64("us")),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)
FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.1, 1.5, 3.0, 1e300, math.inf, math.nan])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "é", "z" * 40, "z" * 40 + "a", "\U0010ffff" * 20])
BYTES = st.sampled_from([b"", b"\0", b"a", b"ab", b"\xff", b"\xff" * 40])
MOMENTS = st.sampled_from(["2020-01-01", "2020-01-01T00:00:00.000500", "1960-01-01T00:00:01"]).map(
    dt.datetime.fromisoformat
)
HOURS = st.sampled_from([dt.time(0), dt.time(12, 30), dt.time(23, 59, 59, 999_999)])
STORED: dict[str, st.SearchStrategy[Any]] = {
    "tiny": st.sampled_from([-128, -1, 0, 1, 2, 127]),
    "count": st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    "half": FLOATS.filter(lambda value: value not in (0.1, 1e300)),
    "real": FLOATS,
    "price": st.sampled_from(
        [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("2.50"), Decimal("999.99")]
    ),
    "name": TEXTS,
    "raw": BYTES,
    "flag": st.booleans(),
    "day": st.sampled_from([dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2020, 2, 29)]),
    "at": MOMENTS.map(lambda value: value.replace(microsecond=0, tzinfo=UTC)),
    "local": MOMENTS.map(lambda value: value.replace(microsecond=0)),
    "hour": HOURS,
    "kind": TEXTS,
}
NUMBERS = (
    FLOATS
    | st.sampled_from([-(10**30), -129, -128, -1, 0, 1, 2, 127, 128, 2**63, 2**64, 10**30])
    | st.sampled_from([Decimal("0.005"), Decimal("2.5"), Decimal("-1000"), Decimal("999.995"), Decimal("NaN")])
)
EXACT = NUMBERS.filter(lambda value: isinstance(value, int | Decimal))
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    **STORED,
    "tiny": NUMBERS,
    "count": NUMBERS,
    "half": NUMBERS,
    "real": NUMBERS,
    "price": EXACT,
    "at": MOMENTS.map(lambda value: value.replace(tzinfo=UTC)),
    "local": MOMENTS,
}
ROW = st.fixed_dictionaries({name: st.none() | stored for name, stored in STORED.items()})
ROWS = st.lists(ROW, max_size=12)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS)


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(COLUMNS.names))
    form = draw(st.sampled_from(["compare", "compare", "in", "null", "prefix"]))
    if form == "null":
        return col(name).is_null()
    if form == "prefix" and name in ("name", "raw", "kind"):
        return col(name).startswith(draw(LITERALS[name]))
    if form == "in":
        return col(name).isin(draw(st.lists(LITERALS[name], max_size=3)))
    return Comparison(name, draw(st.sampled_from(list(Op))), draw(LITERALS[name]))


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    leaves(),
    lambda parts: (
        parts.map(Not)
        | st.lists(parts, max_size=3).map(lambda made: And(tuple(made)))
        | st.lists(parts, max_size=3).map(lambda made: Or(tuple(made)))
    ),
    max_leaves=6,
)


def passes(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """What SQL says of one row, computed plainly: ``None`` for neither."""
    match predicate:
        case Not(part):
            said = passes(part, row)
            return None if said is None else not said
        case And(parts):
            return _all([passes(part, row) for part in parts])
        case Or(parts):
            said = _all([_not(passes(part, row)) for part in parts])
            return _not(said)
        case IsNull(column):
            return row[column] is None
    value = row[predicate.column]  # type: ignore[attr-defined]
    if isinstance(predicate, IsIn):
        if not predicate.values:
            return None if value is None else False
        return _not(_all([_not(_compare(value, Op.EQ, other)) for other in predicate.values]))
    if value is None:
        return None
    if isinstance(predicate, StartsWith):
        return bool(value.startswith(predicate.prefix))
    assert isinstance(predicate, Comparison)
    return _compare(value, predicate.op, predicate.value)


def _compare(value: Any, op: Op, other: Any) -> bool | None:
    if value is None:
        return None
    if isinstance(value, float):
        other = float(other)
    one, two = (_key(value), _key(other))
    return {
        Op.EQ: one == two,
        Op.NE: one != two,
        Op.LT: one < two,
        Op.LE: one <= two,
        Op.GT: one > two,
        Op.GE: one >= two,
    }[op]


def _key(value: Any) -> tuple[int, Any]:
    """NaN above all others; text by its bytes, as its code points are ordered."""
    if value != value:
        return (1, 0)
    return (0, value.encode() if isinstance(value, str) else value)


def _all(said: list[bool | None]) -> bool | None:
    if False in said:
        return False
    return None if None in said else True


def _not(said: bool | None) -> bool | None:
    return None if said is None else not said
