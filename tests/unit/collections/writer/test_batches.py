"""`slate_async.collections.writer.batches`: what an append refuses and cuts."""

from __future__ import annotations

import pytest

from slate_async.collections.core.frontier import DONE
from slate_async.collections.writer.batches import Batch, bounds_of, checked, sum_of_diffs
from slate_async.errors import InvalidError
from tests.support.collection_bytes import BYTES, TOKEN, UPDATES, byte_updates, frontier, many


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(b"a", 2, 1)], "row 0 .*_time=2.*its time is before lower 3"),
        ([(b"a", 3, 1), (b"a", 10, 1)], "row 1 .*its time is at or beyond upper 10"),
        ([(b"a", 2**63, 1)], "row 0"),
        ([(b"a", 3, 2**63)], "row 0"),
        ([(7, 3, 1)], "row 0|data"),
        ([(b"a", 3, 2**62), (b"a", 3, 2**62)], "does not fit int64"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(rows: list[tuple[bytes, int, int]], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        checked(rows, BYTES, bounds_of(3, 10, BYTES))


def test_large_differences_that_do_not_meet_are_taken() -> None:
    rows = byte_updates((b"a", 3, 2**62), (b"b", 3, 2**62), (b"a", 4, 2**62))
    assert checked(rows, BYTES, bounds_of(3, DONE, BYTES)).equals(rows)
    assert sum_of_diffs(rows) == 3 * 2**62
    assert sum_of_diffs(byte_updates((b"a", 3, -(2**63)), (b"b", 3, -1))) == -(2**63) - 1
    assert sum_of_diffs(BYTES.empty()) == 0


def test_a_lower_beyond_the_upper_is_refused() -> None:
    with pytest.raises(InvalidError, match="lower 10 is not at or below upper 3"):
        bounds_of(10, 3, BYTES)


def test_a_batch_is_cut_at_coverage() -> None:
    bounds = bounds_of(0, 7, BYTES)
    batch = Batch(bounds, TOKEN, 70, 70, many(70))
    assert batch.beyond(frontier(0), BYTES) is batch
    cut = batch.beyond(frontier(5), BYTES)
    assert (cut.bounds, cut.rows, cut.diff_sum) == (bounds_of(5, 7, BYTES), 20, 20)
    assert cut.description("relay-a").rows == 20
    in_parts = Batch(bounds, TOKEN, 70, 70, None)
    assert in_parts.beyond(frontier(5), BYTES) is in_parts


def test_what_is_known_is_as_it_was() -> None:
    assert checked(UPDATES, BYTES, bounds_of(3, 10, BYTES)).equals(UPDATES)
