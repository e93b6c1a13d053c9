"""Cutting the keys of SSTs into ranges of about equal bytes: for compactions side by side, and readers in parallel.

Where bytes lie is known from samples: the first key of an SST with its size, or, where SSTs are too few to tell, the
first keys of their blocks with theirs.

There may be a hundred thousand SSTs: all of it takes turns with the loop's other tasks, and samples are columns, which
the garbage collector does not look through.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.sst import SstMeta

SAMPLES_PER_RANGE = 8
MOST_INDEXES = 32
"""Indexes are read of this many SSTs at most, the largest."""
INDEX_READS = 8
"""So many at a time."""
STEP = 512
"""SSTs, or samples, between two looks whether others want a turn: a tenth of a millisecond."""

Sizes: TypeAlias = npt.NDArray[np.int64]


class Samples(NamedTuple):
    """``nbytes[i]`` lie at ``keys[i]`` and above, up to the next key. Keys ascend."""

    keys: list[bytes]
    nbytes: Sizes

    def within(self, start: bytes | None, end: bytes | None) -> Samples:
        """Those above ``start`` and below ``end``; ``None``: unbounded."""
        low = 0 if start is None else bisect_right(self.keys, start)
        high = len(self.keys) if end is None else bisect_left(self.keys, end, low)
        return self if high - low == len(self.keys) else Samples(self.keys[low:high], self.nbytes[low:high])


class SizedRun(NamedTuple):
    """SSTs with disjoint keys, in key order: first keys and sizes. ``load`` reads the index of one, by its place."""

    ssts: Samples
    load: Callable[[int], Awaitable[SstMeta]]


def total_bytes(samples: Iterable[Samples]) -> int:
    """Of all of ``samples``."""
    return sum(int(drawn.nbytes.sum()) for drawn in samples)


async def sized_run(
    count: int,
    extents: Callable[[int, int], tuple[list[bytes], list[int]]],
    load: Callable[[int], Awaitable[SstMeta]],
    yield_budget: YieldBudget,
) -> SizedRun:
    """``count`` SSTs; ``extents`` gives first keys and sizes of those from one place up to another (exclusive)."""
    keys: list[bytes] = []
    sizes = np.zeros(count, np.int64)
    for low in range(0, count, STEP):
        high = min(count, low + STEP)
        first_keys, sizes[low:high] = extents(low, high)
        keys += first_keys
        if yield_budget.exhausted():
            await yield_budget.yield_now()
    return SizedRun(Samples(keys, sizes), load)


async def sample(runs: Sequence[SizedRun], ranges: int) -> list[Samples]:
    """Samples that are enough to cut ``runs`` into so many ranges; indexes of the largest SSTs are read if need be.

    Raises what reading an index raises."""
    sizes = [run.ssts.nbytes.copy() for run in runs]
    looked_into = _largest(sizes, ranges * SAMPLES_PER_RANGE - sum(map(len, sizes)))
    for number, place in looked_into:
        sizes[number][place] = 0  # its blocks tell better

    async def blocks(sst: tuple[int, int]) -> Samples:
        number, place = sst
        index = (await runs[number].load(place)).index
        firsts = range(0, len(index), max(1, len(index) // (ranges * SAMPLES_PER_RANGE)))
        nbytes = np.add.reduceat(np.asarray(index.stored_bytes, np.int64), firsts)
        return Samples(index.first_keys[:: firsts.step], nbytes)

    found = [Samples(run.ssts.keys, left) for run, left in zip(runs, sizes, strict=True)]
    return found + await map_bounded(blocks, looked_into, INDEX_READS, staggered=True)


def _largest(sizes: Sequence[Sizes], count: int) -> list[tuple[int, int]]:
    """Run and place of the largest, at most ``count`` and `MOST_INDEXES`."""
    joined = np.concatenate(sizes) if sizes else np.zeros(0, np.int64)
    count = min(count, MOST_INDEXES, len(joined))
    if count <= 0:
        return []
    ends = np.cumsum([len(column) for column in sizes])
    chosen = np.sort(np.argpartition(joined, len(joined) - count)[-count:])
    numbers = np.searchsorted(ends, chosen, "right")
    places = chosen - (ends - [len(column) for column in sizes])[numbers]
    return list(zip(numbers.tolist(), places.tolist(), strict=True))


async def balanced_bounds(samples: Sequence[Samples], count: int, yield_budget: YieldBudget) -> list[bytes]:
    """Rising keys that cut what was sampled into at most ``count`` ranges of about equal bytes, none of them empty."""
    total = total_bytes(samples)
    bounds: list[bytes] = []
    before = 0
    last: bytes | None = None
    for number, (key, nbytes) in enumerate(merge(*map(_each, samples))):
        if last is None:
            last = key
        if before * count >= total * (len(bounds) + 1) and key > last:
            bounds.append(key)
            last = key
        if len(bounds) + 1 >= count:
            break
        before += nbytes
        if not number % STEP and yield_budget.exhausted():
            await yield_budget.yield_now()
    return bounds


def _each(samples: Samples) -> Iterator[tuple[bytes, int]]:
    for low in range(0, len(samples.keys), STEP):
        yield from zip(samples.keys[low : low + STEP], samples.nbytes[low : low + STEP].tolist(), strict=True)
