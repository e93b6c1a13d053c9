"""A catalog: databases, the names of their tables, and where each table lies.

A table lies in a folder that is named after the catalog's version its creator had read and a uuid, so a name that is
given again is another folder, and nothing of the old table can be put into the new one. A folder that is older than
``floor`` and has no entry may be deleted, so no entry is made for one.

A table is dropped and brought back any number of times: ``drops`` counts both, in its entry and in its head, and is odd
while it is dropped. Neither goes back, so a step that comes late changes nothing (rule T19).

Rules T5 and T19.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from slate_async.codec.records import no_fields
from slate_async.errors import InvalidError, NotFoundError

MAX_NAME_BYTES: Final = 255
MAX_TABLES: Final = 2_000
"""Of a catalog, dropped ones that are kept among them."""


class TableEntry(NamedTuple):
    """Where a table lies, and how often it was dropped or brought back."""

    uuid: UUID
    base: int
    drops: int = 0

    @property
    def folder(self) -> str:
        """Below the catalog's."""
        return folder_of(self.uuid, self.base)


class Tombstone(NamedTuple):
    """A table that was dropped, by its database and name.

    purging: it may be deleted, so it cannot be brought back any more"""

    database: str
    name: str
    entry: TableEntry
    dropped_ms: int
    purging: bool = False


@dataclass(frozen=True, slots=True)
class Database:
    """Tables by name. ``token`` is its own: a name that is given again is another database."""

    token: str
    tables: Mapping[str, TableEntry] = field(default_factory=no_fields)
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class CatalogHead:
    """One version of a catalog. Version 0, which is not stored, has no databases.

    dropped: tables by uuid; ``floor``: folders with a lower base get no entry any more"""

    version: int = 0
    databases: Mapping[str, Database] = field(default_factory=no_fields)
    dropped: Mapping[UUID, Tombstone] = field(default_factory=dict)
    floor: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    def database(self, name: str) -> Database:
        """Raises `NotFoundError`, with the nearest names."""
        found = self.databases.get(name)
        if found is None:
            raise NotFoundError(
                f"there is no database {name!r}{meant(name, self.databases)}; create it with create_database",
                outcome="not_applied",
            )
        return found

    def entry(self, database: str, name: str) -> TableEntry:
        """Of a table. Raises `NotFoundError`, with the nearest names."""
        tables = self.database(database).tables
        found = tables.get(name)
        if found is None:
            hint = meant(name, tables)
            if not hint and any((stone.database, stone.name) == (database, name) for stone in self.dropped.values()):
                hint = "; it was dropped: undrop_table brings it back"
            raise NotFoundError(f"there is no table {name!r} in database {database!r}{hint}", outcome="not_applied")
        return found

    def place(self, uuid: UUID) -> tuple[str, str] | None:
        """The database and the name of the table ``uuid``, if it has one."""
        for database, held in self.databases.items():
            for name, entry in held.tables.items():
                if entry.uuid == uuid:
                    return database, name
        return None

    def last_dropped(self, database: str, name: str) -> Tombstone | None:
        """The last one of this name that was dropped and can be brought back."""
        found = [
            stone
            for stone in self.dropped.values()
            if (stone.database, stone.name) == (database, name) and not stone.purging
        ]
        return max(found, key=lambda stone: stone.dropped_ms, default=None)

    @property
    def size(self) -> int:
        """How many tables it knows."""
        return len(self.dropped) + sum(len(database.tables) for database in self.databases.values())


def folder_of(uuid: UUID, base: int) -> str:
    """The folder of a table, below the catalog's."""
    return f"tables/{base:020}.{uuid}"


def meant(name: str, known: Iterable[str]) -> str:
    """A hint at names like ``name``; empty if there are none."""
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"; is {' or '.join(map(repr, near))} meant?" if near else ""


def check_name(name: object, what: str) -> str:
    """A name that a table or a database may have. Raises `InvalidError`."""
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
        raise InvalidError(
            f"{name!r} is no name of a {what}: those are printable, and have no slash", outcome="not_applied"
        )
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidError(
            f"{name[:40]!r}… is too long a name for a {what}: {MAX_NAME_BYTES} bytes at most", outcome="not_applied"
        )
    return name
