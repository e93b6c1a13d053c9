"""`TableScan`: rows of one version of a table, as record batches."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from slate_async.runtime.loop_iterator import iterated
from slate_async.tables.context import TableContext
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head
from slate_async.tables.rows import read, select
from slate_async.tables.scan_plan import Wanted, plan_of

NEWER_VERSIONS: Final = 20
"""Versions that a read of all rows begins with before it gives up."""


class TableScan:
    """Made by `Table.scan` and `TableSnapshot.scan`. Iterate over it with ``async for``, as often as you like: each
    time the newest version is read, or that of the snapshot. Or `read` all of it."""

    def __init__(self, context: TableContext, wanted: Wanted, head: Head | None = None) -> None:
        self._context = context
        self._wanted = wanted
        self._head = head

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self._batches()

    async def read(self) -> pa.Table:
        """All rows, in memory. The newest version, if a vacuum gives it up meanwhile, is left for a newer one.

        Raises `SnapshotExpiredError` if that happens each time, or the version of the snapshot was given up."""
        for attempt in itertools.count(1):
            head = await self._version()
            try:
                async with aclosing(self._at(head)) as found:
                    batches = [batch async for batch in found]
            except SnapshotExpiredError:
                if self._head is not None or attempt == NEWER_VERSIONS:
                    raise
            else:
                break
        return pa.Table.from_batches(batches, schema=plan_of(self._wanted, head.schema).given)

    async def reader(self) -> pa.RecordBatchReader:
        """All rows as a stream that other libraries pull from, such as DuckDB and polars: each batch is read when they
        ask for it. It is of one version, the newest one now or that of the snapshot.

        It is read once, in other threads than the event loop's (`asyncio.to_thread`), while the loop runs and the
        catalog is open.

        Raises `InvalidError`; when a batch is asked for, also in the loop's thread, and if the loop does nothing for
        10 s. Libraries may give such an error another type, and keep its text."""
        head = await self._version()
        batches = iterated(lambda: self._at(head), "read it in another thread, as with asyncio.to_thread")
        return pa.RecordBatchReader.from_batches(plan_of(self._wanted, head.schema).given, batches)

    async def _version(self) -> Head:
        self._context.check()
        return await self._context.newest() if self._head is None else self._head

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch]:
        head = await self._version()
        async with aclosing(self._at(head)) as found:
            async for batch in found:
                yield batch

    async def _at(self, head: Head) -> AsyncGenerator[pa.RecordBatch]:
        plan = plan_of(self._wanted, head.schema)
        selected = await select(self._context, head)
        async with aclosing(read(self._context, plan, selected, self._wanted.limit)) as found:
            async for batch in found:
                yield batch
