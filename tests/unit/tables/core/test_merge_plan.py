"""Which blocks are merged, by cases; sizes are of a target of 100."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.tables.core.chain import BLOCK
from slate_async.tables.core.merge_plan import MAX_INPUTS, dead_rows, merge_plan, unsure
from slate_async.tables.core.row_ids import set_of

TARGET = 100


def blocks(sizes: list[int], bounds: list[tuple[int | None, int | None]] | None = None) -> pa.Table:
    """Of ten rows each."""
    rows = [
        {
            "key": str(at),
            "first_row": at * 10,
            "last_row": at * 10 + 9,
            "carried": at % 2 == 1,
            "rows": 10,
            "size": size,
        }
        | {"footer_size": 1, "footer_hash": bytes(16), "chunk_sums": b"", "schema_id": 0}
        for at, size in enumerate(sizes)
    ]
    made = pa.Table.from_pylist(rows, schema=BLOCK)
    for number, name in enumerate(("low.1", "high.1")):
        if bounds is not None:
            made = made.append_column(name, pa.array([pair[number] for pair in bounds], pa.int64()))
    return made


CASES: list[tuple[str, list[int], dict[int, int], list[list[int]]]] = [
    ("nothing", [], {}, []),
    ("one small block", [1], {}, []),
    ("two of one size", [1, 1], {}, [[0, 1]]),
    ("large ones stay", [100, 99, 51], {}, []),
    ("smallest first", [30, 4, 5, 30, 3], {}, [[4, 1, 2, 0, 3]]),
    ("a large one does not join small ones", [40, 1, 1], {}, [[1, 2]]),
    ("but those that are half as large", [40, 10, 10], {}, [[1, 2, 0]]),
    ("or make it large enough", [45, 6, 1], {}, [[2, 1, 0]]),
    ("groups of the target", [40, 40, 40, 40, 40], {}, [[0, 1], [2, 3]]),
    ("a fifth deleted is no reason", [100], {0: 2}, []),
    ("more than a fifth is", [100], {0: 3}, [[0]]),
    ("of each block by itself", [100, 100, 100], {0: 3, 2: 9}, [[2, 0]]),
    ("all rows deleted", [100, 50], {0: 10}, [[0]]),
]


@pytest.mark.parametrize(("name", "sizes", "deleted", "groups"), CASES, ids=lambda value: str(value)[:30])
def test_cases(name: str, sizes: list[int], deleted: dict[int, int], groups: list[list[int]]) -> None:
    dead = np.array([deleted.get(at, 0) for at in range(len(sizes))], np.int64)
    assert merge_plan(blocks(sizes), dead, target_bytes=TARGET) == groups


SORTED: list[tuple[str, list[int], list[tuple[int | None, int | None]], list[list[int]]]] = [
    ("large ones that overlap", [50, 50], [(0, 5), (4, 9)], [[0, 1]]),
    ("that touch", [50, 50], [(0, 5), (5, 9)], []),
    ("neighbours by value", [30, 30, 30, 30], [(20, 29), (0, 9), (30, 39), (10, 19)], [[1, 3, 0], [2]]),
    ("one within another", [60, 30], [(0, 9), (3, 4)], [[0, 1]]),
    ("too large together", [60, 60], [(0, 9), (3, 4)], []),
    ("bounds that are not known", [60, 60], [(None, None), (3, 4)], []),
    ("no bounds at all", [60, 60], [(None, None), (None, None)], []),
]


@pytest.mark.parametrize(("name", "sizes", "bounds", "groups"), SORTED, ids=lambda value: str(value)[:30])
def test_cases_of_sorted_tables(
    name: str, sizes: list[int], bounds: list[tuple[int | None, int | None]], groups: list[list[int]]
) -> None:
    dead = np.zeros(len(sizes), np.int64)
    found = merge_plan(blocks(sizes, bounds), dead, target_bytes=TARGET, sort_by=1)
    assert found == [group for group in groups if len(group) > 1]


def test_a_group_has_at_most_so_many_blocks() -> None:
    sizes = [1] * (MAX_INPUTS + 5)
    groups = merge_plan(blocks(sizes), np.zeros(len(sizes), np.int64), target_bytes=10**6)
    assert sorted(map(len, groups)) == [5, MAX_INPUTS]


def test_deleted_rows_are_counted_by_ranges() -> None:
    table = blocks([1, 1, 1])
    dead = dead_rows(table, set_of([0, 9, 10, 11, 12, 25]))
    assert dead.tolist() == [2, 3, 1]
    assert unsure(table, dead) == [1]


@given(
    st.lists(
        st.tuples(st.integers(1, 120), st.integers(0, 10), st.integers(0, 20), st.integers(0, 20)),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
def test_plans_come_to_an_end(drawn: list[tuple[int, int, int, int]], is_sorted: bool) -> None:
    """Each group is of blocks that no other one has, fits the target, and leaves fewer blocks or fewer deleted rows."""
    now = [(size, dead, min(a, b), max(a, b)) for size, dead, a, b in drawn]
    for _ in range(4 * len(drawn) + 1):
        table = blocks([size for size, *_ in now], [(low, high) for _, _, low, high in now])
        dead = np.array([gone for _, gone, _, _ in now], np.int64)
        groups = merge_plan(table, dead, target_bytes=TARGET, sort_by=1 if is_sorted else None)
        if not groups:
            return
        taken = [at for group in groups for at in group]
        assert len(taken) == len(set(taken))
        made = []
        for group in groups:
            live = [max(now[at][0] * (10 - now[at][1]) // 10, 1) for at in group]
            assert len(group) > 1 or now[group[0]][1] > 2
            assert len(group) == 1 or sum(live) <= TARGET
            if any(now[at][1] < 10 for at in group):
                made.append((sum(live), 0, min(now[at][2] for at in group), max(now[at][3] for at in group)))
        now = [block for at, block in enumerate(now) if at not in taken] + made
        if not now:
            return
    raise AssertionError("there is always something to merge")
