"""Values of each format, made of columns and read back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.spark.value_formats import ValueFormat, decode_values, encode_values

TIME = datetime(2026, 11, 22, 1, 2, 3, 4, UTC)
INNER = pa.struct([pa.field("x", pa.int32()), pa.field("tags", pa.list_(pa.field("element", pa.string())))])
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("age", pa.int32()),
        ("big", pa.int64()),
        ("share", pa.float64()),
        ("good", pa.bool_()),
        ("day", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("inner", INNER),
        ("many", pa.list_(pa.field("element", INNER))),
        ('odd "name"\\', pa.int8()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "name": 'a"b\\c\n\0€',
        "age": -1,
        "big": (1 << 63) - 1,
        "share": 0.1,
        "good": True,
        "day": date(1969, 12, 31),
        "time": TIME,
        "local": TIME.replace(tzinfo=None),
        "price": Decimal("-12.30"),
        "inner": {"x": None, "tags": ["a", None, ""]},
        "many": [{"x": 1, "tags": []}, None, {"x": None, "tags": None}],
        'odd "name"\\': 7,
    },
    dict.fromkeys(SCHEMA.names),
    {**dict.fromkeys(SCHEMA.names), "name": "", "share": 1e300, "many": [], "inner": {"x": 5, "tags": None}},
]
FORMATS: list[ValueFormat] = ["json", "msgpack", "arrow"]


def columns(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> list[pa.Array]:
    return [pa.array([row[field.name] for row in rows], field.type) for field in schema]


def keys(rows: int) -> pa.BinaryArray:
    return pa.array([b"%04d" % row for row in range(rows)], pa.binary())


@pytest.mark.parametrize("form", FORMATS)
def test_rows_come_back(form: ValueFormat) -> None:
    given_rows = [ROWS[row % len(ROWS)] for row in range(50)]
    values = encode_values(form, [column.slice(3) for column in columns(given_rows)], SCHEMA)
    found = decode_values(form, keys(len(values)), values, SCHEMA)
    assert [column.type for column in found] == SCHEMA.types
    assert pa.record_batch(found, schema=SCHEMA).to_pylist() == given_rows[3:]
    few = pa.schema([SCHEMA.field("inner"), SCHEMA.field("age")])
    pruned = decode_values(form, keys(len(values)), values, few)
    assert [row["age"] for row in pa.record_batch(pruned, schema=few).to_pylist()] == [r["age"] for r in given_rows[3:]]
    assert [len(column) for column in decode_values(form, keys(0), values[:0], SCHEMA)] == [0] * len(SCHEMA)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | FLOATS)))
def test_json_is_json(rows: list[tuple[Any, Any]]) -> None:
    schema = pa.schema([("text", pa.string()), ("number", pa.float64())])
    made = [{"text": text, "number": number} for text, number in rows]
    values = encode_values("json", columns(made, schema), schema)
    read = [json.loads(value.as_py()) for value in values]
    assert read == [{name: part for name, part in row.items() if part is not None} for row in made]
    assert pa.record_batch(decode_values("json", keys(len(rows)), values, schema), schema=schema).to_pylist() == made


@pytest.mark.parametrize(
    "bad",
    [
        b"", b" ", b"null", b"7", b"[1]", b'{"age": 1} garbage', b'{"age": 1}{"age": 2}', b'{"age": 1},{"age": 2}',
        b'{"age": 1}]},{"w":[{"age": 2}', b'{"age": 1}],"w":[{"age": 2}', b'{"age": 1.5}', b'{"age": "1"}',
        b'{"name": "\xff"}', b"{'age': 1}", b'{"name": 1}', b'[{"age": 1}]', b'{"age": 99999999999}',
    ],
)  # fmt: skip
def test_what_is_no_such_json_is_named(bad: bytes) -> None:
    values = [b'{"age": 1, "more": {"x": [1]}}', b' {"name": "n"}\n'] * 5
    values[7] = bad
    schema = pa.schema([SCHEMA.field("name"), SCHEMA.field("age")])
    with pytest.raises(InvalidError, match=r"the value of key b'0007' is not JSON of the schema"):
        decode_values("json", keys(10), pa.array(values, pa.binary()), schema)


@pytest.mark.parametrize(
    ("form", "bad"),
    [("msgpack", b"\x93\1\2\3"), ("msgpack", b"\x81\xa3age\xa1x"), ("msgpack", b""), ("arrow", b"no")],
)
def test_other_values_are_named(form: ValueFormat, bad: bytes) -> None:
    schema = pa.schema([SCHEMA.field("name"), SCHEMA.field("age")])
    [good] = encode_values(form, [pa.array(["a"]), pa.array([1], pa.int32())], schema).to_pylist()
    with pytest.raises(InvalidError, match=r"the value of key b'0002' is not .* of the schema"):
        decode_values(form, keys(4), pa.array([good, good, bad, good], pa.binary()), schema)


def test_what_json_has_not_is_refused() -> None:
    for kind, value, said in ((pa.float64(), float("nan"), "column a holds NaN"), (pa.binary(), b"x", "a is binary")):
        with pytest.raises(InvalidError, match=said):
            encode_values("json", [pa.array([value, None], kind)], pa.schema([("a", kind)]))
    nothing = pa.array([None], pa.float64())
    assert encode_values("json", [nothing], pa.schema([("a", pa.float64())])).to_pylist() == [b"{}"]
