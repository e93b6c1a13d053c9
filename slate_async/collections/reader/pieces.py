"""What lies before a listener, piece by piece in the order of time: merged batches of the version it began with, then
pending batches. And how much of it is read at once.

Small pieces are read together, and their updates given together, up to about ``pending_memory_bytes``. Of a piece that
does not fit the first times are given; another pass over it goes on from there.

Rules C2, C3 and C4 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import islice

import pyarrow as pa

from slate_async.collections.codec.parts import MAX_PART_BYTES
from slate_async.collections.core import reading
from slate_async.collections.core.answers import listened_rows
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.earliest import Earliest, from_first
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.times import Time
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch
from slate_async.collections.reader.sources import pending_tables, together
from slate_async.collections.store.merged import MergedSource
from slate_async.runtime.gather import gather


@dataclass(frozen=True, slots=True)
class Piece:
    """Updates of one batch that a listener gives next.

    covered: only those at times beyond it
    end: how far they take the listener
    first: only those that are given at times with that first coordinate, or later
    """

    batch: MergedBatch | PendingBatch
    covered: Frontier
    end: Frontier
    first: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether it was found in the pending area, not handed over by the writer that had it acknowledged."""
        return isinstance(self.batch, PendingBatch) and self.batch.data is None

    @property
    def nbytes(self) -> int:
        """Of its objects, or more."""
        return MAX_PART_BYTES if isinstance(self.batch, MergedBatch) and self.batch.parts else self.batch.nbytes


@dataclass(frozen=True, slots=True)
class Found:
    """What was read: ``updates`` of the first ``pieces``, or, if that is 0, of the first one those before ``end``."""

    updates: pa.Table
    pieces: int
    end: int | None
    is_pending: bool


def merged_pieces(area: Area, covered: Frontier) -> list[Piece]:
    """What ``area`` holds for a listener that has come to ``covered`` (C3)."""
    wanted = [batch for batch in area.batches if not reading.is_skipped(batch.bounds, covered)]
    return [Piece(batch, covered, covered.join(batch.bounds.upper)) for batch in wanted]


def pending_pieces(taken: Iterable[Taken[PendingBatch]], covered: Frontier) -> list[Piece]:
    """What pending batches hold for a listener that began at ``covered`` (C4)."""
    pieces = [Piece(each.batch, covered.join(each.start), covered.join(each.end)) for each in taken]
    return [piece for piece in pieces if not piece.end <= piece.covered]


class PiecesReader:
    """Reads for one listener. ``as_of``: where it began; ``None`` after a restart."""

    def __init__(self, context: ReaderContext, as_of: Time | None) -> None:
        self._context = context
        self._as_of = as_of

    async def read(self, pieces: Sequence[Piece]) -> Found:
        """The updates of as many of the first ``pieces`` as fit, sorted and consolidated.

        Raises `ObjectNotFoundError` for a batch that is missing, or another one than was found."""
        limit = self._context.pending_memory_bytes
        rows: list[pa.RecordBatch] = []
        nbytes = count = 0
        full = False
        while not full and count < len(pieces) and nbytes <= limit // 2:
            some = pieces[count : count + together(self._context, [piece.nbytes for piece in pieces[count:]])]
            reads = [self._earliest(piece, limit - nbytes, divide=piece is pieces[0]) for piece in some]
            for part in await gather(reads):
                if part.end is not None and not count:
                    return Found(await self._consolidated(part.rows), 0, part.end, some[0].is_pending)
                if part.end is not None or (count and nbytes + part.nbytes > limit):
                    full = True  # the next read begins with it
                    break
                rows, nbytes, count = rows + part.rows, nbytes + part.nbytes, count + 1
        is_pending = any(piece.is_pending for piece in islice(pieces, count))
        return Found(await self._consolidated(rows), count, None, is_pending)

    async def _earliest(self, piece: Piece, limit: int, *, divide: bool) -> Earliest:
        """The first updates of ``piece`` that fit; unless it is to be divided, this ends once some do not."""
        found, offload = Earliest(self._context.schema, limit), self._context.runtime.offload
        async with aclosing(self._tables(piece)) as tables:
            async for table in tables:
                await offload.run(partial(self._add, piece, table, found))
                if found.end is not None and not divide:
                    break
        return found

    def _add(self, piece: Piece, table: pa.Table, found: Earliest) -> None:
        found.add(self._chosen(piece, table))

    async def _tables(self, piece: Piece) -> AsyncGenerator[pa.Table, None]:
        context = self._context
        tables: AsyncIterator[pa.Table]
        if isinstance(piece.batch, PendingBatch):
            tables = pending_tables(context, piece.batch)
        elif not piece.batch.rows:
            return
        else:
            opening = partial(MergedSource.open, context.store, context.schema, piece.batch, context.runtime.offload)
            tables = (await context.answered(f"a read of {piece.batch.name}", opening)).updates()
        async for table in tables:
            yield table

    def _chosen(self, piece: Piece, table: pa.Table) -> pa.RecordBatch:
        schema = self._context.schema
        updates = listened_rows(one_batch(table, schema.arrow), schema, piece.covered, self._as_of)
        return from_first(updates, schema, piece.first) if piece.first else updates

    async def _consolidated(self, rows: list[pa.RecordBatch]) -> pa.Table:
        schema = self._context.schema

        def run() -> pa.Table:
            return pa.Table.from_batches([consolidate(one_batch(rows, schema.arrow), schema, keep=True)])

        return await self._context.runtime.offload.run(run)
