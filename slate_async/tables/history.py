"""What a table is now, and what it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from metastores.protocol import VersionRef
from slate_async.errors import InvalidError
from slate_async.runtime.concurrent import map_bounded
from slate_async.tables.context import TableContext
from slate_async.tables.core.head import Head
from slate_async.tables.core.key_columns import names_of
from slate_async.tables.versions import TablePin, utc_time

PARALLEL: Final = 16


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table.

    time: when it was committed
    rows: of its blocks, those that are deleted and not yet dropped by a merge among them
    nbytes: of its blocks, as they are stored
    schema_id: of rows that are appended to it
    tags: that name it
    """

    version: int
    time: datetime
    blocks: int
    rows: int
    nbytes: int
    schema_id: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as it is now.

    rows, nbytes, blocks: as of `TableVersion`; ``deleted_rows``: deletes that no merge has taken in yet
    links: of its chain that opening it reads
    oldest: versions from it on are kept, and those of ``tags`` and ``pins``
    restores: how often a version was restored
    """

    database: str
    name: str
    version: int
    time: datetime
    schema: pa.Schema = field(repr=False)
    key: tuple[str, ...]
    sort_by: tuple[str, ...]
    properties: Mapping[str, str]
    blocks: int
    rows: int
    deleted_rows: int
    nbytes: int
    links: int
    oldest: int
    restores: int
    tags: Mapping[str, int]
    pins: Mapping[str, TablePin]


async def status(context: TableContext) -> TableStatus:
    """See `TableStatus`."""
    head = await context.newest()
    contents = await context.contents(head)
    deleted = await context.deleted(head, contents)
    return TableStatus(
        database=context.database,
        name=context.name,
        version=head.version,
        time=utc_time(head.time_ms),
        schema=head.schema.arrow(),
        key=names_of(head.schema, head.key),
        sort_by=names_of(head.schema, head.sort_by),
        properties=dict(head.properties),
        blocks=head.totals.blocks,
        rows=head.totals.rows,
        deleted_rows=len(deleted),
        nbytes=head.totals.nbytes,
        links=len(head.links),
        oldest=head.oldest,
        restores=head.lineage,
        tags={name: kept.version for name, kept in sorted(head.tags.items())},
        pins={name: TablePin(pin.version, utc_time(pin.until_ms or 0)) for name, pin in sorted(head.pins.items())},
    )


async def history(context: TableContext, limit: int) -> list[TableVersion]:
    """Versions that are kept, the newest first, ``limit`` at most."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidError(f"limit= is a number of versions, not {limit!r}")
    newest = await context.newest()
    named = {kept.version: kept.token for names in (newest.tags, newest.pins) for kept in names.values()}
    known = {ref.version: ref.token for ref in await context.heads.stored()} | named
    numbers = sorted((at for at in known if newest.keeps(at) and at < newest.version), reverse=True)[: limit - 1]
    read = await map_bounded(context.heads.read, [VersionRef(at, known[at]) for at in numbers], PARALLEL)
    newest = await context.newest()
    tags: dict[int, list[str]] = {}
    for name, kept in sorted(newest.tags.items()):
        tags.setdefault(kept.version, []).append(name)
    found = [newest, *(head for head in read if head is not None and newest.keeps(head.version))]
    return [_described(head, tuple(tags.get(head.version, ()))) for head in found[:limit]]


def _described(head: Head, tags: tuple[str, ...]) -> TableVersion:
    totals = head.totals
    return TableVersion(
        head.version, utc_time(head.time_ms), totals.blocks, totals.rows, totals.nbytes, head.schema.schema_id, tags
    )
