"""`slate_async.collections.controller.output`: what is counted of a batch on its way."""

from __future__ import annotations

import numpy as np
import pytest

from slate_async.collections.controller import output


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize("rows", [0, 1, 500])
def test_each_time_is_counted_once(coordinates: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    times = tuple(rng.integers(0, 9, rows).astype(np.uint64) for _ in range(coordinates))
    found = output._distinct(times)
    listed = list(zip(*(column.tolist() for column in found), strict=True))
    assert len(listed) == len(set(listed))
    assert set(listed) == set(zip(*(column.tolist() for column in times), strict=True))


def test_times_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST_TIMES", 7)
    column = np.arange(20, dtype=np.uint64)
    assert [len(output._distinct(times)[0]) for times in ((column,), (column, column))] == [7, 7]
