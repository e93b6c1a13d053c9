"""`Writer`: the handle through which a process appends to a collection.

States: open -> closing (from the first step of `Writer.close` on every call fails, and what was accepted goes on) ->
closed. All methods belong to the event loop that opened it.

Cancellation: until an append is accepted, cancelling it changes nothing. From then on it is owned by its task, and may
be in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pyarrow as pa

from slate_async.codec.arrays import is_larger
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.names import COMPARE_SHARD, check_name
from slate_async.collections.core.updates import UpdatesLike
from slate_async.collections.store.pending import OFFLOAD_BYTES
from slate_async.collections.writer.backlog import Backlog
from slate_async.collections.writer.batches import Batch, bounds_of, check_values, naming, sum_of_diffs
from slate_async.collections.writer.builder import BatchBuilder, PartsWriter
from slate_async.collections.writer.compare import CompareAppend, CompareAppends
from slate_async.collections.writer.definite import DefiniteAppend, DefiniteAppends
from slate_async.collections.writer.pipeline import Pipeline
from slate_async.collections.writer.puts import WriterContext
from slate_async.errors import InvalidError
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.supervisor import Supervisor

FLUSH_PARALLELISM = 16
"""Definite appends of one writer that are in flight at once."""

_Appends: TypeAlias = DefiniteAppends | CompareAppends


def shard_of(writer: str, appends: Appends) -> str:
    """What the appends of ``writer`` go to. Raises `InvalidError` for a name that no writer may have."""
    check_name(writer, "writer")
    return COMPARE_SHARD if appends is Appends.COMPARE else writer


async def open_writer(
    context: WriterContext,
    appends: Appends,
    *,
    flush_parallelism: int = FLUSH_PARALLELISM,
) -> Writer:
    """A writer of ``context.shard``, which goes on where that ends.

    flush_parallelism: definite appends in flight at once; compare appends go one by one

    Raises `ClosedError` if the collection was deleted, `UnavailableError`."""
    if flush_parallelism < 1:
        raise InvalidError(f"flush_parallelism is at least 1, not {flush_parallelism}")
    kind: _Appends = CompareAppends(context) if appends is Appends.COMPARE else DefiniteAppends(context)
    await kind.restart()
    return Writer(context, kind, 1 if appends is Appends.COMPARE else flush_parallelism)


class Writer(LoopHandle):
    """Made by `open_writer`; see the module docstring for its states. ``async with`` closes it."""

    def __init__(
        self,
        context: WriterContext,
        appends: _Appends,
        parallelism: int,
    ) -> None:
        super().__init__(f"the writer of {context.name}")
        self._context = context
        self._appends = appends
        self._supervisor = Supervisor(f"{context.name}/writer {context.shard}", lambda cause: None)
        self._backlog = Backlog(context, appends.pending)
        self._pipeline = Pipeline(self._supervisor, parallelism, appends.go_back)

    @property
    def upper(self) -> Frontier:
        """All updates at times that are not beyond it are in the collection, as far as this writer knows: what is
        acknowledged, and of a ``compare`` collection what others had appended at the last look."""
        return self._appends.coverage

    async def append(self, updates: UpdatesLike, *, upper: FrontierLike, lower: FrontierLike | None = None) -> None:
        """Append ``updates``, which are all that were written at times beyond ``lower`` and not beyond ``upper``.

        updates: Arrow columns, or ``(data, time, diff)`` rows; none say that nothing happened until ``upper``
        lower: where the last append ended if left out. A ``compare`` collection is expected to end there

        A definite append drops what is in already, so it may be repeated. On return all of it is in; after an error
        nothing is if its outcome is ``"not_applied"``, and all of it may be, now or later, if that is ``"unknown"``.

        Raises `InvalidError` for updates that are wrong, naming the row; `UpperMismatchError` for a gap, or a
        collection that ends elsewhere; `UnavailableError` past the deadline; `ClosedError`."""
        self._guard.check("not_applied")
        of_rows = not isinstance(updates, pa.RecordBatch | pa.Table)
        with naming(self._context.name):
            given = self._context.schema.batch(updates) if of_rows else updates  # what the caller may change is copied

        async def prepare() -> Batch:
            if self._backlog.is_full:
                await self._backlog.room()
            with naming(self._context.name):
                return await self._prepared(given, lower, upper, of_rows)

        await self._append(prepare)

    async def _append(self, prepare: Callable[[], Awaitable[Batch]]) -> None:
        stats, clock = self._context.stats, self._context.runtime.clock
        began = clock.monotonic()
        stats.calls += 1
        try:
            await self._pipeline.append(prepare, self._accept)
        finally:
            stats.seconds += clock.monotonic() - began

    def batch(self, lower: FrontierLike | None = None, *, upper: FrontierLike) -> BatchBuilder:
        """A batch of any size in bounded memory: ``async with writer.batch(lower, upper=120) as batch``, then
        ``await batch.add(updates)`` any number of times. It is appended, as a whole, when the block ends; or nothing of
        it, if the block raises or a call of ``add`` failed, though that was caught.

        Sums of differences are checked within each part of ``part_bytes``. Where those of several do not fit int64, all
        is kept, and a snapshot raises `SumError`. Raises as `append`."""

        def begin() -> PartsWriter:
            return self._parts(lower, upper)

        async def append(batch: Batch) -> None:
            async def prepare() -> Batch:
                if self._backlog.is_full:
                    await self._backlog.room()
                return batch

            await self._append(prepare)

        return BatchBuilder(begin, lambda: self._guard.check("not_applied"), append)

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, by dotted name."""
        return self._context.stats.metrics()

    async def close(self) -> None:
        """Wait for all appends that were accepted, then close. Idempotent. May be cancelled: the closing goes on, and
        another call waits for it."""
        await self._end()

    async def _finish(self) -> None:
        try:
            await self._pipeline.drain()
        finally:
            await self._supervisor.close()

    def _accept(self, batch: Batch) -> DefiniteAppend | CompareAppend:
        self._guard.check("not_applied")
        placed = self._appends.place(batch)
        if placed.batch is not None:
            self._backlog.add(placed.batch.bounds.upper)
            self._context.stats.rows += placed.batch.rows
        return placed

    def _parts(self, lower: FrontierLike | None, upper: FrontierLike) -> PartsWriter:
        appends = self._appends
        with naming(self._context.name):
            bounds = bounds_of(appends.accepted if lower is None else lower, upper, self._context.schema)
        is_compare = isinstance(appends, CompareAppends)
        return PartsWriter(self._context, self._supervisor, bounds, appends.known(bounds), is_compare=is_compare)

    async def _prepared(
        self, updates: pa.RecordBatch | pa.Table, lower: FrontierLike | None, upper: FrontierLike, of_rows: bool
    ) -> Batch:
        """``of_rows``: ``updates`` were made of rows here, so they have their columns."""
        self._guard.check("not_applied")
        if is_larger(updates, self._context.part_bytes):
            parts = self._parts(lower, upper)
            await parts.add(updates)
            return await parts.finish()
        self._context.stats.nbytes += updates.get_total_buffer_size() if of_rows else updates.nbytes
        schema = self._context.schema
        bounds = bounds_of(self._appends.accepted if lower is None else lower, upper, schema)

        def batch() -> Batch:
            found = updates if of_rows else schema.batch(updates)
            check_values(found, schema, bounds)
            return Batch(bounds, token, found.num_rows, sum_of_diffs(found), found)

        token = self._context.runtime.ids.token()
        large = is_larger(updates, OFFLOAD_BYTES)
        return await self._context.runtime.offload.run(batch) if large else batch()
