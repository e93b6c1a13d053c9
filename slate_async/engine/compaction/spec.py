"""What a planner decides and what it decides by: `CompactionSpec` and `PlannerConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.settings import Settings
from slate_async.storage.manifest.state import SstRef


@dataclass(frozen=True, slots=True)
class LogSst:
    """Without a WAL: a log object that is an SST, at ``position`` of the log."""

    position: int
    ref: SstRef


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """One compaction that should run. Inputs are neighbours in age order; see `storage.manifest.compaction_inputs`.

    l0, runs, ssts: its inputs
    target_level: the level of its output, 0 unless by levels
    bottom: nothing older overlaps its keys, so tombstones and expired rows may go
    target_run: the run its output joins; ``None`` = a new one, or the one that ``target_level`` has by then
    log_end: without a WAL, the last log position it takes (it then takes all of L0, too); ``None`` = none
    move: nothing is rewritten: the inputs, as they are, are the output
    """

    l0: tuple[bytes, ...]
    runs: tuple[int, ...]
    target_level: int
    bottom: bool
    ssts: tuple[bytes, ...] | None = None
    target_run: int | None = None
    log_end: int | None = None
    move: bool = False


@dataclass(frozen=True, slots=True)
class PlannerConfig:
    """What planners decide by.

    l0_compact_ssts: L0 SSTs (log objects without a WAL) that are worth a compaction
    sst_bytes: size of output SSTs
    min_merge_width: size-tiered: so many runs of a size are merged
    max_merge_width: no compaction merges more L0 SSTs and runs than this
    level_base_bytes: leveled: size of level 1
    level_size_multiplier: leveled: each further level is so many times larger
    parallelism: compactions at a time
    """

    l0_compact_ssts: int = 4
    sst_bytes: int = 64 << 20
    min_merge_width: int = 4
    max_merge_width: int = 32
    level_base_bytes: int = 256 << 20
    level_size_multiplier: int = 10
    parallelism: int = 2

    @classmethod
    def of(cls, settings: Settings) -> PlannerConfig:
        """The configuration ``settings`` describe."""
        return cls(
            l0_compact_ssts=settings.l0_compact_ssts,
            sst_bytes=settings.sst_bytes,
            min_merge_width=settings.min_merge_width,
            max_merge_width=max(2 * settings.min_merge_width, settings.l0_max_ssts),
            level_base_bytes=settings.level_base_bytes,
            level_size_multiplier=settings.level_size_multiplier,
            parallelism=settings.compaction_parallelism,
        )
