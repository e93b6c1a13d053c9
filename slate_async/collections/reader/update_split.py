"""`UpdateSplit`: updates between two times, as any process reads them under the hold of the one that planned it.

An update at a time that since has not reached stands in one batch alone, because nothing moved its time (C2). So splits
are pieces of batches: objects of merged ones, and pending ones; nothing has to be merged across them.

Rules C2, C3, C4, C14 and C15 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import mask_array
from slate_async.collections.codec.life import Appends
from slate_async.collections.core import reading
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.lending import LentHold
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch
from slate_async.collections.reader.lending import TaskHold
from slate_async.collections.reader.sources import pending_tables
from slate_async.collections.store.merged import MergedSource
from slate_async.objectstore.protocol import ObjectNotFoundError


@dataclass(frozen=True, slots=True)
class MergedPiece:
    """The object ``part`` of a merged batch."""

    batch: MergedBatch
    part: int

    @property
    def nbytes(self) -> int:
        """About how many it has."""
        return self.batch.nbytes if not self.batch.parts else PART_GUESS


Piece = MergedPiece | Taken[PendingBatch]
PART_GUESS = 16 << 20
"""Of a part, whose size its index says: a planner reads none."""


@dataclass(frozen=True, slots=True)
class UpdateSplit:
    """The updates in ``pieces`` at times beyond ``lower`` and not beyond ``upper``. It can be pickled.

    collection: the uuid of the life"""

    collection: UUID
    hold: LentHold
    pieces: tuple[Piece, ...]
    lower: Frontier
    upper: Frontier

    async def batches(self, context: ReaderContext) -> AsyncGenerator[pa.RecordBatch, None]:
        """The updates, at the times they were written at; each data and time once, or in several rows whose diffs add
        up where a large batch was written so.

        Raises `LeaseLostError`, `ClosedError`, `CorruptionError`, `UnavailableError`; no wrong rows."""
        hold = TaskHold(context, self.hold)
        try:
            for piece in self.pieces:
                async with aclosing(self._tables(context, piece)) as tables:
                    async for table in tables:
                        lower = self.lower if isinstance(piece, MergedPiece) else self.lower.join(piece.start)
                        given = await context.runtime.offload.run(partial(self._chosen, context.schema, table, lower))
                        if given.num_rows and context.appends is Appends.COMPARE and not isinstance(piece, MergedPiece):
                            await hold.check_standing()
                        if given.num_rows:
                            yield given
        except ObjectNotFoundError as error:
            raise await hold.explain("it is missing", error.key) from error

    def _chosen(self, schema: UpdateSchema, table: pa.Table, lower: Frontier) -> pa.RecordBatch:
        updates = one_batch(table, schema.arrow)
        times = schema.times(updates)
        wanted = lower.mask(times) & np.logical_not(self.upper.mask(times))
        updates = updates if wanted.all() else updates.filter(mask_array(wanted))
        return consolidate(updates, schema, keep=True) if updates.num_rows else updates

    async def _tables(self, context: ReaderContext, piece: Piece) -> AsyncGenerator[pa.Table, None]:
        tables: AsyncIterator[pa.Table]
        if isinstance(piece, MergedPiece):
            batch, offload = piece.batch, context.runtime.offload
            opening = partial(MergedSource.open, context.store, context.schema, batch, offload)
            tables = (await context.answered(f"a read of {batch.name}", opening)).read(piece.part)
        else:
            tables = pending_tables(context, piece.batch)
        async for table in tables:
            yield table


def split_updates(
    collection: UUID,
    hold: LentHold,
    area: Area,
    taken: Iterable[Taken[PendingBatch]],
    lower: Frontier,
    upper: Frontier,
    nbytes: int,
) -> list[UpdateSplit]:
    """Splits that hold every update at a time beyond ``lower`` and not beyond ``upper`` once, of about ``nbytes`` each:
    those of ``area``, which ``hold`` covers and whose since is strictly below ``lower`` (C2), and of what is ``taken``
    beyond it."""
    pieces: list[Piece] = []
    for batch in area.batches:
        if batch.rows and not reading.is_skipped(batch.bounds, lower) and not upper <= batch.bounds.lower:
            named = replace(batch, unknown={})
            pieces += [MergedPiece(named, part) for part in range(max(batch.parts, 1))]
    for found in taken:
        if not found.end <= lower and not upper <= found.start:
            pieces.append(replace(found, batch=replace(found.batch, content=None)))
    splits: list[UpdateSplit] = []
    some: list[Piece] = []
    size = 0
    for piece in pieces:
        weight = piece.nbytes if isinstance(piece, MergedPiece) else piece.batch.nbytes
        if some and size + weight > nbytes:
            splits.append(UpdateSplit(collection, hold, tuple(some), lower, upper))
            some, size = [], 0
        some.append(piece)
        size += weight
    if some:
        splits.append(UpdateSplit(collection, hold, tuple(some), lower, upper))
    return splits
