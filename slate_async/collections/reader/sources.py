"""Sorted rows of merged and pending batches, as a snapshot's merge takes them.

Everything that a filter or a key range rules out by parts' edges or row groups' statistics is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from slate_async.codec.arrays import mask_array
from slate_async.collections.codec.merged_read import MergedFile
from slate_async.collections.codec.statistics import group_ranges
from slate_async.collections.core import filtering, ordering
from slate_async.collections.core.answers import snapshot_rows
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.filtering import ColumnRange, Condition
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.lowest import LowestKeys, copied
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.splitting import KeySplit, Span
from slate_async.collections.core.times import Time
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch
from slate_async.collections.store.merged import MergedSource
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.gather import gather

T = TypeVar("T")
SLICE_ROWS = 1 << 16
PARALLEL_READS = 16
TOGETHER = 64
"""Objects that together have this part of the memory for pending updates are read at once."""

EVERYTHING: KeySplit[Key] = KeySplit(None, None, 0)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows: times at or before ``as_of``, data that pass ``where`` and lie in ``span``."""

    schema: UpdateSchema
    as_of: Time
    where: tuple[Condition, ...]
    span: KeySplit[Key]

    @property
    def is_part(self) -> bool:
        """Whether ``span`` leaves data out."""
        return self.span.start is not None or self.span.end is not None

    def of_sorted(self, table: pa.Table) -> pa.RecordBatch:
        """Those of ``table``, which is sorted."""
        return self._chosen(self._within(one_batch(table, self.schema.arrow)))

    def of_unsorted(self, table: pa.Table, covered: Frontier | None) -> pa.RecordBatch:
        """Those of ``table`` at times beyond ``covered``, at ``as_of``, in any order."""
        updates = one_batch(table, self.schema.arrow)
        if covered is not None:
            updates = updates.filter(mask_array(covered.mask(self.schema.times(updates))))
        updates = self._chosen(updates)
        updates = self.schema.with_times(updates, Frontier([self.as_of]).advance_by(self.schema.times(updates)))
        if not self.is_part:
            return updates
        order = ordering.sorted_order(ordering.key_columns(updates, self.schema))
        return copied(self._within(updates.take(order)))

    def overlaps(self, first: Key | None, last: Key | None) -> bool:
        """Whether rows from ``first`` to ``last`` may lie in ``span``; ``None``: not known. A ``last`` of fewer columns
        stands for all keys that begin with it."""
        start, end = self.span.start, self.span.end
        if start is not None and last is not None and last < start[: len(last)]:
            return False
        return end is None or first is None or first < end

    def _chosen(self, updates: pa.RecordBatch) -> pa.RecordBatch:
        return snapshot_rows(filtering.filtered(updates, self.where), self.schema, self.as_of)

    def _within(self, updates: pa.RecordBatch) -> pa.RecordBatch:
        start, end = self.span.start, self.span.end
        if start is None and end is None:
            return updates
        columns = ordering.key_columns(updates, self.schema)
        first = 0 if start is None else ordering.rows_before(columns, start)
        last = updates.num_rows if end is None else ordering.rows_before(columns, end)
        return updates.slice(first, last - first)


async def merged_rows(
    context: ReaderContext,
    source: MergedSource,
    chosen: Selection,
    make: Callable[[pa.Table], T],
    *,
    at_once: int,
) -> AsyncGenerator[T]:
    """What ``make`` gives of each row group of a merged batch that may have chosen rows, in order.

    at_once: see `MergedSource.read_as`"""
    edges = part_edges(source, context.schema)
    for part in range(len(source.parts)):
        if not chosen.overlaps(*edges[part]):
            continue
        file = await context.answered("a read of a footer", partial(source.file, part))
        for groups in await context.runtime.offload.run(partial(_wanted_groups, file, chosen)):
            async with aclosing(source.read_as(make, part, groups, at_once=at_once)) as found:
                async for rows in found:
                    yield rows


async def lowest_pending(
    context: ReaderContext, taken: Sequence[Taken[PendingBatch]], chosen: Selection
) -> tuple[list[pa.RecordBatch], Key | None]:
    """The chosen rows of pending batches, sorted and in slices: those before a key, as many as fit into memory. And
    that key, unless they are all.

    Raises `ObjectNotFoundError` for a batch that is missing, or another one than was found."""
    found, offload = LowestKeys(context.schema, context.pending_memory_bytes), context.runtime.offload

    async def read(batch: Taken[PendingBatch]) -> None:
        covered = None if batch.is_whole else batch.start
        async with aclosing(pending_tables(context, batch.batch)) as tables:
            async for table in tables:
                rows = await offload.run(partial(chosen.of_unsorted, table, covered))
                async with adding:
                    await offload.run(partial(found.add, rows))

    adding = asyncio.Lock()  # one at a time: it is the worker's while that runs
    waiting = list(taken)
    while waiting:
        count = together(context, [batch.batch.nbytes for batch in waiting])
        await gather([read(batch) for batch in waiting[:count]])
        waiting = waiting[count:]
    return await offload.run(partial(found.slices, SLICE_ROWS)), found.end


def together(context: ReaderContext, sizes: Sequence[int]) -> int:
    """How many of the first objects, of so many bytes, are read at once: one at least."""
    count = nbytes = 0
    for size in sizes[:PARALLEL_READS]:
        nbytes += size
        if count and nbytes > context.pending_memory_bytes // TOGETHER:
            break
        count += 1
    return count


def part_edges(source: MergedSource, schema: UpdateSchema) -> list[tuple[Key | None, Key | None]]:
    """The first and last data of each part, as far as they are known."""
    if source.edges is None:
        return [(None, None)] * len(source.parts)
    columns = [ordering.comparable(source.edges.column(name)) for name in schema.data.names]
    return [
        (ordering.key_of(columns, 2 * part), ordering.key_of(columns, 2 * part + 1))
        for part in range(len(source.parts))
    ]


async def spans_of(context: ReaderContext, source: MergedSource) -> list[Span[Key]]:
    """Spans of keys with their rows: parts, or of a batch of one part its row groups."""
    if source.edges is not None:
        edges = part_edges(source, context.schema)
        known = [(*edge, part.rows) for edge, part in zip(edges, source.parts, strict=True)]
    elif source.parts:
        file = await context.answered("a read of a footer", partial(source.file, 0))
        groups = range(len(file.groups))
        known = [(*_group_edges(file, group, context.schema), file.groups[group].rows) for group in groups]
    else:
        known = []
    return [Span(first, last, rows) for first, last, rows in known if first is not None and last is not None]


def _wanted_groups(file: MergedFile, chosen: Selection) -> list[range]:
    every = range(len(file.groups))
    asked = {condition.column for condition in chosen.where}
    return _runs(
        [
            group
            for group in every
            if filtering.may_pass(chosen.where, group_ranges(file.metadata, group, chosen.schema, asked))
            and chosen.overlaps(*_group_edges(file, group, chosen.schema))
        ]
        if asked or chosen.is_part
        else every
    )


def _group_edges(file: MergedFile, group: int, schema: UpdateSchema) -> tuple[Key | None, Key | None]:
    """The least and the greatest key of the first data column, if they are known. Not of floats: Parquet leaves NaNs
    out and does not tell zeros apart."""
    field = schema.data.field(0)
    known: ColumnRange = group_ranges(file.metadata, group, schema, {field.name})[field.name]
    if known.low is None or known.high is None or known.nulls is None or pa.types.is_floating(field.type):
        return None, None
    column = ordering.comparable(pa.array([known.low, known.high], field.type))
    return ordering.key_of([column], 0), ((True, 0),) if known.nulls else ordering.key_of([column], 1)


def _runs(groups: Sequence[int]) -> list[range]:
    """``groups`` as ranges of those that follow one another."""
    runs: list[range] = []
    for group in groups:
        if runs and runs[-1].stop == group:
            runs[-1] = range(runs[-1].start, group + 1)
        else:
            runs.append(range(group, group + 1))
    return runs


async def pending_tables(context: ReaderContext, batch: PendingBatch) -> AsyncGenerator[pa.Table, None]:
    """The updates of a pending batch as they were written, a part at a time.

    Raises `ObjectNotFoundError` if it is missing, or another one than was found."""
    name, found = batch.name, batch.content
    if batch.data is not None:
        found = await context.pending.decoded(name, batch.data)
    elif found is None:
        found = await context.answered(f"a read of {name}", lambda: context.pending.read(name))
    if found is None or batch.token not in (None, found.description.token):
        raise ObjectNotFoundError(context.pending.where(name))
    if found.updates is not None:
        yield found.updates
        return
    async for table in context.pending.parts(name, found.description):
        yield table
