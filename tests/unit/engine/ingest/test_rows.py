"""Record batches become rows: what is taken, what is refused, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.engine.ingest.rows import Duplicates, RowChecker
from slate_async.errors import InvalidError
from slate_async.types import DELETE, MAX_KEY_BYTES, PUT


def taken(*batches: dict[str, Any], duplicates: Duplicates = "error") -> Columns:
    checker = RowChecker(77, duplicates)
    parts = [part for batch in batches for part in checker.take(pa.record_batch(batch))]
    return concat([*parts, *checker.finish()])


def pairs(rows: Columns) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True))


def test_keys_and_values_come_as_they_are() -> None:
    rows = taken({"key": [b"a", b"b"], "value": [b"1", b""]}, {"key": [b"c"], "value": [b"\0"]})
    assert pairs(rows) == [(b"a", b"1"), (b"b", b""), (b"c", b"\0")]
    assert rows.kinds.tolist() == [PUT] * 3
    assert rows.create_ms.tolist() == [77] * 3


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string(), pa.binary(1)])
def test_other_columns_of_bytes_are_taken(kind: pa.DataType) -> None:
    batch = {"key": pa.array(["a", "b"]).cast(pa.binary()).cast(kind), "value": pa.array(["x", "y"])}
    assert pairs(taken(batch)) == [(b"a", b"x"), (b"b", b"y")]


def test_columns_of_one_width_may_begin_anywhere() -> None:
    column = pa.array([b"aa", b"bb", b"cc", b"dd"], pa.binary(2))
    assert pairs(taken({"key": column[1:3], "value": column[2:4]})) == [(b"bb", b"cc"), (b"cc", b"dd")]


def test_deletes_have_no_value() -> None:
    rows = taken({"key": ["a", "b", "c"], "value": ["x", None, "y"], "op": ["delete", "delete", "put"]})
    assert pairs(rows) == [(b"a", b""), (b"b", b""), (b"c", b"y")]
    assert rows.kinds.tolist() == [DELETE, DELETE, PUT]


def test_times_of_expiry() -> None:
    moment = datetime(2030, 1, 1, 0, 0, 0, 5_999, tzinfo=UTC)
    stamps = pa.array([moment, None], pa.timestamp("us", "UTC"))
    rows = taken(
        {"key": ["a", "b"], "value": ["", ""], "expire_time": stamps},
        {"key": ["c"], "value": [""], "expire_time": stamps[1:]},
        {"key": ["d"], "value": [""], "expire_time": pa.array([5], pa.timestamp("ms", "UTC"))},
    )
    assert rows.expire_ms is not None
    assert rows.expire_ms.tolist() == [1_893_456_000_005, NO_EXPIRY, NO_EXPIRY, 5]


def test_a_delete_never_expires() -> None:
    rows = taken({"key": ["a", "b"], "value": ["", ""], "op": ["delete", "put"], "expire_time": pa.array([3, 4])})
    assert rows.expire_ms is not None
    assert rows.expire_ms.tolist() == [NO_EXPIRY, 4]


def test_a_column_is_there_once() -> None:
    twice = pa.record_batch([pa.array(["a"]), pa.array(["b"]), pa.array([""])], names=["key", "key", "value"])
    with pytest.raises(InvalidError, match="takes the columns"):
        RowChecker(0, "error").take(twice)


def test_milliseconds_are_times_of_expiry_too() -> None:
    rows = taken({"key": ["a"], "value": [""], "expire_time": pa.array([12], pa.int64())})
    assert rows.expire_ms is not None
    assert rows.expire_ms.tolist() == [12]


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([{"key": ["b", "a"], "value": ["", ""]}], r"row 1: key b'a' comes after b'b'; sort"),
        ([{"key": ["b"], "value": [""]}, {"key": ["a"], "value": [""]}], r"row 1: key b'a' comes after b'b'; sort"),
        (
            [{"key": ["a", "a"], "value": ["", ""]}],
            r"row 1: .*distinct.*in Spark .* option orderColumn .*order=.*duplicates=",
        ),
        ([{"key": ["a"], "value": [""]}, {"key": ["a"], "value": [""]}], r"row 1: .*distinct"),
        (
            [{"key": ["a"], "value": [""]}, {"key": ["b", ""], "value": ["", ""]}],
            r"row 2: a key has 1 to .*; its value is b'' ",
        ),
        ([{"key": ["a", None], "value": ["", "x" * 99]}], r"row 1: its key is null; its value is b'x{64}'… "),
        ([{"key": [None], "value": pa.nulls(1, pa.binary())}], r"row 0: its key is null \("),
        ([{"key": ["a" * (MAX_KEY_BYTES + 1)], "value": [""]}], rf"row 0, key b'a{{64}}'…: .*not {MAX_KEY_BYTES + 1}"),
        ([{"key": ["a"], "value": pa.nulls(1, pa.binary())}], r"row 0, key b'a': its value is null.*rows count from 0"),
        ([{"key": ["a"], "value": [""], "op": ["merge"]}], r"row 0, key b'a': op is 'merge'"),
        ([{"key": ["a"], "value": [""], "expire_time": pa.array([-1])}], r"row 0, key b'a': it expires"),
        ([{"key": ["a"], "value": [""], "expire_time": [1.5]}], "a timestamp, or milliseconds"),
        ([{"key": ["a"]}], "takes the columns"),
        ([{"key": ["a"], "value": [""], "ttl": [1]}], "takes the columns"),
        ([{"key": [[1]], "value": [""]}], "column key is not binary"),
        ([{"key": ["a"], "value": [""], "op": [b"\xff"]}], "column op is not text"),
        ([{"key": ["a"], "value": [""], "op": [["put"]]}], "column op is not text"),
        (
            [{"key": ["a"], "value": [""], "expire_time": pa.array([2**64 - 1], pa.uint64())}],
            "column expire_time is not a time",
        ),
        ([{"key": ["a"], "value": [""], "expire_time": pa.array([2**62], pa.timestamp("s"))}], "expire_time is not a"),
    ],
)
def test_what_cannot_be_taken_is_named(batches: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        taken(*batches)


@pytest.mark.parametrize("cut", range(1, 6))
def test_the_last_of_equal_keys_counts_wherever_batches_end(cut: int) -> None:
    keys, values = ["a", "a", "b", "c", "c", "c"], ["1", "2", "3", "4", "5", "6"]
    rows = taken(
        {"key": keys[:cut], "value": values[:cut]}, {"key": keys[cut:], "value": values[cut:]}, duplicates="last"
    )
    assert pairs(rows) == [(b"a", b"2"), (b"b", b"3"), (b"c", b"6")]
