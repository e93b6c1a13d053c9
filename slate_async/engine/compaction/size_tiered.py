"""Size-tiered compaction: runs of about one size are merged into one of the next size.

L0 becomes a run as soon as it holds enough SSTs; a large ingest becomes one by itself. Runs fall into classes by size,
each ``min_merge_width`` times the one before. Where neighbouring runs of at most some class include
``min_merge_width`` runs of that class, they are merged. So a row is rewritten about once for each class, and at rest a
database has fewer than ``min_merge_width`` runs of each class (as long as older runs are no smaller than newer ones,
which is what merging makes of them).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slate_async.engine.compaction.plan_builder import PlanBuilder, span
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef, l0_units

SMALLEST_BYTES = 1 << 20
"""Runs of this size and below are of class 0: merging them costs next to nothing."""


def plan_size_tiered(builder: PlanBuilder) -> None:
    """Add to ``builder`` what should be compacted now."""
    config = builder.config
    _push_top(builder)
    for neighbours in _even_neighbours(builder):
        if builder.busy_runs >= config.parallelism:
            return
        merged = neighbours[-config.max_merge_width :]
        builder.add(runs=merged, level=merged[-1].level)


def _push_top(builder: PlanBuilder) -> None:
    """Plan that the oldest sources of the top become a run once there are enough. A large ingest stays by itself: it
    becomes a run as it is, at once when nothing older is left in the top."""
    config = builder.config
    large = next(
        (at for at, source in enumerate(reversed(builder.top)) if is_large_ingest(source, config.sst_bytes)), None
    )
    if large == 0:
        builder.add(top=1)
    elif len(builder.top) >= config.l0_compact_ssts:
        builder.add(top=min(len(builder.top) if large is None else large, config.max_merge_width))


def is_large_ingest(source: Sequence[SstRef], sst_bytes: int) -> bool:
    """Whether a source of the top is an ingest that is worth a run of its own."""
    return source[0].global_seq is not None and sum(sst.size for sst in source) >= sst_bytes


def oldest_is_large_ingest(state: ManifestState, sst_bytes: int) -> bool:
    """Whether one may become a run at once, however few SSTs L0 has."""
    return (
        state.compaction == "size_tiered"
        and bool(state.l0)
        and state.l0[-1].global_seq is not None
        and is_large_ingest(l0_units(state.l0)[-1], sst_bytes)
    )


def size_class(run: SortedRun, min_merge_width: int) -> int:
    """0 for the smallest runs; each further class holds runs about ``min_merge_width`` times larger, within its
    root."""
    size = sum(sst.size for sst in run.ssts)
    return max(0, math.floor(math.log(max(1, size) / SMALLEST_BYTES, min_merge_width) + 0.5))


def _even_neighbours(builder: PlanBuilder) -> Iterator[list[SortedRun]]:
    """Neighbouring runs worth merging that are not reserved, the smallest class first."""
    min_merge_width = builder.config.min_merge_width
    classes = [(run, size_class(run, min_merge_width)) for run in builder.state.runs]
    for highest in sorted({number for _, number in classes}):
        neighbours: list[SortedRun] = []
        largest = 0
        for run, number in classes:
            if number <= highest and builder.free([run], span(run.ssts)):
                neighbours.append(run)
                largest += number == highest
                continue
            if largest >= min_merge_width:
                yield neighbours
            neighbours, largest = [], 0
        if largest >= min_merge_width:
            yield neighbours
