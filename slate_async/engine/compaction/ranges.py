"""Cutting a compaction into key ranges of about equal bytes, so that they can run side by side and be resumed."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.compaction.local_executor import OpenSst
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.balance import SizedRun, balanced_bounds, sample, sized_run, total_bytes

RANGE_SSTS = 2
"""A range is worth this many output SSTs: below that, outputs are small and commits are many."""
MOST_RANGES = 64
"""Each finished range is a manifest commit."""


def range_count(nbytes: int, sst_bytes: int) -> int:
    """How many ranges ``nbytes`` of inputs are worth."""
    return max(1, min(MOST_RANGES, nbytes // (RANGE_SSTS * sst_bytes)))


async def split(
    sources: Sequence[Sequence[SstRef]], open_sst: OpenSst, sst_bytes: int, yield_budget: YieldBudget
) -> tuple[bytes, ...]:
    """The bounds of the ranges of a compaction of ``sources``, each in key order; none for a single range.

    Raises what reading an index raises."""
    runs = [await _sized(source, open_sst, yield_budget) for source in sources]
    count = range_count(total_bytes(run.ssts for run in runs), sst_bytes)
    return () if count == 1 else tuple(await balanced_bounds(await sample(runs, count), count, yield_budget))


async def _sized(ssts: Sequence[SstRef], open_sst: OpenSst, yield_budget: YieldBudget) -> SizedRun:
    def extents(first: int, stop: int) -> tuple[list[bytes], list[int]]:
        part = ssts[first:stop]
        return [sst.first_key for sst in part], [sst.size for sst in part]

    return await sized_run(len(ssts), extents, lambda number: open_sst(ssts[number]).load(), yield_budget)
