"""`Catalog`: databases of tables in one folder, and what is created and found in it.

A composition root: it wires and owns. `slate_async.tables.lives` says how tables come and go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from metastores.names import CATALOGS, TABLE_HEADS
from metastores.protocol import MetaStoreFactory
from slate_async.arguments import check_kinds
from slate_async.errors import ConflictError, InvalidError
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.stats import StoreStats
from slate_async.runtime.concurrent import run_all
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings
from slate_async.tables.context import TableContext
from slate_async.tables.core.catalog import TableEntry, check_name
from slate_async.tables.core.catalog_edits import TAKEN, AddDatabase, RemoveDatabase, RenameTable
from slate_async.tables.core.head import Head
from slate_async.tables.core.key_columns import key_ids, names_of, sort_ids
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.lives import TableLives
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.catalogs import Catalogs
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.committer import Committer
from slate_async.tables.store.heads import TableHeads
from slate_async.tables.table import Table


@dataclass(frozen=True, slots=True)
class CatalogContext:
    """What a catalog works with. ``url``: of it, for messages and as its name in a metastore outside of the store."""

    url: str
    store: ObjectStore
    metastores: MetaStoreFactory
    runtime: Runtime
    settings: Settings
    supervisor: Supervisor
    stats: StoreStats


class Catalog(LoopHandle):
    """Made by `open_catalog`. ``async with`` closes it."""

    def __init__(self, context: CatalogContext) -> None:
        super().__init__(f"the catalog {context.url}")
        self._context = context
        self._catalogs = Catalogs(
            context.metastores.manifest(MetaObjects(context.store), context.url, CATALOGS),
            context.runtime,
            context.supervisor,
            name=context.url,
            deadline_ms=context.settings.retry_deadline_ms,
        )
        self._lives = TableLives(self._catalogs, self._table, context.runtime)
        self._known: dict[UUID, TableContext] = {}

    def __repr__(self) -> str:
        return f"<Catalog {self._context.url}, {'open' if self._guard.open else 'closed'}>"

    @property
    def runtime(self) -> Runtime:
        """Clock, randomness, ids and threads that it uses."""
        return self._context.runtime

    async def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create the database ``name``, which has no tables. ``if_not_exists``: or leave the one that is there.

        Raises `ConflictError` if there is one already, `InvalidError`, `UnavailableError` with the outcome."""
        self._check()
        check_name(name, "database")
        if if_not_exists and name in (await self._catalogs.load()).databases:
            return
        try:
            await self._catalogs.commits.commit(AddDatabase(name, self._context.runtime.ids.token()))
        except ConflictError as error:
            if not if_not_exists or error.reason != TAKEN:
                raise

    async def drop_database(self, name: str) -> None:
        """Remove the database ``name``. Its tables are dropped before, and cannot be brought back without it.

        Raises `ConflictError` while it has tables, `NotFoundError`, `UnavailableError` with the outcome."""
        self._check()
        check_name(name, "database")
        found = (await self._catalogs.load()).database(name)
        await self._catalogs.commits.commit(RemoveDatabase(name, found.token))

    async def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""
        self._check()
        return sorted((await self._catalogs.load()).databases)

    async def create_table(
        self,
        database: str,
        name: str,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create the table ``name`` in a database.

        schema: its columns. Required ones are fields with ``nullable=False``
        key: required columns that identify a row; they never change
        sort_by: columns by whose values rows are brought together when blocks are merged; they never change
        properties: texts that are stored with it
        if_not_exists: give the table that is there, whose columns, key and order must be the same

        Raises `ConflictError` if there is one already, `NotFoundError` without the database, `InvalidError`,
        `UnavailableError` with the outcome."""
        self._check()
        _check_place(database, name)
        _check_properties(properties)
        first = TableSchema.of(schema)
        ids = {"key": key_ids(first, key), "sort_by": sort_ids(first, sort_by)}
        creation = self._lives.create(database, name, first, properties, **ids)
        entry = await self._context.supervisor.run(f"creation of {name}", creation)
        if entry is not None:
            return Table(self._table(database, name, entry))
        if not if_not_exists:
            raise ConflictError(f"there is a table {name!r} in database {database!r} already", outcome="not_applied")
        context = await self._lives.opened(database, name)
        there, wanted = _shape(await context.newest()), (_columns(first), tuple(key), tuple(sort_by))
        if there != wanted:
            raise InvalidError(
                f"the table {name!r} of database {database!r} is there with other columns, key or order: {there}, not"
                f" {wanted}",
                outcome="not_applied",
            )
        return Table(context)

    async def table(self, database: str, name: str) -> Table:
        """The table ``name`` of a database. Raises `NotFoundError`, with the nearest names."""
        self._check()
        _check_place(database, name)
        return Table(await self._lives.opened(database, name))

    async def list_tables(self, database: str) -> list[str]:
        """Names of all tables of a database, sorted. Raises `NotFoundError`."""
        self._check()
        check_name(database, "database")
        return sorted((await self._catalogs.load()).database(database).tables)

    async def list_dropped(self, database: str) -> list[str]:
        """Names of the dropped tables of a database that can be brought back, sorted."""
        self._check()
        check_name(database, "database")
        stones = (await self._catalogs.load()).dropped.values()
        return sorted({stone.name for stone in stones if stone.database == database and not stone.purging})

    async def drop_table(self, database: str, name: str) -> None:
        """Drop the table ``name``: nothing is read of it or committed to it any more, and its name is free.

        It may be brought back by `undrop_table` until a vacuum of the catalog deletes it. If it fails, repeat it.

        Raises `NotFoundError`, `UnavailableError` with the outcome."""
        self._check()
        _check_place(database, name)
        await self._context.supervisor.run(f"drop of {name}", self._lives.drop(database, name))

    async def undrop_table(self, database: str, name: str, *, new_name: str | None = None) -> Table:
        """Bring back the table of this name that was dropped last. If it fails, repeat it.

        new_name: that it gets, if another table has its own

        Raises `NotFoundError` if there is none, or it was deleted by a vacuum; `ConflictError` if another table has the
        name; `UnavailableError` with the outcome."""
        self._check()
        _check_place(database, name)
        if new_name is not None:
            check_name(new_name, "table")
        undrop = self._lives.undrop(database, name, new_name)
        return Table(await self._context.supervisor.run(f"undrop of {name}", undrop))

    async def rename_table(self, database: str, name: str, new_name: str, *, new_database: str | None = None) -> None:
        """Give a table another name, or with ``new_database`` another database. Those that have it open keep it.

        Raises `ConflictError` if another table has the name, `NotFoundError`, `UnavailableError` with the outcome."""
        self._check()
        _check_place(database, name)
        into = database if new_database is None else new_database
        _check_place(into, new_name)
        entry = (await self._catalogs.load()).entry(database, name)
        await self._catalogs.commits.commit(RenameTable(entry.uuid, database, name, into, new_name))

    def metrics(self) -> dict[str, int | float]:
        """Requests of the client that it shares, by dotted name."""
        return self._context.stats.metrics()

    async def close(self) -> None:
        """Wait for no one: what is on its way ends unknown. Then give up the clients. Idempotent."""
        await self._end()

    def _check(self) -> None:
        self._guard.check("not_applied")

    def _stop(self) -> None:
        """Close without finishing what was begun."""
        if self._ending is not None:
            self._ending.cancel()

    async def _finish(self) -> None:
        closers = [context.heads.close for context in self._known.values()]
        await run_all([self._catalogs.close, *closers, self._context.supervisor.close])

    def _table(self, database: str, name: str, entry: TableEntry) -> TableContext:
        known = self._known.get(entry.uuid)
        if known is not None:
            if (known.database, known.name) != (database, name):  # it was renamed
                known = self._known[entry.uuid] = replace(known, database=database, name=name)
            return known
        whole = self._context
        store, runtime = PrefixedStore(whole.store, entry.folder), whole.runtime
        chain = Chain(store, entry.uuid, runtime)
        heads = TableHeads(
            whole.metastores.manifest(MetaObjects(store), f"{whole.url}/{entry.folder}", TABLE_HEADS),
            chain,
            runtime,
            whole.supervisor,
            name=name,
            deadline_ms=whole.settings.retry_deadline_ms,
        )
        blocks, deadline_ms = Blocks(store, runtime), whole.settings.retry_deadline_ms
        committer = Committer(heads, chain, blocks, runtime, whole.supervisor, deadline_ms=deadline_ms)
        made = TableContext(database, name, heads, chain, blocks, committer, runtime, whole.supervisor, self._check)
        self._known[entry.uuid] = made
        return made


def _check_place(database: object, name: object) -> None:
    check_name(database, "database")
    check_name(name, "table")


def _check_properties(properties: Any) -> None:
    check_kinds(
        (
            "properties",
            properties is None or all(isinstance(text, str) for pair in dict(properties).items() for text in pair),
            properties,
            "a map of strings",
        )
    )


def _columns(schema: TableSchema) -> list[tuple[str, pa.DataType, bool]]:
    return [(field.name, field.kind, field.nullable) for field in schema.fields]


def _shape(head: Head) -> tuple[list[tuple[str, pa.DataType, bool]], tuple[str, ...], tuple[str, ...]]:
    return _columns(head.schema), names_of(head.schema, head.key), names_of(head.schema, head.sort_by)
