"""Key ranges: balanced, bounded in number, cut by whatever is known."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slate_async.engine.compaction.ranges import MOST_RANGES, range_count, split
from slate_async.storage.sst.balance import Samples, balanced_bounds
from tests.engine import memory_store
from tests.read_model import Version, exhausted_budget
from tests.support.merge_harness import MergeHarness

ROWS = st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.integers(0, 100)), min_size=1)


def columns(rows: Iterable[tuple[bytes, int]]) -> Samples:
    keys, nbytes = zip(*sorted(rows), strict=True)
    return Samples(list(keys), np.array(nbytes, np.int64))


def test_how_many() -> None:
    assert [range_count(nbytes, 100) for nbytes in (0, 199, 399, 400, 10**9)] == [1, 1, 1, 2, MOST_RANGES]


@given(sources=st.lists(ROWS, min_size=1, max_size=4), count=st.integers(1, 9))
async def test_bounds_rise_and_leave_no_range_empty(sources: list[list[tuple[bytes, int]]], count: int) -> None:
    bounds = await balanced_bounds([columns(rows) for rows in sources], count, exhausted_budget())
    keys = [key for rows in sources for key, _ in rows]
    assert bounds == sorted(set(bounds))
    assert len(bounds) < count
    edges = [min(keys), *bounds]
    assert all(low < high for low, high in zip(edges, bounds, strict=False))
    assert set(bounds) <= set(keys)


@given(count=st.integers(1, 8), keys=st.integers(1, 200), runs=st.integers(1, 3))
async def test_even_samples_make_even_ranges(count: int, keys: int, runs: int) -> None:
    samples = [columns((b"%03d" % key, 10) for key in range(first, keys, runs)) for first in range(min(runs, keys))]
    edges = [0, *map(int, await balanced_bounds(samples, count, exhausted_budget())), keys]
    sizes = [high - low for low, high in pairwise(edges)]
    assert len(sizes) == min(count, keys)
    assert max(sizes) - min(sizes) <= 1


async def test_a_few_ssts_are_cut_by_their_blocks() -> None:
    harness = MergeHarness(memory_store())
    ssts = [
        await harness.sst([Version(b"%04d" % key, b"v" * 30, 1 + key) for key in range(low, 4000, 2)]) for low in (0, 1)
    ]
    size = sum(sst.size for sst in ssts)
    bounds = await split([ssts[:1], ssts[1:]], harness.open_sst, size // 8, exhausted_budget())
    edges = [0, *map(int, bounds), 4000]
    assert len(edges) == 5
    assert all(abs(high - low - 1000) < 200 for low, high in pairwise(edges))


async def test_many_ssts_are_cut_without_reading_them() -> None:
    harness = MergeHarness(memory_store())
    ssts = [await harness.sst([Version(b"%03d" % key, b"v", 1 + key)]) for key in range(40)]
    await harness.store.delete([sst.location for sst in ssts])
    assert len(await split([ssts], harness.open_sst, sum(sst.size for sst in ssts) // 8, exhausted_budget())) == 3


async def test_a_small_compaction_is_one_range() -> None:
    harness = MergeHarness(memory_store())
    assert (
        await split([[await harness.sst([Version(b"a", b"v", 1)])]], harness.open_sst, 1 << 20, exhausted_budget())
        == ()
    )
