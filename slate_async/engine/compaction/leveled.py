"""Leveled compaction: one run a level, each level ``level_size_multiplier`` times larger than the one above it.

L0 (and runs a size-tiered past has left) goes into level 1 together with what overlaps it there. A level that has
outgrown its size gives the SSTs that meet least of the next level to it; where they meet nothing they are only moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

from slate_async.engine.compaction.plan_builder import PlanBuilder, flat, span, within
from slate_async.storage.manifest.state import SortedRun, SstRef

MOST_PUSHED = 8
"""SSTs given to the next level at once; with what they overlap there, one compaction stays a matter of minutes."""


def plan_leveled(builder: PlanBuilder) -> None:
    """Add to ``builder`` what should be compacted now: the level that is furthest above its size first."""
    top_waits = False
    for _, level in sorted(_overfull(builder), reverse=True):
        if level == 0:
            top_waits = not _push_top(builder)
        elif not (top_waits and level == 1):  # else level 1 might never be free for the top
            _shrink(builder, level)


def push_into(builder: PlanBuilder, top: int, runs: Sequence[SortedRun], ssts: Sequence[SstRef], level: int) -> bool:
    """Plan that ``top`` sources of the top and ``ssts`` of ``runs`` go into ``level``, with what they overlap there."""
    sources = (*flat(builder.top[len(builder.top) - top :]), *ssts)
    target = builder.level(level)
    if target is None or not sources:
        return builder.add(top=top, runs=runs, ssts=ssts, level=level)
    below = within(target.ssts, span(sources))
    return builder.add(
        top=top, runs=(*runs, target) if below else runs, ssts=(*ssts, *below), level=level, target=target
    )


def _overfull(builder: PlanBuilder) -> Iterator[tuple[float, int]]:
    """By how many times a level is above its size, and its number. Level 0 is the top and the runs of level 0."""
    fullness = len(builder.top) / builder.config.l0_compact_ssts
    older = any(run.level == 0 for run in builder.state.runs)
    if fullness >= 1 or older:
        yield max(1.0, fullness), 0
    for run in builder.state.runs:
        if run.level and (excess := _excess(builder, run)) > 0:
            yield 1 + excess / _target_bytes(builder, run.level), run.level


def _target_bytes(builder: PlanBuilder, level: int) -> int:
    return int(builder.config.level_base_bytes * builder.config.level_size_multiplier ** (level - 1))


def _excess(builder: PlanBuilder, run: SortedRun) -> int:
    """Bytes of ``run`` above the size of its level, without what is on its way down already."""
    staying = sum(sst.size for sst in run.ssts if builder.leaving.get(sst.object_id, 0) <= run.level)
    return staying - _target_bytes(builder, run.level)


def _push_top(builder: PlanBuilder) -> bool:
    """Plan that the top goes into level 1, if it is full, and in any case what a size-tiered past has left."""
    config = builder.config
    older = [run for run in builder.state.runs if run.level == 0]
    top = min(len(builder.top), config.max_merge_width) if len(builder.top) >= config.l0_compact_ssts else 0
    return push_into(builder, top, older, [sst for run in older for sst in run.ssts], 1)


def _shrink(builder: PlanBuilder, level: int) -> None:
    """Plan that SSTs of ``level`` go down until it has its size, as far as there is room beside other compactions."""
    run = builder.level(level)
    while run is not None and builder.busy_runs < builder.config.parallelism and _excess(builder, run) > 0:
        window = _cheapest(builder, run)
        if window is None or not push_into(builder, 0, [run], window, level + 1):
            return


def _cheapest(builder: PlanBuilder, run: SortedRun) -> Sequence[SstRef] | None:
    """Of the neighbouring SSTs that would bring ``run`` to its size, those that meet least of the next level for
    their own size; ``None`` if all of them are busy."""
    excess = _excess(builder, run)
    target = builder.level(run.level + 1)
    both = [run] if target is None else [run, target]
    best: Sequence[SstRef] | None = None
    best_cost = math.inf
    ends = list(accumulate((sst.size for sst in run.ssts), initial=0))
    for first in range(len(run.ssts)):
        stop = first + 1
        while stop < min(len(run.ssts), first + MOST_PUSHED) and ends[stop] - ends[first] < excess:
            stop += 1
        window = run.ssts[first:stop]
        met = () if target is None else within(target.ssts, span(window))
        cost = sum(sst.size for sst in met) / (ends[stop] - ends[first])
        if cost < best_cost and builder.free(both, span((*window, *met))):
            best, best_cost = window, cost
    return best
