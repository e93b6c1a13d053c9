"""Updates in slices, and put together again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.core import slices
from slate_async.collections.core.slices import one_batch, slices_of, slices_within
from slate_async.errors import InternalError
from tests.support.collection_bytes import BYTES


def batch(lengths: list[int]) -> pa.RecordBatch:
    rows = len(lengths)
    columns = [pa.array([b"x" * length for length in lengths], pa.binary())]
    columns += [pa.array(np.zeros(rows, np.uint64)), pa.array(np.ones(rows, np.int64))]
    return pa.RecordBatch.from_arrays(columns, schema=BYTES.arrow)


@pytest.mark.parametrize(
    ("lengths", "counts"),
    [
        ([], []),
        ([5], [1]),
        ([80] * 5, [5]),
        ([80] * 10, [5, 5]),
        ([1] * 20, [10, 10]),
        ([0] * 9 + [400] * 3, [9, 1, 1, 1]),  # long rows that lie together
        ([400] * 3 + [0] * 9, [1, 1, 5, 5]),
        ([9000, 1, 9000], [1, 1, 1]),
    ],
)
def test_slices_have_so_many_rows_and_bytes_at_most(lengths: list[int], counts: list[int]) -> None:
    whole = batch(lengths)
    found = list(slices_within(whole, 10, 500 + 4))
    assert [piece.num_rows for piece in found] == counts
    assert all(piece.nbytes <= 504 or piece.num_rows == 1 for piece in found)
    assert one_batch(found, BYTES.arrow).equals(whole)
    assert one_batch(list(slices_of(whole, 3)), BYTES.arrow).equals(whole)


def test_what_does_not_fit_one_array_is_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow leaves several chunks where a column has more than 2 GiB; the first one is not all."""
    two = pa.Table.from_batches([batch([1]), batch([2])])
    monkeypatch.setattr(slices, "combined", lambda table: two.to_batches())
    with pytest.raises(InternalError, match=r"2 updates of .* bytes are too many for one batch"):
        one_batch(two, BYTES.arrow)
