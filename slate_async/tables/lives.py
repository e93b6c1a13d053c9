"""How tables come and go in a catalog: each of these is one step in the table's head, and one in the catalog.

| | first | then | cut off between the two |
|---|---|---|---|
| create | the first head | the name | a folder that nothing names, until the catalog is vacuumed |
| drop | the head ends | the name goes | listed, but refuses everything, until it is dropped again |
| undrop | the name comes | the head goes on | the next process that opens it lets its head go on |

Both count how often a table was dropped and brought back, and neither count goes back. So a step that comes late, after
what another process did meanwhile, changes nothing (rule T19).

Rules T5 and T19.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from slate_async.errors import ConflictError, NotFoundError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.tables.context import TableContext
from slate_async.tables.core.catalog import TableEntry, meant
from slate_async.tables.core.catalog_edits import BELOW_FLOOR, TAKEN, AddTable, BuryTable, RaiseTable
from slate_async.tables.core.edits import SetDrops
from slate_async.tables.core.head import Head
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.store.catalogs import Catalogs

CREATED_AGAIN: Final = 3
"""Times that a table is put into a new folder, when a vacuum has passed the one that it had."""


class TableLives:
    """See the module docstring. ``context``: of a table by database, name and entry."""

    def __init__(
        self, catalogs: Catalogs, context: Callable[[str, str, TableEntry], TableContext], runtime: Runtime
    ) -> None:
        self._catalogs = catalogs
        self._context = context
        self._runtime = runtime

    async def create(
        self,
        database: str,
        name: str,
        schema: TableSchema,
        properties: Mapping[str, str] | None,
        *,
        key: tuple[int, ...],
        sort_by: tuple[int, ...],
    ) -> TableEntry | None:
        """A table of its own under this name; ``None`` if another one has it."""
        for _ in range(CREATED_AGAIN):
            catalog = await self._catalogs.load()
            if name in catalog.database(database).tables:
                return None
            entry = TableEntry(self._runtime.ids.uuid(), catalog.version)
            now_ms = self._runtime.clock.now_ms()
            head = Head.first(entry.uuid, schema, now_ms, properties, key=key, sort_by=sort_by)
            await self._context(database, name, entry).heads.commits.create(head)
            try:
                await self._catalogs.commits.commit(AddTable(database, name, entry))
            except ConflictError as error:
                if error.reason == TAKEN:
                    return None
                if error.reason != BELOW_FLOOR:
                    raise
            else:
                return entry
        raise UnavailableError(
            f"table {name!r} was put {CREATED_AGAIN} times, and each time a vacuum of the catalog went past it; try"
            " again",
            outcome="not_applied",
        )

    async def opened(self, database: str, name: str) -> TableContext:
        """The table of this name, once its head goes on (rule T19). Raises `NotFoundError`."""
        catalog = await self._catalogs.load()
        entry = catalog.entry(database, name)
        context = self._context(database, name, entry)
        head = await context.heads.load()
        if head is not None and head.drops < entry.drops:  # the process that brought it back was cut off
            head = await context.heads.commits.commit(SetDrops(entry.drops, self._runtime.clock.now_ms()))
        if head is not None and head.dropped:
            raise NotFoundError(
                f"table {name!r} of database {database!r} is being dropped; drop_table again completes it",
                outcome="not_applied",
            )
        await context.newest()
        return context

    async def drop(self, database: str, name: str) -> None:
        """End the table of this name. Repeatable, as long as it is listed. Raises `NotFoundError`."""
        catalog = await self._catalogs.load()
        entry = catalog.entry(database, name)
        drops, now_ms = entry.drops + 1, self._runtime.clock.now_ms()
        await self._context(database, name, entry).heads.commits.commit(SetDrops(drops, now_ms))
        await self._catalogs.commits.commit(BuryTable(entry.uuid, drops, now_ms))

    async def undrop(self, database: str, name: str, new_name: str | None) -> TableContext:
        """Bring back the last table of this name that was dropped. Raises `NotFoundError`, `ConflictError`."""
        catalog = await self._catalogs.load()
        held = catalog.database(database)
        stone = catalog.last_dropped(database, name)
        given = name if new_name is None else new_name
        if stone is None:
            if given in held.tables:  # it is back, and its head may not be
                return await self.opened(database, given)
            dropped = [other.name for other in catalog.dropped.values() if other.database == database]
            raise NotFoundError(
                f"there is no dropped table {name!r} in database {database!r}{meant(name, dropped)}",
                outcome="not_applied",
            )
        entry = stone.entry._replace(drops=stone.entry.drops + 1)
        await self._catalogs.commits.commit(RaiseTable(entry.uuid, entry.drops, database, given))
        context = self._context(database, given, entry)
        await context.heads.commits.commit(SetDrops(entry.drops, self._runtime.clock.now_ms()))
        return context
