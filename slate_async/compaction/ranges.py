"""Cutting a compaction into key ranges of about equal bytes, so that they can run side by side and be resumed."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.compaction.local_executor import OpenSst
from slate_async.manifest.state import SstRef
from slate_async.sst.balance import SizedSst, balanced_bounds, sample

RANGE_SSTS = 2
"""A range is worth this many output SSTs: below that, outputs are small and commits are many."""
MOST_RANGES = 64
"""Each finished range is a manifest commit."""


def range_count(nbytes: int, sst_bytes: int) -> int:
    """How many ranges ``nbytes`` of inputs are worth."""
    return max(1, min(MOST_RANGES, nbytes // (RANGE_SSTS * sst_bytes)))


async def split(sources: Sequence[Sequence[SstRef]], open_sst: OpenSst, sst_bytes: int) -> tuple[bytes, ...]:
    """The bounds of the ranges of a compaction of ``sources``; none for a single range.

    Raises what reading an index raises."""
    ssts = [sst for source in sources for sst in source]
    count = range_count(sum(sst.size for sst in ssts), sst_bytes)
    if count == 1:
        return ()
    sized = [SizedSst(sst.first_key, sst.size, lambda sst=sst: open_sst(sst).load()) for sst in ssts]  # type: ignore[misc]
    return balanced_bounds(await sample(sized, count), count)
