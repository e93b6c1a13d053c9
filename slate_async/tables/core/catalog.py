"""A catalog: the names of tables, and where each one lies.

A table lies in a folder that is named after the catalog's version its creator had read and a uuid, so a name that is
given again is another folder, and nothing of the old table can be put into the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from slate_async.codec.records import no_fields
from slate_async.errors import ConflictError, InvalidError

MAX_NAME_BYTES: Final = 255
MAX_TABLES: Final = 2_000


class TableEntry(NamedTuple):
    """Where a table lies."""

    uuid: UUID
    base: int

    @property
    def folder(self) -> str:
        """Below the catalog's."""
        return f"tables/{self.base:020}.{self.uuid}"


@dataclass(frozen=True, slots=True)
class CatalogHead:
    """One version of a catalog. Version 0, which is not stored, has no tables."""

    version: int = 0
    tables: Mapping[str, TableEntry] = field(default_factory=no_fields)
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class AddTable:
    """Give ``name`` to a table whose first head is stored. An edit of `slate_async.commits`."""

    name: str
    entry: TableEntry

    def apply(self, head: CatalogHead) -> CatalogHead | None:
        """Its mark is the uuid. Raises `ConflictError` when another table has the name."""
        found = head.tables.get(self.name)
        if found is not None and found.uuid == self.entry.uuid:
            return None
        if found is not None:
            raise ConflictError(f"there is a table {self.name!r} already", outcome="not_applied")
        if len(head.tables) >= MAX_TABLES:
            raise InvalidError(f"a catalog has at most {MAX_TABLES} tables", outcome="not_applied")
        return replace(head, version=head.version + 1, tables={**head.tables, self.name: self.entry})


def check_name(name: object) -> str:
    """A name that a table may have. Raises `InvalidError`."""
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
        raise InvalidError(f"{name!r} is no name of a table: those are printable, and have no slash")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidError(f"{name[:40]!r}… is too long a name for a table: {MAX_NAME_BYTES} bytes at most")
    return name
