"""What each version of a table changed: rows that were added, and ids of rows that were deleted.

The links of the chain say so. They are walked back to the version from which somebody looks, and then read forth, one
version at a time. What an overwrite or a restore changed is the difference of two versions. Merges of blocks change no
rows, so nothing is said of them.

Rule T11.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.errors import InvalidError, NotFoundError
from slate_async.runtime.concurrent import map_bounded
from slate_async.tables.context import TableContext
from slate_async.tables.core.chain import Link
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head, LinkRef
from slate_async.tables.core.names import base_of
from slate_async.tables.core.row_ids import RowIds, difference, no_rows, set_of, union
from slate_async.tables.core.schema import ROW_ID
from slate_async.tables.rows import Selected, read
from slate_async.tables.scan_plan import Plan, Wanted, plan_of
from slate_async.tables.versions import at_version

PARALLEL: Final = 16
HELD_LINKS: Final = 64
"""Links that are not read a second time on the way forth."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """What one version changed. Iterate over it for the rows that it added, with their ids in the column ``_row``.

    version: of the table
    deleted: ids of rows, ascending. Two processes that deleted the same row at once may both name it
    """

    version: int
    deleted: pa.Array
    _context: TableContext = field(repr=False)
    _plan: Plan = field(repr=False)
    _selected: Selected = field(repr=False)

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return read(self._context, self._plan, self._selected)

    async def read(self) -> pa.Table:
        """All rows that it added, in memory."""
        async with aclosing(read(self._context, self._plan, self._selected)) as found:
            batches = [batch async for batch in found]
        return pa.Table.from_batches(batches, schema=self._plan.given)


async def changes(
    context: TableContext, since: Any, until: int | None, columns: Sequence[str] | None
) -> AsyncGenerator[TableChange]:
    """See `Table.changes`."""
    context.check()
    if not isinstance(since, int) or isinstance(since, bool) or since < 0:
        raise InvalidError(f"since= is a version, or 0 for all there is, not {since!r}")
    head = await context.newest() if until is None else await at_version(context, until)
    if since > head.version:
        raise NotFoundError(f"{context.name} has no version {since} yet; the newest is {head.version}")
    plan = plan_of(Wanted.of(None, columns, None, row_ids=True), head.schema)
    steps = await _steps(context, head, since)
    while steps:
        version, ref, link = steps.pop()
        context.check()
        at = replace(head, version=version)
        if link is None:
            link = (await context.kept(at, context.chain.link(ref))).link
        change = await (_difference(context, plan, at) if link.whole else _said(context, plan, at, link))
        if len(change.deleted) or change._selected.blocks.num_rows:
            yield change


@dataclass(slots=True)
class _Steps:
    """Links of versions, the newest first; ``None`` for one that is to be read again."""

    found: list[tuple[int, LinkRef, Link | None]] = field(default_factory=list)

    def add(self, ref: LinkRef, link: Link) -> None:
        self.found.append((_version_of(ref), ref, link if len(self.found) < HELD_LINKS else None))


async def _steps(context: TableContext, head: Head, since: int) -> list[tuple[int, LinkRef, Link | None]]:
    """Of all versions after ``since`` that changed something, up to ``head``. Raises `SnapshotExpiredError`."""
    steps, at = _Steps(), head
    while at.version > since:
        await _check_kept(context, since)
        refs = [ref for ref in at.links if _version_of(ref) > since]
        if not refs:
            break
        links = await context.kept(at, map_bounded(context.chain.link, refs, PARALLEL))
        for ref, stored in zip(refs, links, strict=True):
            steps.add(ref, stored.link)
            last = stored
            if stored.link.whole:
                break
        while not last.link.whole and last.before is not None and _version_of(last.before) > since:
            ref = last.before
            last = await context.kept(replace(at, version=_version_of(ref)), context.chain.link(ref))
            steps.add(ref, last.link)
        before = steps.found[-1][0] - 1
        if not last.link.whole or before <= since:
            break
        at = await at_version(context, before)
    return steps.found


async def _check_kept(context: TableContext, since: int) -> None:
    newest = await context.newest()
    if since + 1 < newest.oldest:
        raise SnapshotExpiredError(
            f"changes of {context.name} after version {since} are not all kept: read version {newest.oldest} or a"
            " newer one whole, and go on from there"
        )


async def _said(context: TableContext, plan: Plan, at: Head, link: Link) -> TableChange:
    """What a link says by itself."""
    files = link.delete_files.to_pylist()
    filed = await context.kept(at, map_bounded(context.blocks.read_deletes, files, PARALLEL))
    deleted = union([link.deleted, *filed])
    new = link.added.filter(pc.invert(link.added.column("carried")))
    first = pc.min(new.column("first_row")).as_py()
    older = deleted if first is None else deleted[deleted < first]
    return TableChange(at.version, pa.array(older, pa.int64()), context, plan, Selected(at, new, deleted))


async def _difference(context: TableContext, plan: Plan, at: Head) -> TableChange:
    """How the version of ``at`` differs from the one before it."""
    old_head = await at_version(context, at.version - 1)
    new_head = await at_version(context, at.version)
    old, new = await context.contents(old_head), await context.contents(new_head)
    dead_old, dead_new = await context.deleted(old_head, old), await context.deleted(new_head, new)
    old_keys, new_keys = old.blocks.column("key"), new.blocks.column("key")
    in_both = pc.is_in(new_keys, value_set=old_keys.combine_chunks())
    only_old = old.blocks.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys.combine_chunks())))
    only_new, both = new.blocks.filter(pc.invert(in_both)), new.blocks.filter(in_both)
    gave_up = difference(await _ids(context, old_head, only_old), dead_old)
    brought = difference(await _ids(context, new_head, only_new), dead_new)
    died = await _ids(context, new_head, both, difference(dead_new, dead_old))
    revived = await _ids(context, new_head, both, difference(dead_old, dead_new))
    deleted = union([difference(gave_up, brought), died])
    added = union([difference(brought, gave_up), revived])
    blocks = new.blocks if len(revived) else only_new
    selected = Selected(new_head, blocks if len(added) else blocks.slice(0, 0), dead_new, added)
    return TableChange(at.version, pa.array(deleted, pa.int64()), context, plan, selected)


async def _ids(context: TableContext, head: Head, blocks: pa.Table, only: RowIds | None = None) -> RowIds:
    """Ids of the rows of ``blocks``, deleted ones among them; of ``only`` if that is given."""
    if not blocks.num_rows or (only is not None and not len(only)):
        return no_rows()
    plan = plan_of(Wanted.of(None, [], None, row_ids=True), head.schema)
    async with aclosing(read(context, plan, Selected(head, blocks, no_rows(), only))) as found:
        parts = [batch.column(ROW_ID).to_numpy(zero_copy_only=False) async for batch in found]
    return union([set_of(part) for part in parts])


def _version_of(ref: LinkRef) -> int:
    """The version that made a link: it extends the one that is its base."""
    return base_of(ref.key) + 1
