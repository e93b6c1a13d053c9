"""Updates in columns: what users append, and the errors that name the row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema, check_within, row_text
from slate_async.errors import InvalidError

BYTES = UpdateSchema.of_bytes(TimeKind.U64)
PAIRS = UpdateSchema.of_bytes(TimeKind.U64X2)
ORDERS = UpdateSchema(
    TimeKind.U64, pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("customer", pa.string())])
)


def test_columns_are_data_then_times_then_differences() -> None:
    assert PAIRS.arrow.names == ["data", "_time", "_time2", "_diff"]
    assert PAIRS.key == ["data", "_time", "_time2"]
    assert ORDERS.arrow.names == ["id", "customer", "_time", "_diff"]
    assert [str(kind) for kind in ORDERS.arrow.types] == ["int32", "string", "uint64", "int64"]
    assert BYTES.empty().schema == BYTES.arrow


@pytest.mark.parametrize(
    ("schema", "rows", "columns"),
    [
        (BYTES, [(b"a", 1, 1), (b"", 0, -2)], [[b"a", b""], [1, 0], [1, -2]]),
        (BYTES, [[memoryview(b"a"), np.uint64(1), np.int64(1)]], [[b"a"], [1], [1]]),
        (BYTES, [], [[], [], []]),
        (PAIRS, [(b"a", (1, 2), 1)], [[b"a"], [1], [2], [1]]),
        (ORDERS, [((7, "ann"), 1, 1), ({"customer": None, "id": 8}, 2, 1)], [[7, 8], ["ann", None], [1, 2], [1, 1]]),
        (
            UpdateSchema(TimeKind.U64, pa.schema([("n", pa.int8())])),
            [(3, 1, 1), ({"n": 4}, 1, 1)],
            [[3, 4], [1, 1], [1, 1]],
        ),
    ],
)
def test_rows_become_columns(schema: UpdateSchema, rows: list[Any], columns: list[list[Any]]) -> None:
    batch = schema.batch(rows)
    assert batch.schema == schema.arrow
    assert [column.to_pylist() for column in batch.columns] == columns
    assert schema.batch(iter(rows)).equals(batch)


def test_columns_come_in_any_order_and_integers_of_any_size() -> None:
    table = pa.table(
        {"_diff": pa.array([1, -1], pa.int8()), "_time": pa.array([3, 4], pa.int64()), "data": [b"x", b"y"]}
    )
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1), table.slice(0, 0)])
    for given in (table, chunked, table.to_batches()[0]):
        batch = BYTES.batch(given)
        assert batch.schema == BYTES.arrow
        assert [column.to_pylist() for column in batch.columns] == [[b"x", b"y"], [3, 4], [1, -1]]
    assert BYTES.batch(table.slice(0, 0)).num_rows == 0
    assert BYTES.batch(pa.table({"data": [], "_time": [], "_diff": []}, schema=BYTES.arrow)).num_rows == 0


def columns(**changed: Any) -> pa.Table:
    given = {"data": pa.array([b"x", b"y"]), "_time": pa.array([1, 2], pa.uint64()), "_diff": pa.array([1, 1])}
    return pa.table({name: value for name, value in (given | changed).items() if value is not None})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (columns(data=None), r"have the columns \['data', '_time', '_diff'\], not \['_time', '_diff'\]"),
        (columns(other=pa.array([1, 2])), "not .*'other'"),
        (columns(data=pa.array(["x", "y"])), "column data is string, but binary"),
        (columns(data=pa.array([b"x", None])), "row 1: data is null"),
        (columns(_time=pa.array([1, None], pa.uint64())), "row 1: _time is null"),
        (columns(_time=pa.array([1.0, 2.0])), "column _time is double, but uint64"),
        (columns(_time=pa.array([1, -2])), "row 1: _time -2 does not fit uint64"),
        (columns(_time=pa.array([1, 2**63], pa.uint64())), r"row 1 \(data=b'y', _time=9223372036854775808, _diff=1\)"),
        (columns(_diff=pa.array([1, 2**63], pa.uint64())), "row 1: _diff 9223372036854775808 does not fit int64"),
        ([(b"a", 1, 1), (b"b", 1)], r"row 1 is \(b'b', 1\), not \(data, time, diff\)"),
        ([(b"a", 1, 1), b"abc"], "row 1 is b'abc'"),
        ([(b"a", -1, 1)], "row 0: -1 is outside"),
        ([(b"a", 2**63, 1)], "row 0: 9223372036854775808 is outside"),
        ([(b"a", (1, 2), 1)], "row 0: .*takes an integer"),
        (None, r"updates are rows \(data, time, diff\) or Arrow columns, not None"),
        ([(b"a", 1, True)], "row 0: True is no difference"),
        ([(b"a", 1, 2**63)], "row 0: difference 9223372036854775808 does not fit int64"),
        ([(b"a", 1, 1), (None, 1, 1)], "row 1: data is null"),
        ([(b"a", 1, 1), (5, 1, 1)], "row 1: 5 is no value of column data, which is binary: "),
    ],
)
def test_what_is_no_update_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        BYTES.batch(given)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((7,), r"data of row 0 are not those of the columns \['id', 'customer'\]"),
        ({"id": 7}, "data of row 0"),
        (7, "data of row 0"),
        ((2**40, "ann"), "row 0: 1099511627776 is no value of column id, which is int32: "),
        ((7, 8), "row 0: 8 is no value of column customer"),
        ((None, "ann"), "row 0: id is null"),
    ],
)
def test_data_of_other_columns_are_refused(data: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        ORDERS.batch([(data, 1, 1)])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (pa.schema([]), "one column or more"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "of different names"),
        (pa.schema([("_time", pa.int8())]), "'_time' is no name"),
        (pa.schema([("", pa.int8())]), "'' is no name"),
        (pa.schema([("a", pa.list_(pa.int8()))]), "column a is list.*store it as bytes"),
        (pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]), "cannot be compared"),
        (pa.schema([("a", pa.null())]), "cannot be compared"),
        (pa.schema([("a", pa.string_view())]), "cannot be compared"),
        (pa.schema([("a", pa.binary(0))]), "cannot be compared or stored"),
        (pa.schema([("a", pa.decimal128(5, -1))]), r"column a is decimal128\(5, -1\), which cannot be"),
        (pa.schema([("a", pa.decimal256(5, 7))]), "or stored"),
    ],
)
def test_columns_that_cannot_be_compared_or_stored_are_refused(schema: pa.Schema, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        UpdateSchema(TimeKind.U64, schema)


def test_metadata_of_columns_is_left_out() -> None:
    """Another library's would make a type of its own of what is read, which is not the collection's."""
    uuid = {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}
    given = pa.schema([pa.field("id", pa.binary(16), metadata=uuid)], metadata={"pandas": "{}"})
    schema = UpdateSchema(TimeKind.U64, given)
    assert schema.data.equals(given)
    assert schema.arrow.metadata is None
    assert schema.arrow.field(0).metadata is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.string(), "column x has values that are no string: .*UTF8"),
        (pa.decimal128(3, 0), r"no decimal128\(3, 0\): "),
        (pa.time32("s"), r"no time32\[s\]: "),
    ],
)
def test_values_that_a_type_does_not_have_are_refused(kind: pa.DataType, words: str) -> None:
    offsets = [pa.py_buffer(np.array([0, 4], np.int32))] if kind == pa.string() else []
    wrong = pa.Array.from_buffers(kind, 1, [None, *offsets, pa.py_buffer(b"\xff" * 4 + b"\x0f" * 12)])
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", kind)]))
    numbers = [pa.array([0], pa.uint64()), pa.array([1], pa.int64())]
    with pytest.raises(InvalidError, match=words):
        schema.batch(pa.RecordBatch.from_arrays([wrong, *numbers], schema=schema.arrow))


def test_times_lie_within_the_bounds_of_an_append() -> None:
    bounds = Bounds(Frontier([(3,)]), Frontier([(5,)]), Frontier([(0,)]))
    check_within(BYTES.batch([(b"a", 3, 1), (b"b", 4, 1)]), BYTES, bounds)
    check_within(BYTES.empty(), BYTES, bounds)
    with pytest.raises(InvalidError, match=r"row 1 \(data=b'b', _time=2, _diff=1\): its time is before lower 3"):
        check_within(BYTES.batch([(b"a", 3, 1), (b"b", 2, 1)]), BYTES, bounds)
    with pytest.raises(InvalidError, match=r"row 0 \(.*_time=5.*\): its time is at or beyond upper 5"):
        check_within(BYTES.batch([(b"a", 5, 1)]), BYTES, bounds)
    closed = Bounds(Frontier([(3, 0)]), DONE, Frontier([(0, 0)]))
    with pytest.raises(InvalidError, match=r"_time=2, _time2=9.*before lower \(3,0\)"):
        check_within(PAIRS.batch([(b"a", (2, 9), 1)]), PAIRS, closed)


def test_errors_cut_long_values_and_show_dates() -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("at", pa.timestamp("ns")), ("text", pa.string())]))
    batch = schema.batch([((dt.datetime(2024, 1, 2), "x" * 500), 9, 1)])  # noqa: DTZ001 - a column without a zone
    with pytest.raises(InvalidError, match=r"at='2024-01-02.*text='x{70,}\.\.\., _time=9") as raised:
        check_within(batch, schema, Bounds(Frontier([(0,)]), Frontier([(1,)]), Frontier([(0,)])))
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.duration("s"), pa.timestamp("us", "Mars/City")], ids=str)
def test_errors_show_what_python_has_no_value_of(kind: pa.DataType) -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("at", kind)]))
    late = pa.array([2**62], pa.int64()).view(kind)
    batch = pa.RecordBatch.from_arrays([late, pa.array([9], pa.uint64()), pa.array([1])], schema=schema.arrow)
    assert row_text(batch, 0) == f"at={2**62}, _time=9, _diff=1"


def test_decimals_and_times_of_day_are_data() -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("price", pa.decimal128(9, 2)), ("at", pa.time64("us"))]))
    batch = schema.batch([((Decimal("1.50"), dt.time(3, 4)), 0, 1)])
    assert batch.column("price").to_pylist() == [Decimal("1.50")]
