"""A merge: what is wanted, what is given out, and what waits."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from slate_async.collections.core.errors import SumError
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.merging import BoundedMerge, merge
from slate_async.collections.core.slices import slices_of
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError, InternalError

U64 = UpdateSchema.of_bytes(TimeKind.U64)
PAIRS = UpdateSchema.of_bytes(TimeKind.U64X2)
ZERO = Frontier([(0,)])


def rows(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def test_rows_before_the_smallest_last_key_are_given_out() -> None:
    merging = BoundedMerge(U64, ZERO, ["left", "right"])
    assert merging.wanted == [0, 1]
    merging.feed(0, U64.batch([(b"a", 1, 1), (b"c", 1, 1), (b"d", 1, 1)]))
    assert merging.wanted == [1]
    merging.feed(1, U64.batch([(b"b", 1, 1), (b"c", 1, 2), (b"z", 1, 1)]))
    assert rows(merging.take()) == [(b"a", 1, 1), (b"b", 1, 1), (b"c", 1, 3)]
    assert merging.wanted == [0]
    merging.end(0)
    assert merging.wanted == [1]
    merging.feed(1, U64.batch([(b"z", 2, 1)]))
    assert rows(merging.take()) == [(b"d", 1, 1), (b"z", 1, 1)]
    merging.end(1)
    assert not merging.is_done
    assert rows(merging.take()) == [(b"z", 2, 1)]
    assert merging.is_done


def test_rows_of_the_last_key_wait_for_what_may_come() -> None:
    first = U64.batch([(b"a", 1, 1), (b"b", 2, 1)])
    second = U64.batch([(b"b", 3, 1), (b"b", 4, -2), (b"c", 0, 1)])
    given = list(merge([[first, second]], U64, Frontier([(7,)])))
    assert [rows(batch) for batch in given] == [[(b"a", 7, 1)], [(b"c", 7, 1)]]


def test_nothing_is_given_out_before_what_is_wanted_was_read() -> None:
    merging = BoundedMerge(U64, ZERO, ["left"])
    with pytest.raises(InternalError, match="before the sources"):
        merging.take()
    merging.end(0)
    with pytest.raises(InternalError, match="left of a merge goes on after its end"):
        merging.feed(0, U64.batch([(b"a", 1, 1)]))


@pytest.mark.parametrize(
    "slices",
    [
        [[(b"b", 1, 1), (b"a", 1, 1)]],
        [[(b"a", 2, 1), (b"a", 1, 1)]],
        [[(b"a", 1, 1)], [(b"a", 1, 1)]],
        [[(b"b", 1, 1), (b"c", 1, 1)], [(b"a", 1, 1)]],
    ],
)
def test_a_source_out_of_order_is_damaged(slices: list[Any]) -> None:
    with pytest.raises(CorruptionError, match="batch_7 at byte 0: rows are not in the order of data and time"):
        list(merge([map(U64.batch, slices)], U64, ZERO, ["batch_7"]))


def test_a_sum_that_leaves_int64_is_kept_or_refused() -> None:
    sources = [[U64.batch([(b"a", 1, 2**63 - 1)])], [U64.batch([(b"a", 2, 1)])]]
    with pytest.raises(SumError, match="does not fit int64: data=b'a', _time=5 add up to 9223372036854775808"):
        list(merge(sources, U64, Frontier([(5,)]), keep=False))
    assert len(list(merge(sources, U64, ZERO, keep=False))) == 1
    [kept] = merge(sources, U64, Frontier([(5,)]))
    assert rows(kept) == [(b"a", 5, 2**63 - 1), (b"a", 5, 1)]
    apart = [[kept.slice(0, 1), kept.slice(1)], [U64.batch([(b"a", 7, -2)])]]
    [merged] = merge(apart, U64, Frontier([(9,)]), keep=False)
    assert rows(merged) == [(b"a", 9, 2**63 - 2)]


def test_sums_that_leave_int64_on_the_way_only_are_right_in_the_end() -> None:
    slices = [[(b"a", 1, 2**62), (b"a", 2, 2**62)], [(b"a", 3, 2**62), (b"a", 4, -(2**62))], [(b"a", 5, -(2**62))]]
    given = list(merge([map(U64.batch, slices)], U64, Frontier([(9,)])))
    assert [rows(batch) for batch in given] == [[(b"a", 9, 2**62)]]


@pytest.mark.parametrize("since", [0, 10, 10**6])
def test_data_with_more_times_than_fit_are_merged_in_little_memory(since: int) -> None:
    """Two sources, one data, 20,000 times each; no more than a few slices of 100 rows wait."""
    count, size = 20_000, 100
    batches = [U64.batch([(b"x", 2 * n + odd, 1) for n in range(count)]) for odd in (0, 1)]
    merging = BoundedMerge(U64, Frontier([(since,)]), ["even", "odd"])
    slices = [slices_of(batch, size) for batch in batches]
    most, given = 0, []
    while not merging.is_done:
        for number in merging.wanted:
            piece = next(slices[number], None)
            merging.end(number) if piece is None else merging.feed(number, piece)
        most = max(most, merging.buffered_bytes)
        if not merging.wanted:
            given += rows(merging.take())
    assert most < 5 * batches[0].slice(0, size).nbytes
    expected = [(b"x", since, since + 1), *((b"x", time, 1) for time in range(since + 1, 2 * count))]
    assert given == (expected if since < count else [(b"x", since, 2 * count)])


def test_pairs_whose_order_changes_by_advancing_are_merged() -> None:
    batch = PAIRS.batch([(b"a", (0, 5), 1), (b"a", (1, 0), 1), (b"a", (1, 5), 1), (b"b", (0, 0), 1)])
    given = list(merge([slices_of(batch, 1)], PAIRS, Frontier([(1, 0)])))
    assert [row for piece in given for row in rows(piece)] == [(b"a", 1, 0, 1), (b"a", 1, 5, 2), (b"b", 1, 0, 1)]


def test_merging_nothing_gives_nothing() -> None:
    assert list(merge([], U64, DONE)) == []
    assert list(merge([[], [U64.empty()]], U64, DONE)) == []
