"""Cutting the keys of SSTs into ranges of about equal bytes: for compactions side by side, and readers in parallel.

Where bytes lie is known from samples: the first key of an SST with its size, or, where SSTs are too few to tell, the
first keys of their blocks with theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from slate_async.format.sst import SstMeta
from slate_async.runtime.concurrent import map_bounded

SAMPLES_PER_RANGE = 8
MOST_INDEXES = 32
"""Indexes are read of this many SSTs at most, the largest."""
INDEX_READS = 8
"""So many at a time."""


class SizedSst(NamedTuple):
    """An SST that may be sampled. ``size`` in bytes; ``load`` reads its index."""

    first_key: bytes
    size: int
    load: Callable[[], Awaitable[SstMeta]]


class Sample(NamedTuple):
    """``nbytes`` lie at ``key`` and above, up to the next sample of the same SST."""

    key: bytes
    nbytes: int


async def sample(ssts: Iterable[SizedSst], ranges: int) -> list[Sample]:
    """Samples that are enough to cut ``ssts`` into so many ranges; indexes of the largest ones are read if need be.

    Raises what reading an index raises."""
    largest = sorted(ssts, key=lambda sst: sst.size, reverse=True)
    missing = ranges * SAMPLES_PER_RANGE - len(largest)
    looked_into = largest[: min(MOST_INDEXES, max(0, missing))]

    async def blocks(sst: SizedSst) -> list[Sample]:
        index = (await sst.load()).index
        step = max(1, len(index) // (ranges * SAMPLES_PER_RANGE))
        return [
            Sample(index.first_keys[at], sum(index.stored_bytes[at : at + step])) for at in range(0, len(index), step)
        ]

    samples = [Sample(sst.first_key, sst.size) for sst in largest[len(looked_into) :]]
    for found in await map_bounded(blocks, looked_into, INDEX_READS):
        samples += found
    return samples


def balanced_bounds(samples: Iterable[Sample], count: int) -> tuple[bytes, ...]:
    """Rising keys that cut what was sampled into at most ``count`` ranges of about equal bytes, none of them empty."""
    ordered = sorted(samples)
    total = sum(sample.nbytes for sample in ordered)
    bounds: list[bytes] = []
    before = 0
    for one in ordered:
        due = total * (len(bounds) + 1) / count
        if len(bounds) + 1 < count and before >= due and one.key > (bounds[-1] if bounds else ordered[0].key):
            bounds.append(one.key)
        before += one.nbytes
    return tuple(bounds)
