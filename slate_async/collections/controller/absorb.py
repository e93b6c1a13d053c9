"""Taking in what is pending: all that is contiguous from the merged upper, as ONE batch, in bounded memory.

Updates are collected up to a share of the memory, sorted and consolidated. If that is all, it is the batch. Otherwise
it is put as a *run*, a merged file that no version ever names; the runs are merged then, as many at once as the memory
takes, and deleted.

What was read of a chain is put only if a head that is read afterwards has not moved on: else it may be a dead batch.
Nothing may end beyond the head where no link of the chain does (C30).

Times are advanced to the since of the merged area, which nobody reads before (C1).

Rules C1, C4, C7, C21 to C23 and C30 of collections.
"""

from __future__ import annotations

from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.executor import LocalExecutor, MergeTask
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.memory import at_once
from slate_async.collections.controller.output import MergedOutput
from slate_async.collections.controller.pending import PendingBatch, pieces
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import MergedName
from slate_async.collections.core.slices import one_batch, slices_of
from slate_async.collections.store.merged import delete_merged
from slate_async.errors import UnavailableError

RUN_SHARE = 12
"""Updates are sorted when they fill this part of the memory: sorting takes as much again, several times, and what is
read together takes some."""
MOST_RUN_BYTES = 1 << 30
RUN_PART_BYTES = 4 << 20
"""Runs are put in small parts, so that reading many at once takes little."""
SLICE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What was pending, as a batch that was put. ``last``: token of the append that ends it.

    appends: how many pending batches it is made of
    scratch: files to delete, because no version will name them"""

    batch: MergedBatch
    last: str
    appends: int
    rows: int
    scratch: tuple[str, ...] = ()


@dataclass(slots=True)
class _Taken:
    """What was taken so far. ``waiting``: not sorted yet."""

    upper: Frontier
    last: str = ""
    appends: int = 0
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    nbytes: int = 0
    runs: list[MergedBatch] = field(default_factory=list)


class Absorption:
    """Takes in what is pending once. All that it puts is in flight until ``flying`` is closed (C22)."""

    def __init__(self, context: ControllerContext, flights: Flights, epoch: int, head: Area, flying: ExitStack) -> None:
        self._context = context
        self._flights = flights
        self._epoch = epoch
        self._head = head
        self._flying = flying
        self._run_bytes = min(context.merge_memory_bytes // RUN_SHARE, MOST_RUN_BYTES)
        self._scratch: list[str] = []

    async def absorb(self, batches: list[PendingBatch]) -> Absorbed | None:
        """Put all that extends the head as one batch; ``None`` if nothing does.

        Raises `ObjectNotFoundError` for a batch that was listed and is missing, `CorruptionError`,
        `UnavailableError`."""
        context, head = self._context, self._head
        taken = _Taken(head.upper)
        async with aclosing(pieces(context, batches, head.upper)) as found:
            async for piece in found:
                taken.upper, taken.last = piece.upper, piece.token
                taken.appends += piece.first
                for rows in piece.updates.to_batches():
                    taken.waiting.append(rows)
                    taken.rows += rows.num_rows
                    taken.nbytes += rows.nbytes
                if taken.nbytes > self._run_bytes:
                    taken.runs.append(await self._run(taken))
        if taken.upper == head.upper or not await self._counts():
            return None
        bounds = Bounds(head.upper, taken.upper, head.since)
        batch = await (self._merged(taken, bounds) if taken.runs else self._written(taken, bounds))
        return Absorbed(batch, taken.last, taken.appends, taken.rows, tuple(self._scratch))

    async def _counts(self) -> bool:
        """C30: whether what was read of a chain is part of it, by a head that is read afterwards. If that has moved on,
        what was read may be a dead batch at a name that was collected (C7)."""
        context = self._context
        if context.appends is Appends.DEFINITE:
            return True
        now = await context.answered("a read of the head", context.versions.load)
        return now.upper <= self._head.upper

    async def _written(self, taken: _Taken, bounds: Bounds, part_bytes: int | None = None) -> MergedBatch:
        """What waits, as one batch."""
        context = self._context
        waiting, taken.waiting, taken.nbytes = taken.waiting, [], 0
        rows = await context.runtime.offload.run(partial(self._sorted, waiting))
        output = self._output(self._name(bounds), bounds, part_bytes or context.part_bytes)
        for piece in slices_of(rows, SLICE_ROWS):
            await output.add(piece)
        return await output.finish()

    async def _run(self, taken: _Taken) -> MergedBatch:
        """What waits, as a run."""
        run = await self._written(taken, self._scratch_bounds, RUN_PART_BYTES)
        return self._noted(run)

    async def _merged(self, taken: _Taken, bounds: Bounds) -> MergedBatch:
        """All runs, as one batch."""
        runs = taken.runs
        if taken.waiting:
            runs.append(await self._run(taken))
        while len(runs) > (most := at_once(self._context.merge_memory_bytes, runs)):
            some, runs = runs[:most], runs[most:]
            runs.append(self._noted(await self._merge(some, self._scratch_bounds, RUN_PART_BYTES)))
        return await self._merge(runs, bounds, self._context.part_bytes)

    async def _merge(self, runs: list[MergedBatch], bounds: Bounds, part_bytes: int) -> MergedBatch:
        context = self._context
        task = MergeTask(
            context.schema, tuple(run for run in runs if run.rows), self._name(bounds), bounds, bounds.since, part_bytes
        )
        return await LocalExecutor(context.store, context.runtime.offload).merge(task)

    @property
    def _scratch_bounds(self) -> Bounds:
        """No version names a run, so its bounds say nothing."""
        return Bounds(self._head.upper, self._head.upper, self._head.since)

    def _noted(self, run: MergedBatch) -> MergedBatch:
        self._scratch += [run.name, *(f"{run.name}.p{part:05}" for part in range(run.parts))]
        return run

    def _name(self, bounds: Bounds) -> MergedName:
        """A name that is in flight from now on (C22, C23)."""
        name = MergedName(bounds.lower, bounds.upper, self._epoch, self._context.runtime.ids.token())
        self._flying.enter_context(self._flights.of(str(name)))
        return name

    def _output(self, name: MergedName, bounds: Bounds, part_bytes: int) -> MergedOutput:
        context = self._context
        return MergedOutput(context.store, context.schema, name, bounds, context.runtime.offload, part_bytes)

    def _sorted(self, waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
        """What waits, advanced, sorted and consolidated; it waits no more."""
        schema = self._context.schema
        rows = one_batch(waiting, schema.arrow)
        waiting.clear()
        rows = schema.with_times(rows, self._head.since.advance_by(schema.times(rows)))
        return consolidate(rows, schema, keep=True)


async def delete_scratch(context: ControllerContext, absorbed: Absorbed) -> None:
    """Delete the runs of ``absorbed``. What is left by a failure is garbage that nothing names."""
    if absorbed.scratch:
        with suppress(UnavailableError):
            await delete_merged(context.store, absorbed.scratch)
