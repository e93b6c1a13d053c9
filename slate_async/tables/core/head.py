"""The head of a table: all that one version says, but its blocks and deletes, which the chain of links has.

A `Head` is what a commit writes. Its successor is made by `slate_async.tables.core.group.Group` from edits
(`slate_async.tables.core.edits`), and carries the link of that commit in ``change`` until the link is stored.

Invariant: `check_successor`. What says that something is over never goes back, whatever is restored.

Rules T1, T2, T4, T5, T9, T14, T17 and T19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from slate_async.codec.records import no_fields
from slate_async.errors import InternalError
from slate_async.tables.core.chain import Link
from slate_async.tables.core.schema import TableSchema

MAX_LINKS: Final = 64
"""Links that a head names. A reader of a longer chain asks each further one for that before it."""


class LinkRef(NamedTuple):
    """Names a link of the chain. ``digest``: XXH3-128 of its bytes.

    covered: its contents are in an object beside it, as one whole link (rule T9); or it is one itself"""

    key: str
    size: int
    digest: bytes
    covered: bool = False


class Mark(NamedTuple):
    """The last commit of a writer: its number there, and the version that it made. ``kept``: until it is forgotten;
    ``rows``: those of that commit, with which its repetition is answered."""

    n: int
    version: int
    kept: bool = False
    rows: int = 0


class Kept(NamedTuple):
    """A version that is kept: its number, and the token by which a metastore finds it. ``until_ms``: while its lease is
    lengthened; ``None``: until it is removed."""

    version: int
    token: str
    until_ms: int | None = None


class Job(NamedTuple):
    """Work that puts objects for a commit that comes later. None named after a version from ``base`` on is deleted
    while its lease lasts, until ``until_ms``."""

    base: int
    until_ms: int


class Totals(NamedTuple):
    """Of live blocks. ``rows`` counts deleted ones that no merge has dropped yet."""

    blocks: int = 0
    rows: int = 0
    nbytes: int = 0


NOTHING: Final = Totals()


@dataclass(frozen=True, slots=True)
class Head:
    """See the module docstring.

    schemas: the present one last
    links: newest first, down to one that is covered, or the first of all; at most `MAX_LINKS`
    oldest: versions from it on are kept, and those that pins and tags name
    floor: objects named after an older version may be deleted, so none is added (rule T5)
    marks_floor: marks of versions up to it may be forgotten (rule T2)
    next_row: above every row id that was ever given
    lineage: how often a version was restored
    removals: how often blocks were removed: by merges, overwrites and restores (rule T14)
    key, sort_by: ids of the fields that identify rows, and by which merges sort; they never change
    drops: how often it was dropped and brought back: odd while it is dropped
    change: what this version changed; ``None``: nothing, or it is stored in ``links[0]``
    token: by which the metastore knows this version; no part of what is stored
    """

    uuid: UUID
    version: int
    time_ms: int
    schemas: tuple[TableSchema, ...]
    links: tuple[LinkRef, ...] = ()
    oldest: int = 1
    floor: int = 0
    pins: Mapping[str, Kept] = field(default_factory=no_fields)
    tags: Mapping[str, Kept] = field(default_factory=no_fields)
    marks: Mapping[str, Mark] = field(default_factory=no_fields)
    marks_floor: int = 0
    next_row: int = 0
    lineage: int = 0
    removals: int = 0
    jobs: Mapping[str, Job] = field(default_factory=no_fields)
    key: tuple[int, ...] = ()
    sort_by: tuple[int, ...] = ()
    totals: Totals = NOTHING
    properties: Mapping[str, str] = field(default_factory=no_fields)
    drops: int = 0
    change: Link | None = None
    token: str = ""
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @classmethod
    def first(
        cls,
        uuid: UUID,
        schema: TableSchema,
        now_ms: int,
        properties: Mapping[str, str] | None = None,
        *,
        key: tuple[int, ...] = (),
        sort_by: tuple[int, ...] = (),
    ) -> Head:
        """Version 1 of a table, which is empty."""
        return cls(uuid, 1, now_ms, (schema,), properties=dict(properties or {}), key=key, sort_by=sort_by)

    @property
    def schema(self) -> TableSchema:
        """That of rows which are appended now."""
        return self.schemas[-1]

    @property
    def dropped(self) -> bool:
        """Nothing is read of it or committed to it, unless it is brought back."""
        return self.drops % 2 == 1

    @property
    def link(self) -> LinkRef | None:
        """The newest one."""
        return self.links[0] if self.links else None

    def schema_of(self, schema_id: int) -> TableSchema | None:
        """The schema with this id."""
        return next((schema for schema in self.schemas if schema.schema_id == schema_id), None)

    def keeps(self, version: int) -> bool:
        """Whether this version may still be read: from `oldest` on, or because a pin or tag names it (rule T17)."""
        named = (kept.version for names in (self.pins, self.tags) for kept in names.values())
        return self.oldest <= version <= self.version or version in named

    def with_link(self, ref: LinkRef) -> Head:
        """The same with its change stored as ``ref``."""
        if self.change is None:
            raise InternalError(f"version {self.version} has no change to store")
        older = () if ref.covered else self.links
        return replace(self, links=(ref, *older)[:MAX_LINKS], change=None)

    def covered(self, key: str) -> Head:
        """The same where the link ``key``, if this head names it, is known to be covered."""
        for at, ref in enumerate(self.links):
            if ref.key == key:
                return replace(self, links=(*self.links[:at], ref._replace(covered=True)))
        return self


NEVER_BACK: Final = ("time_ms", "oldest", "floor", "marks_floor", "next_row", "lineage", "removals", "drops")


def check_successor(old: Head, new: Head) -> None:
    """Raise `InternalError` unless ``new`` may follow ``old`` (rule T19)."""
    if new.uuid != old.uuid or new.version != old.version + 1:
        raise InternalError(f"version {new.version} of {new.uuid} does not follow {old.version} of {old.uuid}")
    for name in NEVER_BACK:
        if getattr(new, name) < getattr(old, name):
            raise InternalError(f"{name} of version {new.version} goes back to {getattr(new, name)}")
    if max(new.oldest, new.floor, new.marks_floor) > new.version:
        raise InternalError(f"version {new.version} gives up what comes after it")
    if old.dropped and new.drops == old.drops:
        raise InternalError(f"version {new.version} follows the end of a table")
