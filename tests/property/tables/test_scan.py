"""A scan gives the rows that its predicate keeps, whatever blocks, row groups and statistics they lie in: as SQL says
of each row, and as duckdb says of the same rows."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from decimal import Decimal
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.tables.codec import block
from slate_async.tables.core.predicate import And, Comparison, IsIn, IsNull, Not, Op, Or, Predicate, StartsWith
from tests.property.tables.predicates import COLUMNS, LITERALS, ROW, STORED, passes
from tests.slices import seeds
from tests.support.tables import created, opened, store_in_hand

KEPT = [name for name in COLUMNS.names if name != "local"]
"""Tables do not store timestamps of seconds."""
SCHEMA = pa.schema([COLUMNS.field(name) for name in KEPT]).append(pa.field("place", pa.int64()))


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    """Two leaves at most: more of them seldom leave anything out."""
    leaves = []
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(KEPT))
        if draw(st.integers(0, 4)) == 0:
            leaves.append(draw(st.sampled_from([IsNull(name), Not(IsNull(name))])))
        else:
            leaves.append(Comparison(name, draw(st.sampled_from(list(Op))), draw(LITERALS[name])))
    made = draw(st.sampled_from([And, Or]))(tuple(leaves))
    return Not(made) if draw(st.booleans()) else made


@pytest.mark.timeout(600)
@settings(max_examples=15)
@given(st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=2), st.lists(predicates(), max_size=4))
def test_a_scan_gives_what_passes(appends: list[list[dict[str, Any]]], asked: list[Predicate]) -> None:
    async def run() -> None:
        async with opened(store_in_hand()) as catalog:
            table = await created(catalog, schema=SCHEMA)
            rows: list[dict[str, Any]] = []
            for given_rows in appends:
                numbered = [{**row, "place": len(rows) + at} for at, row in enumerate(given_rows)]
                rows.extend(numbered)
                await table.append(pa.Table.from_pylist([_stored(row) for row in numbered], schema=SCHEMA))
            for predicate in asked:
                found = await table.scan(where=predicate, columns=["place"]).read()
                expected = [row["place"] for row in rows if passes(predicate, row) is True]
                assert found.column("place").to_pylist() == expected

    with mock.patch.object(block, "GROUP_ROWS", 3):
        asyncio.run(run())


def _stored(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in SCHEMA.names}


SQL = {
    "tiny": "TINYINT",
    "count": "UBIGINT",
    "half": "FLOAT",
    "real": "DOUBLE",
    "price": "DECIMAL(5, 2)",
    "name": "VARCHAR",
    "flag": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMPTZ",
    "hour": "TIME",
}
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 127],
    "count": [0, 1, 2**63, 2**64 - 1],
    "half": [-1.5, 0.0, 1.5, float("nan"), float("inf")],
    "real": [-1e300, -0.0, 0.1, 3.0, float("nan"), float("-inf")],
    "price": [Decimal("-999.99"), Decimal("-0.01"), Decimal("2.50"), Decimal("999.99")],
    "name": ["", "a", "ab", "abc", "é", "z" * 40],
    "flag": [True, False],
    "day": [dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2020, 2, 29)],
    "at": [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, 12, 30, tzinfo=dt.UTC)],
    "hour": [dt.time(0), dt.time(12, 30), dt.time(23, 59, 59)],
}
NESTED = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
TYPED = pa.schema([(name, COLUMNS.field(name).type) for name in SQL] + [("nested", NESTED), ("place", pa.int64())])
PREDICATES = 200


@pytest.mark.timeout(600)
def test_random_predicates_give_what_duckdb_gives() -> None:
    for seed in seeds(1):
        asyncio.run(_beside_duckdb(random.Random(seed)))


async def _beside_duckdb(rng: random.Random) -> None:
    rows = [
        {name: rng.choice([None, *values]) for name, values in VALUES.items()}
        | {"nested": rng.choice([None, {"x": at, "tags": ["a", None]}]), "place": at}
        for at in range(120)
    ]
    rows.sort(key=lambda row: (row["tiny"] is None, row["tiny"], row["name"] or ""))
    stored = pa.Table.from_pylist(rows, schema=TYPED)
    with mock.patch.object(block, "GROUP_ROWS", 10):
        async with opened(store_in_hand()) as catalog:
            table = await created(catalog, schema=TYPED)
            for first in range(0, stored.num_rows, 40):
                await table.append(stored.slice(first, 40))
            database = duckdb.connect()
            database.execute("set timezone = 'UTC'")
            database.execute("set threads = 1")
            database.register("given", stored)
            database.execute("create table stored as select * exclude (nested) from given")
            by_place = {row["place"]: row["nested"] for row in rows}
            for _ in range(PREDICATES):
                predicate, text = _random(rng, 3)
                found = await table.scan(where=predicate, columns=["place", "nested"]).read()
                query = f"select place from stored where {text}"
                expected = sorted(place for (place,) in database.execute(query).fetchall())
                assert sorted(found.column("place").to_pylist()) == expected, query
                for row in found.to_pylist():
                    assert row["nested"] == by_place[row["place"]]


def _random(rng: random.Random, depth: int) -> tuple[Predicate, str]:
    """A predicate, and what SQL calls it."""
    kind = rng.choice(("and", "or", "not", "leaf", "leaf")) if depth else "leaf"
    if kind == "not":
        predicate, text = _random(rng, depth - 1)
        return Not(predicate), f"not ({text})"
    if kind != "leaf":
        parts = [_random(rng, depth - 1) for _ in range(2)]
        made = And if kind == "and" else Or
        return made(tuple(part for part, _ in parts)), f" {kind} ".join(f"({text})" for _, text in parts)
    name = rng.choice(list(VALUES))
    value = rng.choice(VALUES[name])
    form = rng.choice(("compare", "compare", "compare", "null", "in", "prefix"))
    if form == "null":
        return IsNull(name), f'"{name}" is null'
    if form == "in":
        values = rng.sample(VALUES[name], 2)
        return IsIn(name, tuple(values)), f'"{name}" in ({", ".join(_literal(name, each) for each in values)})'
    if form == "prefix" and name == "name":
        return StartsWith(name, value), f"starts_with(name, {_literal(name, value)})"
    op = rng.choice(list(Op))
    return Comparison(name, op, value), f'"{name}" {SIGNS[op]} {_literal(name, value)}'


SIGNS = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


def _literal(name: str, value: Any) -> str:
    return f"'{value}'::{SQL[name]}"


def test_every_type_has_literals() -> None:
    assert set(VALUES) == set(SQL) <= set(STORED)
