"""Cutting a view into key ranges of about equal bytes, so that many readers can read it in parallel."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.sources import Run
from slate_async.engine.read.view import ReadView
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.sst import SstMeta
from slate_async.storage.sst.balance import Samples, SizedRun, balanced_bounds, sample, sized_run, total_bytes

SPLIT_BYTES = 128 << 20
"""A default: some seconds of work for one reader."""
MOST_SPLITS = 10_000


class Split(NamedTuple):
    """A range of keys, ``[start, end)`` with ``None`` = unbounded, and about how many stored bytes lie in it."""

    start: bytes | None
    end: bytes | None
    nbytes: int


async def split_view(view: ReadView, span: KeyRange, target_bytes: int, yield_budget: YieldBudget) -> list[Split]:
    """Ranges that cover ``span`` once, in key order, each of about ``target_bytes`` of SSTs, at most `MOST_SPLITS`.

    Rows in memory count for nothing. None for an empty span. Raises what reading an index raises."""
    if span.empty:
        return []
    pin = view.pin()
    try:
        samples, total = await _samples(view, span, target_bytes, yield_budget)
    finally:
        del pin
    bounds = await balanced_bounds(samples, _count(total, target_bytes), yield_budget)
    each = total // (len(bounds) + 1)
    splits: list[Split] = []
    for start, end in pairwise((span.start, *bounds, span.end)):
        splits.append(Split(start, end, each))
        if yield_budget.exhausted():
            await yield_budget.yield_now()
    return splits


async def _samples(
    view: ReadView, span: KeyRange, target_bytes: int, yield_budget: YieldBudget
) -> tuple[list[Samples], int]:
    """Where the bytes of ``span`` lie, and how many they are."""
    runs = [await _sized(run, run.within(*span), yield_budget) for run in view.levels]
    total = total_bytes(run.ssts for run in runs)
    most = _count(total, target_bytes)
    samples = [drawn.within(*span) for drawn in await sample(runs, most)] if most > 1 else []
    return samples, total_bytes(samples) or total


async def _sized(run: Run, numbers: range, yield_budget: YieldBudget) -> SizedRun:
    async def load(place: int) -> SstMeta:
        return await run.table(numbers[place]).source.load()

    first = numbers.start
    return await sized_run(len(numbers), lambda low, high: run.extents(first + low, first + high), load, yield_budget)


def _count(total: int, target_bytes: int) -> int:
    return max(1, min(MOST_SPLITS, -(-total // target_bytes)))
