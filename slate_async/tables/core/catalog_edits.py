"""What a commit may change in a catalog: the closed list. Each is pure, and an edit of `slate_async.commits`.

Marks are in what they make: tokens of databases, uuids of tables, and how often a table was dropped. So an edit that is
in changes nothing when it is sent again.

Rules T5 and T19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from slate_async.errors import ConflictError, InvalidError, NotFoundError
from slate_async.tables.core.catalog import MAX_TABLES, CatalogHead, Database, TableEntry, Tombstone

TAKEN: Final = "taken"
"""`ConflictError.reason`: the name is another table's, or another database's."""
BELOW_FLOOR: Final = "below_floor"
"""`ConflictError.reason`: the folder may be deleted already; the table is to be created again in a new one."""


@dataclass(frozen=True, slots=True)
class AddDatabase:
    """Create the database ``name``. ``token``: unique to this call."""

    name: str
    token: str

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Raises `ConflictError` when another database has the name."""
        found = head.databases.get(self.name)
        if found is None:
            return _with_database(head, self.name, Database(self.token))
        if found.token == self.token:
            return None
        raise ConflictError(f"there is a database {self.name!r} already", outcome="not_applied", reason=TAKEN)


@dataclass(frozen=True, slots=True)
class RemoveDatabase:
    """Remove the database ``name``, if it is still that of ``token``."""

    name: str
    token: str

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Raises `ConflictError` while it has tables."""
        found = head.databases.get(self.name)
        if found is None or found.token != self.token:
            return None
        if found.tables:
            raise ConflictError(
                f"database {self.name!r} has {len(found.tables)} tables; drop them first: {sorted(found.tables)[:5]}",
                outcome="not_applied",
            )
        databases = {name: database for name, database in head.databases.items() if name != self.name}
        return replace(head, version=head.version + 1, databases=databases)


@dataclass(frozen=True, slots=True)
class AddTable:
    """Give a name to a table whose first head is stored."""

    database: str
    name: str
    entry: TableEntry

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Raises `ConflictError` when another table has the name, or its folder may be deleted (rule T5)."""
        if head.place(self.entry.uuid) is not None or self.entry.uuid in head.dropped:
            return None
        if self.entry.base < head.floor:
            raise ConflictError(
                f"the folder {self.entry.folder} was begun before version {head.floor} of the catalog, and may be"
                " deleted already",
                outcome="not_applied",
                reason=BELOW_FLOOR,
            )
        if head.size >= MAX_TABLES:
            raise InvalidError(
                f"a catalog has at most {MAX_TABLES} tables, dropped ones among them; vacuum it, or use another one",
                outcome="not_applied",
            )
        return _with_table(head, self.database, self.name, self.entry)


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Give the table ``uuid``, which is called ``database`` and ``name``, another name."""

    uuid: UUID
    database: str
    name: str
    new_database: str
    new_name: str

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Raises `ConflictError` when another table has the new name, `NotFoundError` when it has lost the old one."""
        place = head.place(self.uuid)
        if place == (self.new_database, self.new_name):
            return None
        if place != (self.database, self.name):
            now = "was dropped" if place is None else f"is called {place[1]!r} in database {place[0]!r}"
            raise NotFoundError(
                f"table {self.name!r} of database {self.database!r} {now} meanwhile, and may have been renamed before",
                outcome="unknown",
            )
        entry = head.entry(self.database, self.name)
        return _with_table(_without_table(head, self.database, self.name), self.new_database, self.new_name, entry)


@dataclass(frozen=True, slots=True)
class BuryTable:
    """Take the name from the table ``uuid``, whose head is marked as dropped for the time ``drops``."""

    uuid: UUID
    drops: int
    now_ms: int

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Changes nothing once it was dropped so often (rule T19)."""
        place = head.place(self.uuid)
        if place is None:
            return None
        database, name = place
        entry = head.databases[database].tables[name]
        if entry.drops >= self.drops:
            return None
        stone = Tombstone(database, name, entry._replace(drops=self.drops), self.now_ms)
        made = _without_table(head, database, name)
        return replace(made, version=head.version + 1, dropped={**head.dropped, self.uuid: stone})


@dataclass(frozen=True, slots=True)
class RaiseTable:
    """Give a dropped table its name back, or another one. ``drops``: its number then (rule T19)."""

    uuid: UUID
    drops: int
    database: str
    name: str

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Raises `ConflictError` when another table has the name, `NotFoundError` when it may be deleted by now."""
        place = head.place(self.uuid)
        if place is not None:
            return None
        stone = head.dropped.get(self.uuid)
        if stone is not None and stone.entry.drops >= self.drops:
            return None  # brought back, and dropped again
        if stone is None or stone.purging:
            raise NotFoundError(
                f"table {self.name!r} of database {self.database!r} was deleted by a vacuum of the catalog",
                outcome="not_applied",
            )
        left = {uuid: other for uuid, other in head.dropped.items() if uuid != self.uuid}
        entry = stone.entry._replace(drops=self.drops)
        return _with_table(replace(head, dropped=left), self.database, self.name, entry)


def _with_database(head: CatalogHead, name: str, database: Database) -> CatalogHead:
    return replace(head, version=head.version + 1, databases={**head.databases, name: database})


def _with_table(head: CatalogHead, database: str, name: str, entry: TableEntry) -> CatalogHead:
    """Raises `ConflictError` when another table has the name, `NotFoundError` without the database."""
    held = head.database(database)
    if name in held.tables:
        raise ConflictError(
            f"there is a table {name!r} in database {database!r} already", outcome="not_applied", reason=TAKEN
        )
    return _with_database(head, database, replace(held, tables={**held.tables, name: entry}))


def _without_table(head: CatalogHead, database: str, name: str) -> CatalogHead:
    """The same without it; its version stays."""
    held = head.databases[database]
    tables: Mapping[str, TableEntry] = {other: entry for other, entry in held.tables.items() if other != name}
    return replace(head, databases={**head.databases, database: replace(held, tables=tables)})
