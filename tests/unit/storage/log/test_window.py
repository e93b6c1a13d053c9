"""The flush window never spans more ids than a fence covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.storage.log.window import FlushWindow


def test_ids_resolve_in_any_order_and_end_moves_over_the_contiguous_part() -> None:
    window = FlushWindow(7, 3)
    assert [window.issue(), window.issue(), window.issue()] == [7, 8, 9]
    assert not window.has_room
    with pytest.raises(ValueError, match="in flight already"):
        window.issue()
    assert not window.resolve(9)
    assert not window.has_room  # 7 is unresolved: 10 would be the fourth id from it
    assert window.resolve(7)
    assert window.resolved_end == 7
    assert window.has_room
    assert window.in_flight == 1
    assert window.resolve(8)
    assert window.resolved_end == 9
    for wrong in (7, 9, 10):
        with pytest.raises(ValueError, match="not in flight"):
            window.resolve(wrong)


@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=60))
def test_never_wider_than_the_parallelism(parallelism: int, picks: list[int]) -> None:
    window = FlushWindow(1, parallelism)
    open_ids: list[int] = []
    for pick in picks:
        if window.has_room and pick % 2 == 0:
            open_ids.append(window.issue())
        elif open_ids:
            window.resolve(open_ids.pop(pick % len(open_ids)))
        lowest = min(open_ids, default=window.next_id)
        assert window.next_id - lowest <= parallelism
        assert window.resolved_end == lowest - 1
        assert window.in_flight == len(open_ids)
