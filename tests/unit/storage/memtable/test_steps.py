"""Steps against a plain list of the same column."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slate_async.storage.memtable.steps import Steps

columns = st.lists(st.sampled_from([0, 0, 0, 1, 5, 2**40]), min_size=1, max_size=30).map(
    lambda rises: [sum(rises[: row + 1]) - 3 for row in range(len(rises))]
)


@given(columns, st.integers(0, 30))
def test_equal_to_the_list(column: list[int], cut: int) -> None:
    """The rows before ``cut`` are added one by one, those after it together."""
    steps, rows = Steps(), len(column)
    for row, value in enumerate(column[:cut]):
        steps.add(row, value)
    if cut < rows:
        steps.extend(cut, np.array(column[cut:], np.int64))
    assert steps.last == column[-1]
    assert [steps.at(row) for row in range(rows)] == column
    some = np.array([*range(rows - 1, -1, -2), 0], np.int64)
    assert steps.of(some).tolist() == [column[row] for row in some.tolist()]
    for value in {*column, *(value - 1 for value in column), *(value + 7 for value in column)}:
        above = [row for row in range(rows) if column[row] > value]
        assert steps.first_row_above(value, rows) == (above[0] if above else rows)
        ahead = [row for row in range(rows) if column[row] + row > value]
        assert steps.first_row_ahead_of(value, rows) == (ahead[0] if ahead else rows)


def test_rows_in_common_cost_nothing() -> None:
    steps = Steps()
    for row in range(1000):
        steps.add(row, 7 + row // 500)
    assert len(steps._rows) == 2
