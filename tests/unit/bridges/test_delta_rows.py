"""What deltas change in a database, and what no database can have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges.delta_rows import KeyChange, check_applies, check_columns, key_changes
from slate_async.bridges.envelopes import relay_schema

Row = tuple[bytes, bytes | None, int]


def updates(*rows: Row) -> pa.Table:
    keys, values, diffs = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.table(columns | {"_time": pa.array(range(len(rows)), pa.uint64()), "_diff": pa.array(diffs, pa.int64())})


def change(key: bytes, old: bytes | None, new: bytes | None) -> KeyChange:
    return KeyChange(key, old, None, new, None)


def test_what_comes_and_goes_within_a_delta_is_no_change() -> None:
    rows: list[Row] = [(b"a", b"1", 1), (b"a", b"1", -1), (b"a", b"2", 1), (b"b", b"1", -1), (b"b", b"1", 1)]
    assert key_changes(updates(*rows), "orders") == [change(b"a", None, b"2")]
    assert key_changes(updates(), "orders") == []


def test_keys_come_go_and_change() -> None:
    rows: list[Row] = [(b"c", b"3", -1), (b"b", b"2", -1), (b"b", b"22", 1), (b"a", b"1", 1)]
    assert key_changes(updates(*rows), "orders") == [
        change(b"a", None, b"1"),
        change(b"b", b"2", b"22"),
        change(b"c", b"3", None),
    ]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(b"k", b"1", 2)], r"the key b'k' has the value b'1' by \+2"),
        ([(b"k", b"1", -3)], r"the key b'k' has the value b'1' by -3"),
        ([(b"a", b"1", 1), (b"k", b"1", 1), (b"k", b"2", 1)], r"the key b'k' has the value b'[12]' by \+1"),
        ([(b"k", b"1", -1), (b"k", b"2", -1)], r"the key b'k' has the value b'[12]' by -1"),
        ([(b"k", None, 1)], "holds a row without a key or a value: b'k', None"),
    ],
)
def test_what_no_database_can_have_names_the_key(rows: list[Row], why: str) -> None:
    with pytest.raises(slate.InvalidError, match=f"orders .*{why}"):
        key_changes(updates(*rows), "orders")


def test_a_delta_applies_to_what_it_begins_with() -> None:
    changes = [change(b"a", None, b"1"), change(b"b", b"2", None)]
    check_applies(changes, [None, b"2"], "orders", 0)
    with pytest.raises(slate.InvalidError, match="adds the key b'a', which the database has already"):
        check_applies(changes, [b"1", b"2"], "orders", 0)
    with pytest.raises(slate.InvalidError, match="takes away b'2' from the key b'b', but the database has nothing"):
        check_applies(changes, [None, None], "orders", 0)
    with pytest.raises(slate.InvalidError, match="takes away b'2' from the key b'b', but the database has b'3'"):
        check_applies(changes, [None, b"3"], "orders", 0)


def test_what_has_expired_may_have_gone() -> None:
    expired = [KeyChange(b"a", b"1", 500, None, None)]
    check_applies(expired, [b"1"], "orders", 400)
    check_applies(expired, [None], "orders", 500)
    with pytest.raises(slate.InvalidError, match="has nothing"):
        check_applies(expired, [None], "orders", 499)


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (relay_schema("upsert"), True),
        (pa.schema([("value", pa.binary()), ("key", pa.binary())]), True),
        (relay_schema("log"), False),
        (pa.schema([("key", pa.binary())]), False),
        (pa.schema([("key", pa.binary()), ("value", pa.string())]), False),
        (pa.schema([("key", pa.binary()), ("value", pa.binary()), ("expire_time", pa.int64())]), False),
    ],
)
def test_columns_are_keys_and_values(data: Any, fits: bool) -> None:
    if fits:
        check_columns(data, "orders")
        return
    with pytest.raises(slate.InvalidError, match=r"key and value \(binary\).*orders has"):
        check_columns(data, "orders")
