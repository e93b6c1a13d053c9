"""One registered compaction, from its inputs to its commit.

Ordering rule: a range's output is uploaded before it is noted in the manifest, and all ranges are noted before, or in,
the commit that puts them in their inputs' place. So a compactor that resumes it does no range again that was noted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from slate_async.engine.compaction.executor import Executor, MergeCounts, RangeTask
from slate_async.engine.compaction.local_executor import OpenSst
from slate_async.engine.compaction.log_source import LogSource
from slate_async.engine.compaction.progress import CompactionEvent, CompactorStats, EventKind, EventSink, added
from slate_async.engine.compaction.sweep import deletes_within, swept_by
from slate_async.errors import ConflictError, CorruptionError, InternalError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import map_bounded
from slate_async.settings import Settings
from slate_async.storage.manifest.compaction_inputs import Inputs
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.compactions import (
    CommitCompaction,
    DropCompaction,
    FinishRange,
    LogTaken,
    can_go_on,
)
from slate_async.storage.manifest.state import Compaction, ManifestState, RangeOutput, SstRef

logger = logging.getLogger(__name__)
Sources: TypeAlias = tuple[tuple[SstRef, ...], ...]


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """What every compaction of one database works with.

    open_sst: gives a reader of an input
    log: of a database without a WAL
    slots: how many key ranges, of all compactions together, are merged at once
    emit: gets an event of whatever happens
    """

    driver: ManifestDriver
    executor: Executor
    open_sst: OpenSst
    log: LogSource | None
    settings: Settings
    slots: asyncio.Semaphore
    stats: CompactorStats
    emit: EventSink


class Job:
    """One run at a registered compaction. Run it once."""

    def __init__(self, context: CompactionContext, compaction: Compaction, *, resumed: bool) -> None:
        self._context = context
        self._resumed = resumed
        self.compaction = compaction
        self._rows_total = 0
        self._merged: dict[int, MergeCounts] = {}
        self._finished = dict.fromkeys(part.index for part in compaction.finished)
        self._kept_back: list[RangeOutput] = []

    async def run(self) -> bool:
        """Run its unfinished key ranges and commit it; returns whether it was committed. Drops it if an input was
        removed.

        Raises `FencedError` (another compactor took over), `UnavailableError` (it stays registered, to be run again),
        `CorruptionError`, `InternalError`."""
        try:
            sources, log = await self._inputs()
            self._rows_total = sum(sst.rows for source in sources for sst in source)
            self._emit("resumed" if self._resumed else "begun")
            await self._merge(sources)
            await self._context.driver.commit(
                CommitCompaction(self.compaction.epoch, self.compaction.id, tuple(self._kept_back), log)
            )
        except ConflictError as conflict:
            await self._drop(str(conflict))
            return False
        self._context.stats.committed += 1
        self._emit("committed")
        return True

    async def _inputs(self) -> tuple[Sources, LogTaken | None]:
        """The sorted sources, newest first, and what it takes of the log. Raises `ConflictError` if any was removed."""
        wanted, log_end = self.compaction, self.compaction.log_end
        ssts: Sources = ()
        taken: LogTaken | None = None
        if log_end is None:
            state = await self._state()
        elif self._context.log is None:
            raise InternalError(f"compaction {wanted.id} takes the log of a database with a WAL")
        else:
            begin = (await self._state()).log_start
            look = await self._context.log.look(limit=max(0, log_end - begin + 1))
            if look.end != log_end or look.state.log_start != begin:
                raise ConflictError(f"the log that compaction {wanted.id} reads was removed", outcome="not_applied")
            state, taken = look.state, look.taken
            ssts = tuple((sst.ref,) for sst in reversed(look.ssts))
        found = Inputs.of(wanted).find(state)
        if found is None or not can_go_on(state, wanted):  # or a flush has taken what it was to take of the log
            raise ConflictError(f"an input of compaction {wanted.id} was removed", outcome="not_applied")
        return (*ssts, *found), taken

    async def _state(self) -> ManifestState:
        state = await self._context.driver.load()
        if state is None:
            raise ConflictError(f"there is no database at {self._context.driver.name} any more", outcome="not_applied")
        return state

    async def _merge(self, sources: Sources) -> None:
        state = await self._state()
        tasks = self._tasks(state, sources)
        left = [index for index in range(len(tasks)) if index not in self._finished]

        async def finish(index: int) -> None:
            async with self._context.slots:
                await self._finish(index, tasks[index])

        if left:
            await map_bounded(finish, left, len(left))

    def _tasks(self, state: ManifestState, sources: Sources) -> list[RangeTask]:
        wanted, settings = self.compaction, self._context.settings
        swept_seq = swept_by(state, wanted.keep_above)
        edges: Sequence[bytes | None] = (None, *wanted.bounds, None)
        return [
            RangeTask(
                database_id=state.database_id,
                base_version=wanted.base_version,
                sources=sources,
                start=start,
                end=end,
                keep_above=wanted.keep_above,
                expired_at_ms=wanted.expired_at_ms,
                bottom=wanted.bottom,
                sst_bytes=settings.sst_bytes,
                block_bytes=settings.block_bytes,
                compression=settings.compression,
                filter_bits_per_key=settings.filter_bits_per_key,
                parents=state.parents,
                merge_operator=state.merge_operator,
                range_deletes=deletes_within(state, start, end, wanted.keep_above),
                swept_seq=swept_seq,
            )
            for start, end in pairwise(edges)
        ]

    async def _finish(self, index: int, task: RangeTask) -> None:
        """Merge one range and note its output: in the manifest, or, of the last one, in the commit that follows."""

        def merged(counts: MergeCounts) -> None:
            self._merged[index] = counts
            self._emit("progress")

        try:
            result = await self._context.executor.run(task, merged)
        except ObjectNotFoundError as error:
            if not can_go_on(await self._state(), self.compaction):
                raise ConflictError(
                    f"{error.key}, an input of compaction {self.compaction.id}, was deleted", outcome="not_applied"
                ) from error
            raise CorruptionError("is missing, though the manifest names it", object_name=error.key) from error
        stats = self._context.stats
        stats.ranges += 1
        stats.merged = added(stats.merged, result.counts)
        self._merged[index] = result.counts
        self._finished[index] = None
        output = RangeOutput(index, result.ssts)
        if len(self._finished) <= len(self.compaction.bounds):
            await self._context.driver.commit(FinishRange(self.compaction.epoch, self.compaction.id, output))
        else:
            self._kept_back.append(output)
        self._emit("range")

    async def _drop(self, reason: str) -> None:
        await self._context.driver.commit(DropCompaction(self.compaction.epoch, self.compaction.id))
        self._context.stats.dropped += 1
        logger.info("%s: compaction %s was dropped: %s", self._context.driver.name, self.compaction.id, reason)
        self._emit("dropped", reason)

    def _emit(self, kind: EventKind, message: str = "") -> None:
        ranges = len(self.compaction.bounds) + 1
        known_before = len(self.compaction.finished) * self._rows_total // ranges
        done = known_before + sum(counts.rows_in for counts in self._merged.values())
        self._context.emit(
            CompactionEvent(
                kind,
                self.compaction.id,
                self.compaction.target_level,
                rows_done=self._rows_total if kind == "committed" else min(done, self._rows_total),
                rows_total=self._rows_total,
                ranges_done=len(self._finished),
                ranges_total=ranges,
                message=message,
            )
        )
