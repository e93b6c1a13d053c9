"""`Table`: rows that many processes append, delete and read, one version after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from slate_async.errors import ConflictError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import ahead
from slate_async.tables.compact import CompactResult, compact
from slate_async.tables.context import TableContext
from slate_async.tables.core.chain import BLOCK
from slate_async.tables.core.edits import BELOW_FLOOR, Write
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.core.row_ids import RowIds, set_of
from slate_async.tables.core.schema import ROW_ID, TableSchema
from slate_async.tables.core.vacuum_plan import MIN_AGE_MS, RETAIN_MS, RETAIN_VERSIONS
from slate_async.tables.incoming import BLOCK_BYTES, ArrowData, pieces
from slate_async.tables.scan import TableScan, Wanted
from slate_async.tables.store.committer import AppendId, Done
from slate_async.tables.vacuum import VacuumReport, vacuum

ENCODED_AT_ONCE: Final = 2
PUT_AGAIN: Final = 3
"""Times that blocks are put under new names, when a vacuum has passed those that they had."""
INLINE_DELETED: Final = 512
"""Row ids that a link holds itself; more of them are a file."""
MAX_DELETED: Final = 10_000_000
"""Rows that one delete takes."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append did.

    version: that it made; ``None`` if it was in already, and the same application has appended since
    duplicate: its ``append_id`` was in already, so it changed nothing
    """

    version: int | None
    rows: int
    blocks: int
    nbytes: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What a delete did. ``version``: that it made; the one that it read if no row passed."""

    version: int | None
    rows: int


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

    async def append(self, data: ArrowData, *, append_id: tuple[str, int] | None = None) -> AppendResult:
        """Add rows, all of them in one version.

        data: a pyarrow table, batch or reader, or an iterable of tables or batches, plain or async. Columns are matched
        by name; those that are missing become null
        append_id: an application's name, and a number that rises with each of its appends. The same one again changes
        nothing, whatever its rows

        Raises `InvalidError` for rows that the table does not take, `UnavailableError` with the outcome."""
        return await self._write(data, append_id, instead=False)

    async def overwrite(self, data: ArrowData, *, append_id: tuple[str, int] | None = None) -> AppendResult:
        """Replace all rows that are there when it commits, in one version. As `append`."""
        return await self._write(data, append_id, instead=True)

    async def delete(self, where: PredicateLike) -> DeleteResult:
        """Delete the rows that pass, of the newest version. Rows that are appended meanwhile stay, as if they came
        after. Raises `InvalidError`, `UnavailableError` with the outcome."""
        context = self._context
        context.check()
        wanted = Wanted.of(where, [], None, row_ids=True)
        found = await TableScan(context, wanted).read()
        ids = set_of(found.column(ROW_ID).combine_chunks().to_numpy(zero_copy_only=False))
        if not len(ids):
            head = context.heads.head
            return DeleteResult(None if head is None else head.version, 0)
        if len(ids) > MAX_DELETED:
            raise InvalidError(
                f"a delete takes at most {MAX_DELETED} rows, and {len(ids)} pass; delete them in parts",
                outcome="not_applied",
            )
        done = await self._deleted(ids)
        context.cover(done.head)
        return DeleteResult(done.version, len(ids))

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

    async def vacuum(
        self,
        *,
        retain_ms: int = RETAIN_MS,
        retain_versions: int = RETAIN_VERSIONS,
        min_age_ms: int = MIN_AGE_MS,
        dry_run: bool = False,
    ) -> VacuumReport:
        """Give up old versions, and delete what no version needs any more that is kept. Pins and tags keep theirs.

        Nothing that is committed is ever lost, whatever the arguments and clocks are. A reader of a version that is
        given up ends with `SnapshotExpiredError`, an append that took too long with `ConflictError`, not applied.

        retain_ms: how old a version may be that is kept: seven days; it holds for what was the newest one then, too
        retain_versions: so many of the newest are kept, however old; at least one is
        min_age_ms: what was put for commits that began since then is kept: an hour. Longer ones are put again
        dry_run: delete nothing, and say what would be

        Raises `InvalidError`, `CorruptionError` if something is lost that a kept version needs, `UnavailableError`."""
        self._context.check()
        return await vacuum(
            self._context,
            retain_ms=retain_ms,
            retain_versions=retain_versions,
            min_age_ms=min_age_ms,
            dry_run=dry_run,
        )

    async def _write(self, data: ArrowData, append_id: tuple[str, int] | None, *, instead: bool) -> AppendResult:
        context, named = self._context, _append_id(append_id)
        context.check()
        head = context.heads.head or await context.newest()
        added = await self._stored(data, head.schema, head.version)
        for _ in range(PUT_AGAIN):
            try:
                done = await context.committer.commit(Write(added, instead=instead), named)
            except ConflictError as error:
                if error.reason != BELOW_FLOOR:
                    raise
                added = await self._stored_again(added, (await context.newest()).version)
                continue
            context.cover(done.head)
            return _result(done, added)
        raise _passed()

    async def _deleted(self, ids: RowIds) -> Done:
        context = self._context
        if len(ids) <= INLINE_DELETED:
            return await context.committer.commit(Write(deleted=ids))
        head = context.heads.head or await context.newest()
        for _ in range(PUT_AGAIN):
            files = await context.blocks.put_deletes(ids, head.version)
            try:
                return await context.committer.commit(Write(delete_files=files))
            except ConflictError as error:
                if error.reason != BELOW_FLOOR:
                    raise
                head = await context.newest()
        raise _passed()

    async def _stored(self, data: ArrowData, schema: TableSchema, base: int) -> pa.Table:
        """``data`` as blocks, and what their link says of them."""

        async def put(rows: pa.Table) -> pa.Table:
            return await self._context.blocks.put(rows, schema, base)

        given = pieces(data, schema, self._context.runtime)
        stored = [row async for row in ahead(put, given, limit=ENCODED_AT_ONCE, budget=2 * BLOCK_BYTES)]
        return pa.concat_tables([BLOCK.empty_table(), *stored], promote_options="default")

    async def _stored_again(self, added: pa.Table, base: int) -> pa.Table:
        try:
            copied = [await self._context.blocks.copy(added.slice(at, 1), base) for at in range(added.num_rows)]
        except ObjectNotFoundError as error:
            raise ConflictError(
                "a vacuum deleted the rows before they were committed; append them again", outcome="not_applied"
            ) from error
        return pa.concat_tables(copied)


def _passed() -> UnavailableError:
    return UnavailableError(
        f"it was put {PUT_AGAIN} times, and each time a vacuum went past it; try again", outcome="not_applied"
    )


def _append_id(given: object) -> AppendId | None:
    if given is None:
        return None
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidError(f"append_id= is a name and a number, not {given!r}", outcome="not_applied")
    app, n = given
    if not isinstance(app, str) or not 0 < len(app.encode("utf-8", "surrogatepass")) <= 255:
        raise InvalidError(f"an application's name has 1 to 255 bytes, not {app!r}", outcome="not_applied")
    if not isinstance(n, int) or isinstance(n, bool) or not 0 < n < 2**63:
        raise InvalidError(f"an application numbers its appends from 1, not {n!r}", outcome="not_applied")
    return AppendId(app, n)


def _result(done: Done, added: pa.Table) -> AppendResult:
    if done.duplicate:
        return AppendResult(done.version, 0, 0, 0, True)
    rows, nbytes = sum(added.column("rows").to_pylist()), sum(added.column("size").to_pylist())
    return AppendResult(done.version, rows, added.num_rows, nbytes, False)
