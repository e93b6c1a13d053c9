"""A scan in parts that other processes read: which there are, and what one of them gives.

A part names its version and its blocks. What it names is looked up again when it is read, and a version that is not
kept any more is `SnapshotExpiredError`, never other rows.

Rules T11 and T12.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from metastores.protocol import VersionRef
from slate_async.errors import InvalidError, NotFoundError
from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.append_ids import outcome_of as first_outcome
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head
from slate_async.tables.core.spans import BlockSpans
from slate_async.tables.core.wire import GetCommand, Ticket
from slate_async.tables.rows import Selected, read, select
from slate_async.tables.scan_plan import Plan, Wanted, plan_of
from slate_async.tables.table import Table
from slate_async.tables.versions import at_version

BLOCKS_AT_ONCE: Final = 2
"""Of one part: a client that is slow holds no more of them in memory."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some blocks. ``rows``: deleted ones among them, and those that do not pass."""

    ticket: Ticket
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a scan of one version, in order. ``schema``: of their batches. ``deleted``: rows of the version."""

    uuid: UUID
    version: int
    schema: pa.Schema
    deleted: int
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Of all parts, as they are stored."""
        return sum(part.nbytes for part in self.parts)


async def parts_of(table: Table, command: GetCommand, part_bytes: int) -> Parts:
    """The scan that ``command`` asks for, in parts of about ``part_bytes``, at least one.

    Raises `InvalidError`, `SnapshotExpiredError`."""
    context = table._context
    head = await context.newest() if command.version is None else await at_version(context, command.version)
    plan = _plan(head, command.columns, command)
    selected = await select(context, head)
    mask = plan.may_pass(BlockSpans(selected.blocks, plan.schema))
    blocks = selected.blocks if mask is None else selected.blocks.filter(pa.array(mask))
    groups: list[list[int]] = [[]]
    keys, sizes, rows = (blocks.column(name).to_pylist() for name in ("key", "size", "rows"))
    filled = 0
    for at, size in enumerate(sizes):
        if groups[-1] and filled + size > part_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(at)
        filled += size

    def ticket(group: list[int]) -> Ticket:
        return Ticket(
            command.database,
            command.table,
            head.uuid,
            head.version,
            head.token,
            head.schema.schema_id,
            tuple(keys[at] for at in group),
            command.columns,
            command.where,
            command.limit,
        )

    parts = [Part(ticket(group), sum(rows[at] for at in group), sum(sizes[at] for at in group)) for group in groups]
    return Parts(head.uuid, head.version, plan.given, len(selected.deleted), tuple(parts))


async def part_schema(table: Table, ticket: Ticket) -> tuple[Head, Plan]:
    """The version and the plan of a part. Raises `SnapshotExpiredError`, `NotFoundError`, `InvalidError`."""
    context = table._context
    newest = await context.newest()
    if newest.uuid != ticket.uuid:
        raise NotFoundError(f"table {ticket.table!r} of database {ticket.database!r} is another one now; ask again")
    head = newest
    if newest.version != ticket.version:
        found = await context.heads.read(VersionRef(ticket.version, ticket.token))
        newest = await context.newest()
        if found is None or not newest.keeps(ticket.version):
            raise _expired(context, ticket.version, newest)
        head = found
    elif newest.token != ticket.token:
        raise _expired(context, ticket.version, newest)
    if head.schema.schema_id != ticket.schema_id:
        raise InvalidError("the ticket names another schema than its version has")
    return head, _plan(head, ticket.columns, ticket)


async def read_part(table: Table, ticket: Ticket, head: Head, plan: Plan) -> AsyncGenerator[pa.RecordBatch]:
    """Its rows, as `part_schema` has them. Raises as that, and `InvalidError` for a block that the version has not."""
    context, left = table._context, ticket.limit
    selected = await select(context, head)
    wanted = pa.array(ticket.blocks, pa.string())
    blocks = selected.blocks.filter(pc.is_in(selected.blocks.column("key"), value_set=wanted))
    if blocks.num_rows != len(set(ticket.blocks)):
        raise InvalidError(f"the ticket names blocks that version {ticket.version} does not have")
    for at in range(0, blocks.num_rows, BLOCKS_AT_ONCE):
        some = Selected(head, blocks.slice(at, BLOCKS_AT_ONCE), selected.deleted)
        async with aclosing(read(context, plan, some)) as found:
            async for batch in found:
                if left is not None and left <= batch.num_rows:
                    if left:
                        yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch


def _plan(head: Head, columns: tuple[str, ...] | None, asked: GetCommand | Ticket) -> Plan:
    wanted = Wanted.of(asked.where, columns, asked.limit, row_ids=False)
    return plan_of(wanted, head.schema)


def _expired(context: TableContext, version: int, newest: Head) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        f"version {version} of {context.name} is not kept any more; the newest one is {newest.version}"
    )


async def outcome_of(table: Table, append_id: str | tuple[str, int]) -> dict[str, Any]:
    """What became of the write ``append_id``: whether it is in, and the version that it made, where that is known.

    ``passed``: the same application has written since with a higher number, so this one will never be in later"""
    context = table._context
    head, named = await context.newest(), AppendId.of(append_id)
    assert named is not None
    if named.n is None:
        ids = (await context.contents(head)).ids
        first = first_outcome(ids, named.app, context.runtime.clock.now_ms())
        return {"applied": first is not None, "version": None if first is None else first.version, "passed": False}
    mark = head.marks.get(named.mark)
    if mark is None or mark.n < named.n:
        return {"applied": False, "version": None, "passed": False}
    same = mark.n == named.n
    return {"applied": same, "version": mark.version if same else None, "passed": not same}
