"""Cutting a view into key ranges of about equal bytes, so that many readers can read it in parallel."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

from slate_async.format.sst import SstMeta
from slate_async.read.bounds import KeyRange
from slate_async.read.sources import Run
from slate_async.read.view import ReadView
from slate_async.sst.balance import Sample, SizedSst, balanced_bounds, sample

SPLIT_BYTES = 128 << 20
"""A default: some seconds of work for one reader."""
MOST_SPLITS = 10_000


class Split(NamedTuple):
    """A range of keys, ``[start, end)`` with ``None`` = unbounded, and about how many stored bytes lie in it."""

    start: bytes | None
    end: bytes | None
    nbytes: int


async def split_view(view: ReadView, span: KeyRange, nbytes: int) -> list[Split]:
    """Ranges that cover ``span`` once, in key order, each of about ``nbytes`` of SSTs, at most `MOST_SPLITS`.

    Rows in memory count for nothing. None for an empty span. Raises what reading an index raises."""
    if span.empty:
        return []
    pin = view.pin()
    try:
        samples, total, count = await _samples(view, span, nbytes)
    finally:
        del pin
    bounds = [span.start, *balanced_bounds(samples, count), span.end]
    return [Split(start, end, total // (len(bounds) - 1)) for start, end in pairwise(bounds)]


async def _samples(view: ReadView, span: KeyRange, nbytes: int) -> tuple[list[Sample], int, int]:
    """Where the bytes of ``span`` lie, how many they are, and into how many ranges to cut them."""
    ssts = [
        SizedSst(*run.extent(number), partial(_load, run, number))
        for run in view.levels
        for number in run.within(*span)
    ]
    most = _count(sum(sst.size for sst in ssts), nbytes)
    samples = [one for one in await sample(ssts, most) if _inside(one.key, span)] if most > 1 else []
    total = sum(one.nbytes for one in samples) if samples else sum(sst.size for sst in ssts)
    return samples, total, _count(total, nbytes)


async def _load(run: Run, number: int) -> SstMeta:
    return await run.table(number).source.load()


def _count(total: int, nbytes: int) -> int:
    return max(1, min(MOST_SPLITS, -(-total // nbytes)))


def _inside(key: bytes, span: KeyRange) -> bool:
    return (span.start is None or key > span.start) and (span.end is None or key < span.end)
