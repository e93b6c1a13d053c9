"""Size-tiered compaction: runs of about one size are merged into one of the next size.

L0 becomes a run as soon as it holds enough SSTs; a large ingest becomes one by itself. Runs fall into classes by size,
each ``width`` times the one before. Where a stretch of neighbouring runs of at most some class has ``width`` runs of
that class, the stretch is merged. So a row is rewritten about once for each class, and at rest a database has fewer
than ``width`` runs of each class (as long as older runs are no smaller than newer ones, which is what merging makes of
them).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slate_async.engine.compaction.plan_builder import Draft, span
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef, l0_units

SMALLEST_BYTES = 1 << 20
"""Runs of this size and below are of class 0: merging them costs next to nothing."""


def plan_size_tiered(draft: Draft) -> None:
    """Add to ``draft`` what should be compacted now."""
    config = draft.config
    _push_top(draft)
    for stretch in _even_stretches(draft):
        if draft.busy_runs >= config.parallelism:
            return
        merged = stretch[-config.max_width :]
        draft.add(runs=merged, level=merged[-1].level)


def _push_top(draft: Draft) -> None:
    """Plan that the oldest sources of the top become a run once there are enough. A large ingest stays by itself: it
    becomes a run as it is, at once when nothing older is left in the top."""
    config = draft.config
    large = next(
        (at for at, source in enumerate(reversed(draft.top)) if is_large_ingest(source, config.sst_bytes)), None
    )
    if large == 0:
        draft.add(top=1)
    elif len(draft.top) >= config.l0_compact_ssts:
        draft.add(top=min(len(draft.top) if large is None else large, config.max_width))


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


def size_class(run: SortedRun, width: int) -> int:
    """0 for the smallest runs; each further class holds runs about ``width`` times larger, within its root."""
    size = sum(sst.size for sst in run.ssts)
    return max(0, math.floor(math.log(max(1, size) / SMALLEST_BYTES, width) + 0.5))


def _even_stretches(draft: Draft) -> Iterator[list[SortedRun]]:
    """Stretches of neighbouring, unclaimed runs worth merging, the smallest class first."""
    width = draft.config.width
    classes = [(run, size_class(run, width)) for run in draft.state.runs]
    for highest in sorted({number for _, number in classes}):
        stretch: list[SortedRun] = []
        largest = 0
        for run, number in classes:
            if number <= highest and draft.free([run], span(run.ssts)):
                stretch.append(run)
                largest += number == highest
                continue
            if largest >= width:
                yield stretch
            stretch, largest = [], 0
        if largest >= width:
            yield stretch
