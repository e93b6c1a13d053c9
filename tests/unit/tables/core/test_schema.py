"""What a schema may become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.tables.core.schema import FIELD_ID, TableSchema, widens

GIVEN = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("price", pa.decimal128(5, 2)),
        ("name", pa.string()),
        ("day", pa.date32()),
    ]
)


def test_ids_stay_through_all_changes_and_are_never_given_again() -> None:
    first = TableSchema.of(GIVEN)
    assert [field.field_id for field in first.fields] == [1, 2, 3, 4]
    second = first.altered(drop=["name"], rename={"id": "key"}, add={"note": pa.string()})
    assert [(field.field_id, field.name) for field in second.fields] == [
        (1, "key"),
        (2, "price"),
        (4, "day"),
        (5, "note"),
    ]
    third = second.altered(drop=["note"], order=["day", "key", "price"])
    assert third.names == ["day", "key", "price"]
    fourth = third.altered(add={"note": pa.string()})
    assert fourth.field("note").field_id == 6
    assert fourth.schema_id == 3


def test_names_can_be_swapped() -> None:
    swapped = TableSchema.of(GIVEN).altered(rename={"id": "name", "name": "id"})
    assert [(field.field_id, field.name) for field in swapped.fields][:3] == [(1, "name"), (2, "price"), (3, "id")]


def test_arrow_has_the_ids() -> None:
    made = TableSchema.of(GIVEN).arrow(["name", "id"])
    assert made.names == ["name", "id"]
    assert made.field("name").metadata == {FIELD_ID: b"3"}
    assert not made.field("id").nullable


def test_a_default_is_of_the_type_and_widened_with_it() -> None:
    made = TableSchema.of(GIVEN).altered(
        add={"stock": pa.field("stock", pa.int16(), nullable=False)}, defaults={"stock": 7}
    )
    wide = made.altered(widen={"stock": pa.int64()}).field("stock")
    assert wide.default == pa.scalar(7, pa.int64())
    assert not wide.nullable


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.uint32(), pa.int64(), True),
        (pa.int32(), pa.uint64(), False),
        (pa.uint64(), pa.int64(), False),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.date32(), pa.timestamp("ns"), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
    ],
)
def test_widening(old: pa.DataType, new: pa.DataType, allowed: bool) -> None:
    assert widens(old, new) == allowed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drop": ["nme"]}, r"there is no column 'nme'; did you mean 'name'\?"),
        ({"drop": ["id"], "fixed": ["id"]}, "key or sort column"),
        ({"drop": ["name"], "rename": {"name": "x"}}, "is dropped, and changed otherwise"),
        ({"rename": {"name": "ID"}}, "differ in case only"),
        ({"rename": {"name": "_row"}}, "row ids do"),
        ({"widen": {"price": pa.decimal128(9, 4)}}, "not every stored value"),
        ({"widen": {"price": "int64"}}, "pyarrow type"),
        ({"add": {"x": pa.field("x", pa.int64(), nullable=False)}}, "required without a default"),
        ({"add": {"x": pa.int8()}, "defaults": {"x": 1000}}, "default of column 'x'"),
        ({"add": {"x": pa.int8()}, "defaults": {"x": None}}, "cannot be null"),
        ({"defaults": {"id": 1}}, "belongs to a column that is added"),
        ({"add": {"x": pa.float16()}}, "does not store"),
        ({"add": {"x": pa.timestamp("s")}}, "use milliseconds"),
        ({"order": ["id"]}, "names each column once"),
        ({"drop": ["id", "price", "name", "day"]}, "at least one column"),
    ],
)
def test_what_rows_would_not_survive_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said):
        TableSchema.of(GIVEN).altered(**changes)


@pytest.mark.parametrize(
    "given",
    [
        pa.schema([]),
        pa.schema([("", pa.int8())]),
        pa.schema([("x", pa.int8()), ("x", pa.int8())]),
        pa.schema([("a\nb", pa.int8())]),
        pa.schema([("x" * 256, pa.int8())]),
        pa.schema([("x", pa.list_(pa.float16()))]),
        pa.schema([(f"c{at}", pa.int8()) for at in range(1001)]),
        "id int",
    ],
)
def test_what_no_table_can_have_is_refused(given: Any) -> None:
    with pytest.raises(slate.InvalidError):
        TableSchema.of(given)


def test_a_default_of_decimals_keeps_its_value() -> None:
    made = TableSchema.of(GIVEN).altered(add={"tax": pa.decimal128(4, 2)}, defaults={"tax": Decimal("0.19")})
    assert made.field("tax").default == pa.scalar(Decimal("0.19"), pa.decimal128(4, 2))
