"""Merges as tasks that any process can run: `MergeTask`, and the `Executor` that runs them.

A task names its inputs and its output, and says to what times are advanced. Running it puts the output's objects and
commits nothing, so a task that is lost, or run twice, leaves garbage of a name that nothing else has (C23).

Rules C1, C21 and C23 of collections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from slate_async.collections.controller.output import MergedOutput
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.merging import BoundedMerge
from slate_async.collections.core.names import MergedName
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.merged import PART_BYTES, MergedSource
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.gather import gather
from slate_async.runtime.protocol import Offload


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Neighbours to be written as one batch. It can be pickled.

    inputs: oldest first
    output: the name of the batch to write
    bounds: of the output; its since is what the times of the output are compacted to, at most
    since: times are advanced to it
    part_bytes: of the objects of a large output
    """

    schema: UpdateSchema
    inputs: tuple[MergedBatch, ...]
    output: MergedName
    bounds: Bounds
    since: Frontier
    part_bytes: int = PART_BYTES

    def picklable(self) -> MergeTask:
        """The same without fields of newer versions, which a merge does not look at."""
        return replace(self, inputs=tuple(replace(batch, unknown={}) for batch in self.inputs))


class Executor(Protocol):
    """Runs merges."""

    async def merge(self, task: MergeTask) -> MergedBatch:
        """Put the output of ``task``, and return what a version says of it. Its inputs are those that a version named.

        Raises `ObjectNotFoundError` for an input that is missing: it may have been merged and collected meanwhile;
        `CorruptionError`, `UnavailableError`. A cancelled call may have put any of the output's objects."""
        ...


class LocalExecutor:
    """Runs merges in this process: a slice at a time in a worker thread, so that the loop is never held.

    store: the folder of the life"""

    def __init__(self, store: ObjectStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload

    async def merge(self, task: MergeTask) -> MergedBatch:
        """See `Executor`."""
        schema, store, offload = task.schema, self._store, self._offload
        merging = BoundedMerge(schema, task.since, [whole_key(store, batch.name) for batch in task.inputs])
        output = MergedOutput(store, schema, task.output, task.bounds, offload, task.part_bytes)
        async with AsyncExitStack() as stack:
            slices = [
                await stack.enter_async_context(aclosing(_slices(store, schema, batch, offload)))
                for batch in task.inputs
            ]
            while not merging.is_done:
                wanted = merging.wanted
                read = await gather([_next(slices[number]) for number in wanted])
                given = await offload.run(_Step(merging, wanted, read, schema.arrow))
                await output.add(given)
                await asyncio.sleep(0)
        return await output.finish()


@dataclass(frozen=True, slots=True)
class _Step:
    """What a worker thread does between two reads."""

    merging: BoundedMerge
    wanted: Sequence[int]
    read: Sequence[pa.Table | None]
    schema: pa.Schema

    def __call__(self) -> pa.RecordBatch:
        return self.merging.step(
            (number, self._rows(table)) for number, table in zip(self.wanted, self.read, strict=True)
        )

    def _rows(self, table: pa.Table | None) -> pa.RecordBatch | None:
        return None if table is None else one_batch(table, self.schema)


async def _slices(
    store: ObjectStore, schema: UpdateSchema, batch: MergedBatch, offload: Offload
) -> AsyncGenerator[pa.Table, None]:
    """The updates of ``batch``, one row group after another."""
    source = await MergedSource.open(store, schema, batch, offload)
    async for table in source.updates():
        yield table


async def _next(slices: AsyncGenerator[pa.Table, None]) -> pa.Table | None:
    return await anext(slices, None)
