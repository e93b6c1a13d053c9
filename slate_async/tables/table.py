"""`Table`: rows that many processes append, delete and read, one version after another."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slate_async.tables import writes
from slate_async.tables.compact import CompactResult, compact
from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.incoming import ArrowData
from slate_async.tables.results import AppendResult, DeleteResult, UpsertResult
from slate_async.tables.scan import TableScan, Wanted
from slate_async.tables.transaction import TableTransaction


class Table:
    """Made by `Catalog.create_table` and `Catalog.table`, in which it lives: it needs no closing."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        head = self._context.heads.head
        return f"<Table {self._context.database}.{self._context.name}, version {0 if head is None else head.version}>"

    @property
    def database(self) -> str:
        """Its database, when it was opened."""
        return self._context.database

    @property
    def name(self) -> str:
        """Its name, when it was opened."""
        return self._context.name

    async def schema(self) -> pa.Schema:
        """Columns of the newest version."""
        self._context.check()
        return (await self._context.newest()).schema.arrow()

    async def version(self) -> int:
        """The newest version: 1 for a table to which nothing was committed."""
        self._context.check()
        return (await self._context.newest()).version

    async def append(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> AppendResult:
        """Add rows, all of them in one version. Small appends that wait at the same time share one.

        data: a pyarrow table, batch or reader, or an iterable of tables or batches, plain or async. Columns are matched
        by name; those that are missing become null
        append_id: an application's name, and a number that rises with each of its writes; or a string, which counts for
        seven days. The same one again changes nothing, whatever its rows, and gives the first outcome

        Raises `InvalidError` for rows that the table does not take, `UnavailableError` with the outcome."""
        self._context.check()
        return await writes.append(self._context, data, AppendId.of(append_id), instead=False)

    async def overwrite(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> AppendResult:
        """Replace all rows that are there when it commits, in one version. As `append`."""
        self._context.check()
        return await writes.append(self._context, data, AppendId.of(append_id), instead=True)

    async def delete(
        self, where: PredicateLike, *, strict: bool = False, append_id: str | tuple[str, int] | None = None
    ) -> DeleteResult:
        """Delete the rows that pass, of the newest version. Rows that are appended meanwhile stay, as if they came
        after; with ``strict`` they go, too, if they are in before the delete is. ``append_id``: see `append`. Raises
        `InvalidError`, `UnavailableError` with the outcome."""
        self._context.check()
        return await writes.delete(self._context, where, AppendId.of(append_id), strict=strict)

    async def upsert(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> UpsertResult:
        """Put rows in the place of all that have the same key, in one version: then one row has each of these keys.
        The table was created with a ``key``.

        data: see `append`; of rows with the same key the last one counts
        append_id: see `append`

        Of two upserts at once the last commit wins each key. Raises `InvalidError`, `UnavailableError` with the
        outcome."""
        self._context.check()
        return await writes.upsert(self._context, data, AppendId.of(append_id))

    def transaction(self, *, append_id: str | tuple[str, int] | None = None) -> TableTransaction:
        """Several writes as one version: ``async with table.transaction() as tx: tx.append(...)``. ``append_id``: see
        `append`."""
        self._context.check()
        return TableTransaction(self._context, AppendId.of(append_id))

    def scan(
        self,
        where: PredicateLike | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
    ) -> TableScan:
        """Rows of the newest version: ``async for batch in table.scan(...)``.

        where: ``col("price") > 3``, a list of conditions, or a list of such lists of which one has to hold
        columns: names, in the order in which they are given; ``None``: all
        limit: rows at most

        Raises `InvalidError`, when it is iterated over for columns that the table does not have."""
        return TableScan(self._context, Wanted.of(where, columns, limit, row_ids=False))

    async def compact(self, *, target_bytes: int | None = None) -> CompactResult:
        """Merge small blocks, those of which many rows are deleted, and in a sorted table those that overlap. Readers
        and writers go on meanwhile, and no row changes. A merge whose blocks another one took is given up.

        target_bytes: of a block, as it is stored; ``None``: 128 MiB

        Raises `InvalidError`, `CorruptionError`, `UnavailableError` with the outcome."""
        self._context.check()
        return await compact(self._context, target_bytes)
