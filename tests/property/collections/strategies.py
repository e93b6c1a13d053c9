"""Times, frontiers and updates of both kinds, from grids so small that every time can be looked at."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import Time, TimeKind, Times, less_equal

KINDS = list(TimeKind)
EDGE = {TimeKind.U64: 12, TimeKind.U64X2: 5}
"""Numbers of drawn times are below it."""


def grid(kind: TimeKind, beyond: int = 1) -> list[Time]:
    """Every time up to ``beyond`` numbers above all that are drawn."""
    return list(itertools.product(range(EDGE[kind] + beyond), repeat=kind.coordinates))


def times(kind: TimeKind) -> st.SearchStrategy[Time]:
    return st.tuples(*[st.integers(0, EDGE[kind] - 1)] * kind.coordinates)


def frontiers(kind: TimeKind, *, done: bool = True) -> st.SearchStrategy[Frontier]:
    return st.lists(times(kind), min_size=0 if done else 1, max_size=4).map(Frontier)


def columns(rows: list[Time], kind: TimeKind) -> Times:
    return tuple(np.array([row[i] for row in rows], np.uint64) for i in range(kind.coordinates))


Update: TypeAlias = tuple[bytes, Time, int]
DATA = (b"a", b"b", b"c")


def updates(kind: TimeKind, max_size: int = 12) -> st.SearchStrategy[list[Update]]:
    diffs = st.sampled_from([-2, -1, 1, 2])
    return st.lists(st.tuples(st.sampled_from(DATA), times(kind), diffs), max_size=max_size)


def chains(kind: TimeKind, length: int = 4) -> st.SearchStrategy[list[Frontier]]:
    """Frontiers from the minimum upwards, each above the one before it; the last may be done."""

    def ascending(drawn: list[Frontier]) -> list[Frontier]:
        chain = [Frontier.minimum(kind)]
        for frontier in drawn:
            if (higher := chain[-1].join(frontier)) != chain[-1]:
                chain.append(higher)
        return chain

    return st.lists(frontiers(kind), min_size=1, max_size=length).map(ascending)


def contents(written: Iterable[Update], at: Time) -> dict[bytes, int]:
    """What a collection holds at a time: the sums per data, without zeros."""
    sums: Counter[bytes] = Counter()
    for data, time, diff in written:
        if less_equal(time, at):
            sums[data] += diff
    return {data: diff for data, diff in sums.items() if diff}


def rows_of(batch: pa.RecordBatch) -> list[Update]:
    """The rows of a batch of bytes as they were written."""
    data, *numbers, diffs = [column.to_pylist() for column in batch.columns]
    return [(d, tuple(time), n) for d, time, n in zip(data, zip(*numbers, strict=True), diffs, strict=True)]
