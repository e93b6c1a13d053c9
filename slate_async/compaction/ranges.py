"""Cutting a compaction into key ranges of about equal bytes, so that they can run side by side and be resumed.

Where bytes lie is known from samples: the first key of an SST with its size, or, where SSTs are too few to tell, the
first keys of their blocks with theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slate_async.compaction.local_executor import OpenSst
from slate_async.manifest.state import SstRef
from slate_async.runtime.concurrent import map_bounded

RANGE_SSTS = 2
"""A range is worth this many output SSTs: below that, outputs are small and commits are many."""
MOST_RANGES = 64
"""Each finished range is a manifest commit."""
SAMPLES_PER_RANGE = 8
MOST_INDEXES = 32
"""Indexes are read of this many SSTs at most, the largest."""
INDEX_READS = 8
"""So many at a time."""


class Sample(NamedTuple):
    """``nbytes`` of an input lie at ``key`` and above, up to its next sample."""

    key: bytes
    nbytes: int


def range_count(nbytes: int, sst_bytes: int) -> int:
    """How many ranges ``nbytes`` of inputs are worth."""
    return max(1, min(MOST_RANGES, nbytes // (RANGE_SSTS * sst_bytes)))


def balanced_bounds(samples: Iterable[Sample], count: int) -> tuple[bytes, ...]:
    """Rising keys that cut what was sampled into at most ``count`` ranges of about equal bytes, none of them empty."""
    ordered = sorted(samples)
    total = sum(sample.nbytes for sample in ordered)
    bounds: list[bytes] = []
    before = 0
    for sample in ordered:
        due = total * (len(bounds) + 1) / count
        if len(bounds) + 1 < count and before >= due and sample.key > (bounds[-1] if bounds else ordered[0].key):
            bounds.append(sample.key)
        before += sample.nbytes
    return tuple(bounds)


async def split(sources: Sequence[Sequence[SstRef]], open_sst: OpenSst, sst_bytes: int) -> tuple[bytes, ...]:
    """The bounds of the ranges of a compaction of ``sources``; none for a single range.

    Raises what reading an index raises."""
    ssts = [sst for source in sources for sst in source]
    count = range_count(sum(sst.size for sst in ssts), sst_bytes)
    if count == 1:
        return ()
    missing = count * SAMPLES_PER_RANGE - len(ssts)
    ssts.sort(key=lambda sst: sst.size, reverse=True)
    looked_into = ssts[: min(MOST_INDEXES, max(0, missing))]

    async def blocks(sst: SstRef) -> list[Sample]:
        index = (await open_sst(sst).load()).index
        step = max(1, len(index) // (count * SAMPLES_PER_RANGE))
        return [
            Sample(index.first_keys[at], sum(index.stored_bytes[at : at + step])) for at in range(0, len(index), step)
        ]

    samples = [Sample(sst.first_key, sst.size) for sst in ssts[len(looked_into) :]]
    for found in await map_bounded(blocks, looked_into, INDEX_READS):
        samples += found
    return balanced_bounds(samples, count)
