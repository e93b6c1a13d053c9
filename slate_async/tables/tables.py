"""`Tables`: a folder of tables, and what is created and found in it.

A composition root: it wires and owns. A table's first head is stored before its name is, so a name that is there always
leads to a table; what a creation leaves that was cut off is never found.
"""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from metastores.names import CATALOGS, TABLE_HEADS
from metastores.protocol import MetaStoreFactory
from slate_async.arguments import check_kinds
from slate_async.errors import ConflictError, InvalidError, NotFoundError
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
from slate_async.tables.core.catalog import AddTable, CatalogHead, TableEntry, check_name
from slate_async.tables.core.head import Head
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.catalogs import Catalogs
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.committer import Committer
from slate_async.tables.store.heads import TableHeads
from slate_async.tables.table import Table


@dataclass(frozen=True, slots=True)
class TablesContext:
    """What a catalog works with. ``url``: of it, for messages and as its name in a metastore outside of the store."""

    url: str
    store: ObjectStore
    metastores: MetaStoreFactory
    runtime: Runtime
    settings: Settings
    supervisor: Supervisor
    stats: StoreStats


class Tables(LoopHandle):
    """Made by `open_tables`; see the module docstring. ``async with`` closes it."""

    def __init__(self, context: TablesContext) -> None:
        super().__init__(f"the tables of {context.url}")
        self._context = context
        self._catalogs = Catalogs(
            context.metastores.manifest(MetaObjects(context.store), context.url, CATALOGS),
            context.runtime,
            context.supervisor,
            name=context.url,
            deadline_ms=context.settings.retry_deadline_ms,
        )
        self._known: dict[TableEntry, TableContext] = {}

    def __repr__(self) -> str:
        return f"<Tables {self._context.url}, {'open' if self._guard.open else 'closed'}>"

    async def create(
        self,
        name: str,
        schema: pa.Schema,
        *,
        if_not_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create the table ``name``.

        schema: its columns. Required ones are fields with ``nullable=False``
        if_not_exists: give the table that is there, whose columns must be the same
        properties: texts that are stored with it

        Raises `ConflictError` if there is one already, `InvalidError`, `UnavailableError`: it may have been created."""
        self._check()
        check_name(name)
        check_kinds(
            (
                "properties",
                properties is None or all(isinstance(text, str) for pair in dict(properties).items() for text in pair),
                properties,
                "a map of strings",
            )
        )
        first = TableSchema.of(schema)
        catalog = await self._catalogs.load()
        found = catalog.tables.get(name)
        if found is None:
            supervisor = self._context.supervisor
            found = await supervisor.run(f"creation of {name}", self._created(name, first, catalog, properties))
            if found is not None:
                return Table(self._table(name, found))
            found = (await self._catalogs.load()).tables.get(name)
        if found is None or not if_not_exists:
            raise ConflictError(f"there is a table {name!r} in {self._context.url} already", outcome="not_applied")
        context = self._table(name, found)
        there = (await context.newest()).schema
        if [(field.name, field.kind, field.nullable) for field in there.fields] != [
            (field.name, field.kind, field.nullable) for field in first.fields
        ]:
            raise InvalidError(
                f"the table {name!r} is there with other columns: {there.arrow().remove_metadata()}",
                outcome="not_applied",
            )
        return Table(context)

    async def table(self, name: str) -> Table:
        """The table ``name``. Raises `NotFoundError`, with the nearest names."""
        self._check()
        check_name(name)
        tables = (await self._catalogs.load()).tables
        if name not in tables:
            near = difflib.get_close_matches(name, tables, n=3)
            hint = f"; is {' or '.join(map(repr, near))} meant?" if near else ""
            raise NotFoundError(f"there is no table {name!r} in {self._context.url}{hint}")
        context = self._table(name, tables[name])
        await context.newest()
        return Table(context)

    async def list(self) -> builtins.list[str]:
        """Names of all tables, sorted."""
        self._check()
        return sorted((await self._catalogs.load()).tables)

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

    async def _created(
        self, name: str, schema: TableSchema, catalog: CatalogHead, properties: Mapping[str, str] | None
    ) -> TableEntry | None:
        """A table of its own under ``name``; ``None`` if another one has the name."""
        runtime = self._context.runtime
        entry = TableEntry(runtime.ids.uuid(), catalog.version)
        head = Head.first(entry.uuid, schema, runtime.clock.now_ms(), properties)
        await self._table(name, entry).heads.commits.create(head)
        try:
            await self._catalogs.commits.commit(AddTable(name, entry))
        except ConflictError:
            return None
        return entry

    def _table(self, name: str, entry: TableEntry) -> TableContext:
        known = self._known.get(entry)
        if known is not None:
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
        blocks, committer = Blocks(store, runtime), Committer(heads, runtime)
        made = TableContext(name, heads, chain, blocks, committer, runtime, whole.supervisor, self._check)
        self._known[entry] = made
        return made
