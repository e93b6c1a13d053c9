"""`Table`: rows that many processes append, delete and read, one version after another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from slate_async.arguments import seconds
from slate_async.errors import InvalidError
from slate_async.tables import alter as altering
from slate_async.tables import history, versions, writes
from slate_async.tables.changes import TableChange, changes
from slate_async.tables.compact import CompactResult, compact
from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.core.vacuum_plan import MIN_AGE_MS, RETAIN_MS, RETAIN_VERSIONS
from slate_async.tables.explain import ScanPlan, explain
from slate_async.tables.history import TableStatus, TableVersion
from slate_async.tables.incoming import ArrowData
from slate_async.tables.results import AppendResult, DeleteResult, UpsertResult
from slate_async.tables.scan import TableScan
from slate_async.tables.scan_plan import Wanted
from slate_async.tables.snapshot import TableSnapshot
from slate_async.tables.transaction import TableTransaction
from slate_async.tables.vacuum import VacuumReport, vacuum
from slate_async.tables.versions import TablePin, find_version


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
        row_ids: bool = False,
    ) -> TableScan:
        """Rows of the newest version: ``async for batch in table.scan(...)``.

        where: ``col("price") > 3``, a list of conditions, or a list of such lists of which one has to hold
        columns: names, in the order in which they are given; ``None``: all
        limit: rows at most
        row_ids: whether the column ``_row`` follows, the row's id, which no other row ever gets

        Raises `InvalidError`, when it is iterated over for columns that the table does not have."""
        return TableScan(self._context, Wanted.of(where, columns, limit, row_ids=row_ids))

    def snapshot(
        self,
        *,
        version: int | None = None,
        at: datetime | float | None = None,
        tag: str | None = None,
        pin: float | timedelta | None = None,
    ) -> TableSnapshot:
        """One version to read: ``async with table.snapshot(version=7) as snapshot``; without arguments the newest one.

        at: the version that was the newest then; a datetime with its time zone, or seconds since the epoch
        tag: the version that it names
        pin: keep the version from vacuums; of so many seconds is the lease that is renewed while the snapshot is open,
        and ends by itself if the process dies

        Raises, when it is entered, `SnapshotExpiredError` for a version that is not kept, `NotFoundError`,
        `InvalidError`."""
        if sum(given is not None for given in (version, at, tag)) > 1:
            raise InvalidError("a snapshot is of a version=, at= a time or of a tag=: give one of them")
        find = partial(find_version, self._context, version, at, tag)
        return TableSnapshot(self._context, find, None if pin is None else seconds(pin, "pin"))

    def changes(
        self, since: int, *, until: int | None = None, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[TableChange]:
        """What each version after ``since`` changed, in order: ``async for change in table.changes(since=5)``. Versions
        that changed no rows, such as merges, are left out.

        since: a version; 0 for all there is
        until: the last version; ``None`` for the newest one when it begins
        columns: of the rows that were added

        Raises `SnapshotExpiredError` if a version after ``since`` is not kept any more, `NotFoundError` for one that is
        still to come, `InvalidError`."""
        return changes(self._context, since, until, columns)

    async def plan(self, where: PredicateLike | None = None, columns: Sequence[str] | None = None) -> ScanPlan:
        """What a scan of the newest version would read, and why it leaves out the rest. Raises as `scan`."""
        self._context.check()
        wanted = Wanted.of(where, columns, None, row_ids=False)
        return await explain(self._context, wanted, await self._context.newest())

    async def tag(self, name: str, version: int | None = None) -> int:
        """Keep a version, the newest one for ``None``, under a name; returns its number. The same name again moves.

        Raises `SnapshotExpiredError` or `NotFoundError` if it is not kept, `UnavailableError` with the outcome."""
        self._context.check()
        return await versions.tag(self._context, name, version)

    async def untag(self, name: str) -> None:
        """Remove a tag. Raises `NotFoundError`, `UnavailableError` with the outcome."""
        self._context.check()
        await versions.untag(self._context, name)

    async def tags(self) -> Mapping[str, int]:
        """Versions by tag."""
        self._context.check()
        return await versions.tags(self._context)

    async def pins(self) -> Mapping[str, TablePin]:
        """Versions that snapshots keep, by the pin's name."""
        self._context.check()
        return await versions.pins(self._context)

    async def history(self, *, limit: int = 100) -> list[TableVersion]:
        """Versions that are kept, the newest first, ``limit`` at most."""
        self._context.check()
        return await history.history(self._context, limit)

    async def status(self) -> TableStatus:
        """How the table is now: its columns, sizes, tags and pins."""
        self._context.check()
        return await history.status(self._context)

    async def restore(self, version: int) -> int:
        """Make the rows what they were at a version; returns the new one that does. Columns and properties stay.

        Raises `SnapshotExpiredError` or `NotFoundError` if it is not kept, `UnavailableError` with the outcome."""
        self._context.check()
        return await versions.restore(self._context, version)

    async def alter(
        self,
        *,
        add: Mapping[str, pa.DataType | pa.Field] | None = None,
        defaults: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        reorder: Sequence[str] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        nullable: Iterable[str] = (),
    ) -> int:
        """Change the columns, in one version, whose number it returns. No block is written again.

        add: new columns, which may be null or have a default; ``defaults``: what rows that are there have in them
        drop: columns that go; their rows stay in older versions
        rename: new names by old ones
        reorder: all columns, as they are to stand
        widen: new types, of which every value of the old one is one: int32 to int64, float to double, a decimal of more
        digits, date to timestamp
        nullable: required columns that may be null from now on

        Raises `InvalidError` with the reason for anything else, and for columns of the key and the order;
        `UnavailableError` with the outcome."""
        self._context.check()
        return await altering.alter(
            self._context,
            add=add,
            defaults=defaults,
            drop=drop,
            rename=rename,
            reorder=reorder,
            widen=widen,
            nullable=nullable,
        )

    async def properties(self) -> Mapping[str, str]:
        """Texts that are stored with it."""
        self._context.check()
        return dict((await self._context.newest()).properties)

    async def set_properties(self, properties: Mapping[str, str] | None = None, *, unset: Iterable[str] = ()) -> int:
        """Set texts by name, and remove those of ``unset``; returns the version that it made.

        Raises `InvalidError`, `UnavailableError` with the outcome."""
        self._context.check()
        return await altering.set_properties(self._context, properties, unset)

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
