"""`Snapshot`: the contents of a collection at one time, in sorted batches.

Merged batches are read a row group at a time and merged with what is pending. If that does not fit into memory, there
are passes by ranges of data. A version's batches are used only if they tell ``as_of`` apart (C3). What was read of the
pending area of a ``compare`` collection is given out only after the hold was found to stand (C14).

Rules C3, C4, C14 and C15 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import pyarrow as pa

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import splitting
from slate_async.collections.core.answers import expanded
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.errors import SumError
from slate_async.collections.core.filtering import Condition
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.merging import BoundedMerge
from slate_async.collections.core.ordering import Key
from slate_async.collections.core.slices import slices_of
from slate_async.collections.core.splitting import KeySplit, Span
from slate_async.collections.core.times import Time
from slate_async.collections.core.updates import DIFF
from slate_async.collections.reader import alone, sources
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch
from slate_async.collections.reader.pins import Pin
from slate_async.collections.store.merged import MergedSource
from slate_async.errors import InvalidError, SlateError
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.gather import gather
from slate_async.runtime.loop_iterator import iterated

ROWS_AT_ONCE = 1024
"""So many become Python values at a time: the loop is not held for long."""


class Standing(Protocol):
    """The hold under which a snapshot is read: the handle's own, or one that another process lent."""

    async def check_standing(self) -> None:
        """C14: raise `LeaseLostError` unless it stands now."""
        ...

    async def explain(self, what: str, object_name: str) -> SlateError:
        """C15: the error for ``what``, which a hold that stands rules out."""
        ...


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """What a snapshot is read from, by all its splits.

    taken: the pending batches beyond the version that is pinned
    check: raises if the handle is closed
    """

    context: ReaderContext
    hold: Standing
    taken: tuple[Taken[PendingBatch], ...]
    as_of: Time
    where: tuple[Condition, ...]
    check: Callable[[], None]


class Snapshot:
    """Made by `ReadHandle.snapshot`. It keeps what it reads until it is closed or dropped; ``async with`` closes it.

    It may be read several times, and by several tasks. Columns: the data, the time, which is ``as_of``, and ``_diff``,
    which is never 0; rows are sorted by data."""

    as_of: Time
    """The time it shows."""
    upper: Frontier
    """How far the collection was known when it was made."""
    span: KeySplit[Key]
    """Of its data: a split has a part of them."""
    pin: Pin
    """Keeps its version."""

    def __init__(
        self, source: SnapshotSource, pin: Pin, upper: Frontier, span: KeySplit[Key] = sources.EVERYTHING
    ) -> None:
        self._source = source
        self.pin = pin
        self.span = span
        self._closed = False
        self.as_of = source.as_of
        self.upper = upper

    async def batches(self, *, expand: bool = False) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows, in batches of some size. An iteration that ends early is to be closed (``aclose``).

        expand: the data alone, each row as often as its ``_diff`` says. One that is there a negative number of times is
        an `InvalidError` that names it

        Raises `SumError` for a difference that does not fit int64, `LeaseLostError`, `ClosedError`, `CorruptionError`,
        `UnavailableError`; no wrong rows."""
        schema, offload = self._source.context.schema, self._source.context.runtime.offload
        self._check()
        try:
            async with aclosing(self._merged()) as merged:
                async for batch in merged:
                    yield await offload.run(partial(expanded, batch, schema)) if expand else batch
                    self._check()
        except ObjectNotFoundError as error:
            raise await self._source.hold.explain("it is missing", error.key) from error

    async def to_arrow(self, *, expand: bool = False) -> pa.Table:
        """All rows. ``expand`` and errors: as of `batches`."""
        async with aclosing(self.batches(expand=expand)) as batches:
            found = [batch async for batch in batches]
        return pa.Table.from_batches(found, self.schema(expand=expand))

    def to_reader(self, *, expand: bool = False) -> pa.RecordBatchReader:
        """All rows as a stream that other libraries pull from, such as DuckDB and polars: each batch is read when they
        ask for it, so memory holds one at a time.

        It is read in other threads than the event loop's (`asyncio.to_thread`), while the loop runs and the snapshot is
        open, and once. ``expand``: as of `batches`.

        Raises, when a batch is asked for, as `batches`; `InvalidError` in the loop's thread, and if the loop does
        nothing for 10 s. Libraries may give such an error another type, and keep its text."""
        batches = iterated(partial(self.batches, expand=expand), "read it in another thread, as with asyncio.to_thread")
        return pa.RecordBatchReader.from_batches(self.schema(expand=expand), batches)

    def schema(self, *, expand: bool = False) -> pa.Schema:
        """The columns of `batches`."""
        schema = self._source.context.schema
        return schema.data if expand else schema.arrow

    async def to_pandas(self, *, expand: bool = False) -> Any:
        """All rows as a pandas frame, which takes pandas to be installed. Raises as `to_arrow`."""
        table = await self.to_arrow(expand=expand)
        return await self._source.context.runtime.offload.run(table.to_pandas)

    async def rows(self) -> AsyncGenerator[tuple[Any, int], None]:
        """``(data, diff)`` of each row; data of several columns are a tuple. Raises as `batches`."""
        names = self._source.context.schema.data.names
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for piece in slices_of(batch, ROWS_AT_ONCE):
                    for row in rows_of(piece, names):
                        yield row

    async def splits(self, n: int, *, least_bytes: int = 1) -> list[Snapshot]:
        """At most ``n`` snapshots of about one size that hold every row once, in the order of data; at least one.

        least_bytes: there are only so many that each has about as many stored bytes, or more

        Only merged updates are weighed. Raises as `batches`, and `InvalidError` if a number is below 1."""
        self._check()
        if n < 1:
            raise InvalidError(f"a snapshot has at least one split, not {n}")
        if least_bytes < 1:
            raise InvalidError(f"a split has at least one byte, not {least_bytes}")
        if self.span != sources.EVERYTHING:
            raise InvalidError("a split is not split again; ask the snapshot for more")
        spans: list[Span[Key]] = []
        nbytes = 0
        try:
            for source in await self._opened():
                spans += await sources.spans_of(self._source.context, source)
                nbytes += sum(part.nbytes for part in source.parts)
        except ObjectNotFoundError as error:
            raise await self._source.hold.explain("it is missing", error.key) from error
        parts = splitting.split(spans, min(n, max(1, -(-nbytes // least_bytes))))
        return [Snapshot(self._source, self.pin.again(), self.upper, part) for part in parts]

    def close(self) -> None:
        """Let go what is read. Idempotent; splits go on."""
        self._closed = True
        self.pin.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        self._source.check()
        if self._closed:
            raise InvalidError("the snapshot was closed")

    def _batches(self) -> list[MergedBatch]:
        """Those that hold times at or before ``as_of``."""
        return [batch for batch in self.pin.area.batches if batch.rows and batch.bounds.lower.less_equal(self.as_of)]

    async def _opened(self) -> Sequence[MergedSource]:
        context, batches = self._source.context, self._batches()
        offload = context.runtime.reading if len(batches) == 1 else context.runtime.offload
        return await gather(
            [
                context.answered(
                    f"a read of {batch.name}", partial(MergedSource.open, context.store, context.schema, batch, offload)
                )
                for batch in batches
            ]
        )

    async def _merged(self) -> AsyncGenerator[pa.RecordBatch]:
        """In passes by ranges of data, each with as much as fits of what is pending."""
        context, schema = self._source.context, self._source.context.schema
        taken = [batch for batch in self._source.taken if batch.start.less_equal(self.as_of)]
        opened: Sequence[MergedSource] | None = None
        span: KeySplit[Key] | None = self.span
        while span is not None:
            chosen = sources.Selection(schema, self.as_of, self._source.where, span)
            pending, end = await sources.lowest_pending(context, taken, chosen)
            if context.appends is Appends.COMPARE:
                await self._source.hold.check_standing()
            opened = await self._opened() if opened is None else opened
            within = chosen if end is None else replace(chosen, span=KeySplit(span.start, end, 0))
            async with aclosing(self._pass(within, opened, pending)) as given:
                async for rows in given:
                    yield rows
            span = None if end is None else KeySplit(end, span.end, 0)

    async def _pass(
        self, chosen: sources.Selection, opened: Sequence[MergedSource], pending: Sequence[pa.RecordBatch]
    ) -> AsyncGenerator[pa.RecordBatch]:
        context, batches = self._source.context, self._batches()
        names = [whole_key(context.store, batch.name) for batch in batches]
        if len(opened) == 1 and not pending and alone.has_data_once(batches[0]):
            async with aclosing(alone.rows_alone(context, opened[0], chosen, names[0])) as found:
                async for rows in found:
                    yield rows
            return
        merging = BoundedMerge(context.schema, Frontier([self.as_of]), [*names, "pending batches"], keep=False)
        at_once, offload = alone.AT_ONCE if len(opened) == 1 else 1, context.runtime.offload
        async with AsyncExitStack() as stack:
            slices = [
                sources.merged_rows(context, source, chosen, chosen.of_sorted, at_once=at_once) for source in opened
            ]
            slices.append(_each(pending))
            for each in slices:
                await stack.enter_async_context(aclosing(each))
            while not merging.is_done:
                read = [(number, await anext(slices[number], None)) for number in merging.wanted]
                try:
                    given = await offload.run(partial(merging.step, read))
                except SumError as error:
                    raise SumError(f"a snapshot of {context.name} as of {Frontier([self.as_of])}: {error}") from None
                if given.num_rows:
                    yield given


async def _each(slices: Sequence[pa.RecordBatch]) -> AsyncGenerator[pa.RecordBatch]:
    for rows in slices:
        yield rows


def rows_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, int]]:
    """Its rows as `Snapshot.rows` gives them; ``names``: of the data columns."""
    columns = [batch.column(name).to_pylist() for name in names]
    data = columns[0] if len(names) == 1 else zip(*columns, strict=True)
    return zip(data, batch.column(DIFF).to_pylist(), strict=True)
