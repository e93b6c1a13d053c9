"""Columns of collections as Spark's, filters, and options of `slate-collection`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, IsNull, LessThanOrEqual, StringContains
from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError
from slate_async.spark.collection_filters import condition_of
from slate_async.spark.collection_options import (
    CollectionRead,
    CollectionStream,
    CollectionWrite,
    check_read_or_stream,
    time_of,
)
from slate_async.spark.collection_types import RowsIn, RowsOut, rows_of

ROWS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int8(), -1, -1),
    (pa.uint8(), 255, 255),
    (pa.uint32(), 2**32 - 1, 2**32 - 1),
    (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float32(), 0.5, 0.5),
    (pa.bool_(), True, True),
    (pa.large_string(), "ü", "ü"),
    (pa.binary(2), b"\0\xff", b"\0\xff"),
    (pa.decimal128(9, 2), Decimal("1.25"), Decimal("1.25")),
    (pa.date32(), None, None),
]


def schema(**columns: pa.DataType) -> UpdateSchema:
    return UpdateSchema(TimeKind.U64, pa.schema(list(columns.items())))


@pytest.mark.parametrize(("kind", "stored", "read"), ROWS, ids=lambda value: str(value))
def test_values_go_to_spark_and_back(kind: pa.DataType, stored: Any, read: Any) -> None:
    updates = schema(a=kind)
    batch = pa.record_batch(
        [pa.array([stored], kind), pa.array([7], pa.uint64()), pa.array([-2])], schema=updates.arrow
    )
    rows = RowsOut(updates, rows_of(updates)).read(batch)
    assert rows.to_pylist() == [{"a": read, "_time": 7, "_diff": -2}]
    frame = StructType([field for field in rows_of(updates) if field.name != "_time"])
    assert RowsIn(updates, frame).updates(rows.drop_columns(["_time"]), 7).equals(batch)


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.duration("s"), pa.decimal256(60, 2)])
def test_a_column_that_spark_has_no_type_for_is_named(kind: pa.DataType) -> None:
    with pytest.raises(InvalidError, match=r"column a is .*, which Spark has no type for"):
        rows_of(schema(a=kind))


def test_nothing_is_rounded() -> None:
    updates = schema(a=pa.timestamp("ns", "UTC"))
    batch = pa.record_batch(
        [pa.array([1_001], pa.timestamp("ns", "UTC")), pa.array([0], pa.uint64()), pa.array([1])], schema=updates.arrow
    )
    with pytest.raises(InvalidError, match="column a has a value that timestamp"):
        RowsOut(updates, rows_of(updates)).read(batch)
    small = schema(a=pa.uint8())
    frame = StructType([StructField("a", rows_of(small)["a"].dataType)])
    with pytest.raises(InvalidError, match="column a has a value that uint8 cannot hold"):
        RowsIn(small, frame).updates(pa.record_batch([pa.array([256], pa.int16())], names=["a"]), 0)


@pytest.mark.parametrize("value", [0.1, 1e6])
def test_a_half_float_is_not_rounded(value: float) -> None:
    half = schema(a=pa.float16())
    rows = RowsIn(half, StructType([StructField("a", rows_of(half)["a"].dataType)]))
    fit = [0.5, None, float("nan"), float("-inf")]
    taken = rows.updates(pa.record_batch([pa.array(fit, pa.float32())], names=["a"]), 0)
    assert str(taken.column("a").to_pylist()) == str(fit)
    with pytest.raises(InvalidError, match="column a has a value that halffloat cannot hold"):
        rows.updates(pa.record_batch([pa.array([0.5, value], pa.float32())], names=["a"]), 0)


PLAIN = schema(a=pa.string(), b=pa.int64())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("a", StringType())], "no column b; the data have a string, b bigint"),
        ([("a", StringType()), ("b", IntegerType())], "column b is int, not bigint: cast it"),
        ([("a", StringType()), ("b", LongType()), ("c", LongType())], "column c is none of the collection"),
        ([("a", StringType()), ("b", LongType()), ("_time", LongType())], "column _time is given to rows"),
        (
            [("a", StringType()), ("b", LongType()), ("_diff", DoubleType())],
            "column _diff is double, and takes a whole",
        ),
    ],
)
def test_a_frame_of_other_columns_is_refused(fields: list[tuple[str, Any]], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        RowsIn(PLAIN, StructType([StructField(*field) for field in fields]))


def test_a_schema_may_leave_columns_out_and_may_not_change_them() -> None:
    batch = PLAIN.batch([(("x", 1), 3, 1)])
    assert RowsOut(PLAIN, StructType([StructField("b", LongType())])).read(batch).to_pylist() == [{"b": 1}]
    for field, words in (
        (StructField("c", LongType()), "no column c among"),
        (StructField("b", LongType(), nullable=False), "column b may have nulls: leave NOT NULL out"),
        (StructField("b", StringType()), "bigint"),
    ):
        with pytest.raises(InvalidError, match=words):
            RowsOut(PLAIN, StructType([field]))


KINDS = {
    "a": StringType(),
    "b": LongType(),
    "f": DoubleType(),
    "t": TimestampType(),
    "k": BinaryType(),
    "u": DecimalType(20, 0),
    "d": DecimalType(9, 2),
}


@pytest.mark.parametrize(
    ("filter_", "condition"),
    [
        (EqualTo(("a",), "x"), ("a", "==", "x")),
        (GreaterThan(("b",), 5), ("b", ">", 5)),
        (LessThanOrEqual(("k",), bytearray(b"x")), ("k", "<=", b"x")),
        (In(("b",), (1, None, 2)), ("b", "in", [1, 2])),
        (IsNull(("f",)), ("f", "is null")),
        (IsNotNull(("t",)), ("t", "is not null")),
        (GreaterThan(("f",), 5.0), None),
        (GreaterThan(("t",), 5), None),
        (GreaterThan(("_diff",), 0), None),
        (GreaterThan(("a", "b"), 0), None),
        (EqualTo(("a",), None), None),
        (StringContains(("a",), "x"), None),
        (EqualTo(("u",), Decimal(2**64 - 1)), ("u", "==", 2**64 - 1)),
        (In(("u",), (Decimal(1),)), ("u", "in", [1])),
        (EqualTo(("d",), Decimal("1.50")), ("d", "==", Decimal("1.50"))),
    ],
)
def test_which_filters_a_snapshot_applies(filter_: Filter, condition: Any) -> None:
    """To Spark NaN is greater than all, and times have zones: those filters are its own."""
    assert condition_of(filter_, {**KINDS, "_diff": LongType()}) == condition


PLACE = {"path": "/lake", "collection": "orders"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/lake"}, "option collection is missing"),
        ({"collection": "orders"}, "option path is missing"),
        ({**PLACE, "collection": "Orders"}, "no name of a collection"),
        ({**PLACE, "startKey": "a"}, "unknown option startKey"),
        ({**PLACE, "asOf": "1", "startAt": "now"}, "unknown option asOf; there are .* startAt"),
        ({**PLACE, "startat": "soon"}, 'option startAt=.soon.: a time, "since" or "now"'),
        ({**PLACE, "hold": "x"}, "the name of a hold and its beat"),
        ({**PLACE, "timeout": "-1"}, "a positive number of seconds"),
    ],
)
def test_options_that_cannot_be_meant_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        check_read_or_stream(options)


def test_options_of_reads_streams_and_writes() -> None:
    assert CollectionRead.of({**PLACE, "hold": "abc:4"}).hold == ("abc", 4)
    assert CollectionRead.of({**PLACE, "asof": "(3,0)"}).time(TimeKind.U64X2) == (3, 0)
    assert [CollectionStream.of({**PLACE, "startAt": text}).start for text in ("NOW", "since", "7")] == [
        "now",
        "since",
        7,
    ]
    check_read_or_stream({**PLACE, "startAt": "now"})
    assert CollectionWrite.of({**PLACE, "firstTime": "9"}).first_time == 9
    for text in ("-1", "9223372036854775808", "x"):
        with pytest.raises(InvalidError, match="option time="):
            CollectionWrite.of({**PLACE, "time": text})
    for text in ("done", "(1,2)", "x"):
        with pytest.raises(InvalidError, match=r"option asOf=.*: a time of this collection is a number, such as 120"):
            time_of(text, TimeKind.U64, "asOf")
    with pytest.raises(InvalidError, match=r"option asOf='3': a time of this collection is a pair, such as \(3,0\)"):
        time_of("3", TimeKind.U64X2, "asOf")
