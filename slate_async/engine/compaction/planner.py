"""What should be compacted: pure functions of the manifest's state.

Plans never disturb what is under way or each other (`engine.compaction.plan_builder`), so all of a list may run at
once. The top (log and L0) has a compaction of its own beside the ``parallelism`` of the runs: a long merge of runs must
not make the writer wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.compaction.leveled import plan_leveled, push_into
from slate_async.engine.compaction.plan_builder import Keys, PlanBuilder, flat, span, within
from slate_async.engine.compaction.size_tiered import plan_size_tiered
from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.engine.compaction.sweep import plan_sweep
from slate_async.errors import InvalidError
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef

MOST_SHED = 16
"""SSTs rewritten at once only to drop rows that no read needs."""


def plan(state: ManifestState, now_ms: int, config: PlannerConfig, log: Sequence[LogSst] = ()) -> list[CompactionSpec]:
    """What should be compacted now, the most urgent first. ``log``: without a WAL, its SSTs, newest first."""
    builder = PlanBuilder(state, log, now_ms, config)
    if state.compaction == "leveled":
        plan_leveled(builder)
    else:
        plan_size_tiered(builder)
    if not builder.specs:
        _shed(builder)
    if not builder.specs:
        plan_sweep(builder)
    return builder.specs


def plan_full(
    state: ManifestState, now_ms: int, config: PlannerConfig, log: Sequence[LogSst] = ()
) -> list[CompactionSpec]:
    """Everything into one run. Empty if there is nothing, or while something else is under way."""
    builder = PlanBuilder(state, log, now_ms, config)
    builder.add(top=len(builder.top), runs=state.runs, level=_lowest_level(state), rewrite=True)
    return builder.specs


def plan_range(
    state: ManifestState,
    start: bytes | None,
    end: bytes | None,
    now_ms: int,
    config: PlannerConfig,
    log: Sequence[LogSst] = (),
) -> list[CompactionSpec]:
    """Every SST that may hold a key of ``[start, end)``, and what these overlap further down, into the lowest run that
    holds some of it. Empty if there is nothing, or while something else is under way there."""
    builder = PlanBuilder(state, log, now_ms, config)
    touched = (index for index, source in enumerate(builder.top) if any(_touches(sst, start, end) for sst in source))
    at = next(touched, len(builder.top))
    top = len(builder.top) - at
    taken = list(flat(builder.top[at:]))
    runs: list[tuple[SortedRun, Sequence[SstRef]]] = []
    for run in state.runs:
        inside = [sst for sst in run.ssts if _touches(sst, start, end)]
        keys = _hull([*taken, *inside])
        found = within(run.ssts, keys) if keys is not None else ()
        if found or runs or top:
            runs.append((run, found))
        taken += found
    while runs and not runs[-1][1]:
        runs.pop()
    target = runs[-1][0] if runs else _beside_everything(state)
    builder.add(
        top=top,
        runs=[run for run, _ in runs],
        ssts=[sst for _, found in runs for sst in found],
        level=_first_level(state) if target is None else target.level,
        target=target,
        rewrite=True,
    )
    return builder.specs


def plan_level(
    state: ManifestState, level: int, now_ms: int, config: PlannerConfig, log: Sequence[LogSst] = ()
) -> list[CompactionSpec]:
    """All of one level into the next one; the lowest is rewritten in place. Level 0 is L0, with the log without a WAL;
    by levels it goes into level 1, else it becomes a run. Empty if there is nothing, or while something else is under
    way there. Raises `InvalidError` for a level that does not exist."""
    builder = PlanBuilder(state, log, now_ms, config)
    run = builder.level(level) if level > 0 else None
    if level and run is None:
        levels = sorted({0, *(run.level for run in state.runs)})
        known = f"there are levels {', '.join(map(str, levels))}" if len(levels) > 1 else "there is only level 0, L0"
        raise InvalidError(f"there is no level {level}; {known}")
    if run is not None and run is state.runs[-1]:
        builder.add(runs=[run], ssts=run.ssts, level=level, target=run, rewrite=True)
    elif run is not None:
        push_into(builder, 0, [run], run.ssts, level + 1)
    elif state.compaction == "leveled":
        older = [run for run in state.runs if not run.level]
        push_into(builder, len(builder.top), older, [sst for run in older for sst in run.ssts], 1)
    else:
        builder.add(top=len(builder.top))
    return builder.specs


def _shed(builder: PlanBuilder) -> None:
    """Rewrite in place SSTs at the bottom that are mostly tombstones, or whose expiring rows have all expired."""
    for index, run in enumerate(builder.state.runs):
        below = builder.state.runs[index + 1 :]
        useless: list[SstRef] = []
        for sst in run.ssts:
            # Together they must be at the bottom, or nothing would be dropped, over and over.
            if builder.useless(sst) and not any(within(older.ssts, span([*useless, sst])) for older in below):
                useless.append(sst)
            elif useless:
                break
            if len(useless) == MOST_SHED:
                break
        if useless and builder.add(runs=[run], ssts=useless, level=run.level, target=run, rewrite=True):
            return


def _beside_everything(state: ManifestState) -> SortedRun | None:
    """The run that SSTs of the top join which overlap none: by levels the lowest, if all runs are levels."""
    by_levels = state.compaction == "leveled" and state.runs and all(run.level for run in state.runs)
    return state.runs[-1] if by_levels else None


def _first_level(state: ManifestState) -> int:
    """Of a run above all others: levels stay below what a size-tiered past has left."""
    return 1 if state.compaction == "leveled" and not state.runs else 0


def _lowest_level(state: ManifestState) -> int:
    lowest = state.runs[-1].level if state.runs else 0
    return max(1, lowest) if state.compaction == "leveled" else lowest


def _touches(sst: SstRef, start: bytes | None, end: bytes | None) -> bool:
    return (start is None or start <= sst.last_key) and (end is None or sst.first_key < end)


def _hull(ssts: Sequence[SstRef]) -> Keys | None:
    return span(ssts) if ssts else None
