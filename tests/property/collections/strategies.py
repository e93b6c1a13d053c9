"""Times, frontiers and updates of both kinds, from grids so small that every time can be looked at."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import Time, TimeKind, Times

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
