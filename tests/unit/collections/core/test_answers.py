"""What a snapshot sums, and what a listener gives when."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from slate_async.collections.core.answers import listened_rows, snapshot_rows
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.collections.core.updates import UpdateSchema

U64 = UpdateSchema.of_bytes(TimeKind.U64)
PAIRS = UpdateSchema.of_bytes(TimeKind.U64X2)
ROWS = U64.batch([(b"a", 1, 1), (b"b", 3, 1), (b"c", 4, 1), (b"d", TIME_END - 1, 1)])
MIXED = PAIRS.batch([(b"a", (1, 1), 1), (b"b", (2, 2), 1), (b"c", (0, 9), 1), (b"d", (3, 3), 1)])


def rows(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(column.to_pylist() for column in batch.columns[:-1]), strict=True))


def test_a_snapshot_sums_what_is_at_or_before_it() -> None:
    assert rows(snapshot_rows(ROWS, U64, (3,))) == [(b"a", 1), (b"b", 3)]
    assert rows(snapshot_rows(ROWS, U64, (0,))) == []
    assert snapshot_rows(ROWS, U64, (TIME_END - 1,)) is ROWS
    assert rows(snapshot_rows(MIXED, PAIRS, (2, 2))) == [(b"a", 1, 1), (b"b", 2, 2)]


def test_a_listener_gives_what_the_snapshot_did_not() -> None:
    assert rows(listened_rows(ROWS, U64, Frontier([(0,)]), (3,))) == [(b"c", 4), (b"d", TIME_END - 1)]
    assert rows(listened_rows(ROWS, U64, Frontier([(5,)]), (3,))) == [(b"d", TIME_END - 1)]
    assert rows(listened_rows(ROWS, U64, DONE, (3,))) == []


def test_updates_beside_as_of_are_given_where_both_have_happened() -> None:
    assert rows(listened_rows(MIXED, PAIRS, Frontier([(0, 0)]), (2, 2))) == [(b"c", 2, 9), (b"d", 3, 3)]


def test_after_a_restart_times_are_as_they_were_written() -> None:
    assert listened_rows(ROWS, U64, Frontier([(0,)]), None) is ROWS
    assert rows(listened_rows(MIXED, PAIRS, Frontier([(0, 3), (3, 0)]), None)) == [(b"c", 0, 9), (b"d", 3, 3)]
