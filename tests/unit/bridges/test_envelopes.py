"""What rows of a feed become, beside a dict that does the same key by key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slate_async as slate
from slate_async.bridges.contents import ROW_BYTES, Contents
from slate_async.bridges.envelopes import LogEnvelope, UpsertEnvelope, relay_schema
from slate_async.engine.changes.change import CHANGE_SCHEMA

Op = tuple[bytes, bytes | None, int | None]
"""Key; value, or none for a delete; expiry."""
OPS = st.tuples(
    st.sampled_from([b"", b"a", b"b", b"cc"]), st.none() | st.binary(max_size=3), st.none() | st.integers(0, 3)
)


def rows_of(ops: list[Op], first: int) -> pa.RecordBatch:
    """As a feed gives them, numbered from ``first`` on."""
    rows = [
        {
            "op": "delete" if value is None else "put",
            "key": key,
            "value": value,
            "seq": first + number,
            "create_time": first + number,
            "expire_time": None if value is None else expiry,
        }
        for number, (key, value, expiry) in enumerate(ops)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGE_SCHEMA)


def added(sums: dict[Any, int], updates: pa.RecordBatch, until: int) -> dict[Any, int]:
    """``sums`` with the updates before ``until``."""
    for *data, time, diff in zip(*(column.to_pylist() for column in updates.columns), strict=True):
        if time < until:
            sums[tuple(data)] = sums.get(tuple(data), 0) + diff
    return {data: diff for data, diff in sums.items() if diff}


def ms(moment: int | None) -> Any:
    return pa.scalar(moment, pa.timestamp("ms", "UTC")).as_py()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(OPS, max_size=12), max_size=4))
def test_upserts_are_the_rows_that_are_there_after_each_change(batches: list[list[Op]]) -> None:
    envelope, first = UpsertEnvelope(Contents(1 << 20, "orders")), 1
    model: dict[bytes, tuple[bytes, Any]] = {}
    updates: list[pa.RecordBatch] = []
    expected = {}
    for ops in batches:
        updates.append(envelope.updates(rows_of(ops, first), 0))
        for key, value, expiry in ops:
            model.pop(key, None)
            if value is not None:
                model[key] = (value, ms(expiry))
            expected[first] = {(key, *row): 1 for key, row in model.items()}
            first += 1
    for time, contents in expected.items():
        sums: dict[Any, int] = {}
        for batch in updates:
            sums = added(sums, batch, time + 1)
        assert sums == contents
    assert envelope.nbytes == sum(len(key) + len(value) + ROW_BYTES for key, (value, _) in model.items())


def test_a_log_has_every_change_once() -> None:
    ops: list[Op] = [(b"a", b"1", None), (b"a", None, None), (b"a", b"1", 7)]
    updates = LogEnvelope().updates(rows_of(ops, 4), 0)
    assert updates.schema.names == [*relay_schema("log").names, "_time", "_diff"]
    assert added({}, updates, 100) == {
        ("put", b"a", b"1", ms(4), None): 1,
        ("delete", b"a", None, ms(5), None): 1,
        ("put", b"a", b"1", ms(6), ms(7)): 1,
    }
    assert updates.column("_time").to_pylist() == [4, 5, 6]


def test_rows_of_a_snapshot_are_there_from_its_number_on() -> None:
    ops: list[Op] = [(b"a", b"1", None), (b"b", b"2", None)]
    upserts = UpsertEnvelope(Contents(1 << 20, "orders")).updates(rows_of(ops, 4), 9)
    assert upserts.column("_time").to_pylist() == [9, 9]
    assert LogEnvelope().updates(rows_of(ops, 4), 9).column("_time").to_pylist() == [4, 5]


def snapshot_of(*rows: tuple[bytes, bytes, int]) -> pa.RecordBatch:
    keys, values, diffs = zip(*rows, strict=True)
    columns = {
        "key": keys,
        "value": values,
        "expire_time": [None] * len(rows),
        "_time": [3] * len(rows),
        "_diff": diffs,
    }
    kinds = [pa.binary(), pa.binary(), pa.timestamp("ms", "UTC"), pa.uint64(), pa.int64()]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns.values(), kinds, strict=True)], names=list(columns)
    )


def test_contents_are_what_the_collection_has() -> None:
    contents = Contents(1 << 20, "orders")
    contents.load(snapshot_of((b"a", b"1", 1), (b"b", b"2", 1)))
    updates = UpsertEnvelope(contents).updates(rows_of([(b"b", None, None), (b"c", None, None)], 5), 0)
    assert updates.drop_columns(["expire_time"]).to_pylist() == [{"key": b"b", "value": b"2", "_time": 5, "_diff": -1}]


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (snapshot_of((b"a", b"1", 1), (b"b", b"2", 2)), "the key b'b' 2 times"),
        (snapshot_of((b"a", b"1", -1)), "the key b'a' -1 times"),
        (snapshot_of((b"k", b"1", 1), (b"k", b"2", 1)), "two values of one key, among those from b'k' on"),
    ],
)
def test_what_no_relay_has_written_is_refused(snapshot: pa.RecordBatch, why: str) -> None:
    with pytest.raises(slate.InvalidError, match=f"orders holds .*{why}"):
        Contents(1 << 20, "orders").load(snapshot)


def test_contents_are_bounded() -> None:
    contents = Contents(2 * (ROW_BYTES + 3), "orders")
    contents.load(snapshot_of((b"a", b"11", 1), (b"b", b"22", 1)))
    assert contents.nbytes == 2 * (ROW_BYTES + 3)
    with pytest.raises(slate.InvalidError, match=r"orders keeps 3 keys .* more than state_bytes=506.*envelope='log'"):
        UpsertEnvelope(contents).updates(rows_of([(b"c", b"", None)], 5), 0)


def test_there_are_two_envelopes() -> None:
    with pytest.raises(slate.InvalidError, match="'log' or 'upsert', not 'delta'"):
        relay_schema("delta")  # type: ignore[arg-type]
