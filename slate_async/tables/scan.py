"""`TableScan`: rows of one version of a table, as record batches.

Blocks that cannot have a row that passes are left out by the statistics in their links. Of the others only the columns
are read that the caller or the predicate asks for. Several are read at once, and given in order.

Rules T11 and T20.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.runtime.concurrent import ahead
from slate_async.tables.codec.block_read import Footer, columns_in, projected
from slate_async.tables.context import TableContext
from slate_async.tables.core.binding import Bound, Mask, Spans, bind
from slate_async.tables.core.head import Head
from slate_async.tables.core.keys import KeySet
from slate_async.tables.core.predicate import Predicate, PredicateLike, columns_of, predicate_of
from slate_async.tables.core.row_ids import RowIds, contained
from slate_async.tables.core.schema import ROW_ID, TableSchema
from slate_async.tables.core.spans import BlockSpans

PARALLEL: Final = 4
"""Blocks that are read at once."""
AHEAD_BYTES: Final = 128 << 20
"""Blocks are read no further ahead than this, as they are stored."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a scan gives, checked as far as it can be without the table's schema.

    columns: in this order; ``None``: all
    row_ids: whether the column `ROW_ID` follows them
    """

    where: Predicate | None
    columns: tuple[str, ...] | None
    limit: int | None
    row_ids: bool

    @classmethod
    def of(
        cls, where: PredicateLike | None, columns: Sequence[str] | None, limit: int | None, *, row_ids: bool
    ) -> Wanted:
        """Raises `InvalidError`."""
        if columns is not None and (isinstance(columns, str) or not all(isinstance(name, str) for name in columns)):
            raise InvalidError(f"columns= is a list of names, not {columns!r}")
        if columns is not None and len(set(columns)) != len(columns):
            raise InvalidError(f"a column is asked for twice: {list(columns)}")
        if columns is not None and not columns and not row_ids:
            raise InvalidError("a scan gives at least one column")
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise InvalidError(f"limit= is a number of rows, not {limit!r}")
        chosen = None if columns is None else tuple(columns)
        return cls(None if where is None else predicate_of(where), chosen, limit, row_ids)


class TableScan:
    """Made by `Table.scan`. Iterate over it with ``async for``, as often as you like: each time the newest version is
    read. Or `read` all of it."""

    def __init__(self, context: TableContext, wanted: Wanted) -> None:
        self._context = context
        self._wanted = wanted

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self._batches()

    async def read(self) -> pa.Table:
        """All rows, in memory."""
        self._context.check()
        head = await self._context.newest()
        async with aclosing(self._at(head)) as found:
            return pa.Table.from_batches(
                [batch async for batch in found], schema=plan_of(self._wanted, head.schema).given
            )

    async def _batches(self) -> AsyncGenerator[pa.RecordBatch]:
        self._context.check()
        head = await self._context.newest()
        async with aclosing(self._at(head)) as found:
            async for batch in found:
                yield batch

    async def _at(self, head: Head) -> AsyncGenerator[pa.RecordBatch]:
        context, plan, left = self._context, plan_of(self._wanted, head.schema), self._wanted.limit
        contents = await context.contents(head)
        deleted = await context.deleted(head, contents)
        async with aclosing(batches_of(context, plan, head, contents.blocks, deleted)) as found:
            async for batch in found:
                if left is not None and left <= batch.num_rows:
                    if left:
                        yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch


@dataclass(frozen=True, slots=True)
class Plan:
    """A scan of one version.

    columns: that are given; ``needed``: that are read, those of the predicate among them
    given: the schema of its batches
    keys: only rows with one of these keys
    """

    schema: TableSchema
    columns: tuple[str, ...]
    needed: tuple[str, ...]
    bound: Bound | None
    row_ids: bool
    given: pa.Schema
    keys: KeySet | None = None

    def may_pass(self, spans: Spans) -> Mask | None:
        """Of each span: may it have a row that is given? ``None``: all may."""
        if self.keys is not None:
            return self.keys.may_pass(spans)
        return None if self.bound is None else self.bound.may_pass(spans)


def plan_of(wanted: Wanted, schema: TableSchema) -> Plan:
    """Raises `InvalidError` for columns that the table does not have, and values that do not compare."""
    columns = tuple(schema.names) if wanted.columns is None else wanted.columns
    given = schema.arrow(columns)
    if wanted.row_ids:
        given = given.append(pa.field(ROW_ID, pa.int64(), nullable=False))
    if wanted.where is None:
        return Plan(schema, columns, columns, None, wanted.row_ids, given)
    bound = bind(wanted.where, schema.arrow())
    asked = columns_of(wanted.where)
    needed = (*columns, *(name for name in schema.names if name in asked and name not in columns))
    return Plan(schema, columns, needed, bound, wanted.row_ids, given)


async def batches_of(
    context: TableContext, plan: Plan, head: Head, blocks: pa.Table, deleted: RowIds
) -> AsyncGenerator[pa.RecordBatch]:
    """Rows of ``blocks``, which ``head`` has, but for those that are ``deleted``. Raises as `TableContext.kept`."""
    mask = plan.may_pass(BlockSpans(blocks, head.schema))
    chosen = blocks if mask is None else blocks.filter(pa.array(mask))

    async def read(block: Mapping[str, Any]) -> list[pa.RecordBatch]:
        return await context.kept(head, _read_block(context, plan, head, block, deleted))

    async with aclosing(ahead(read, _each(chosen), limit=PARALLEL, budget=AHEAD_BYTES)) as results:
        async for batches in results:
            context.check()
            for batch in batches:
                yield batch


async def _each(blocks: pa.Table) -> AsyncGenerator[tuple[Mapping[str, Any], int]]:
    """Each block, and the bytes that it weighs."""
    described = blocks.select(
        ["key", "first_row", "carried", "rows", "size", "footer_size", "footer_hash", "chunk_sums", "schema_id"]
    )
    for batch in described.to_batches(max_chunksize=1_024):
        for row in batch.to_pylist():
            yield row, row["size"]


async def _read_block(
    context: TableContext, plan: Plan, head: Head, block: Mapping[str, Any], deleted: RowIds
) -> list[pa.RecordBatch]:
    written = head.schema_of(block["schema_id"])
    if written is None:
        raise InvalidError(f"block {block['key']} has schema {block['schema_id']}, which the table does not know")
    stored = columns_in(written, plan.schema, plan.needed)
    names = [*stored, ROW_ID] if block["carried"] else stored

    def groups(footer: Footer) -> Sequence[int]:
        return range(footer.groups)

    tables = await context.blocks.read(block, written, names, groups)

    def pick() -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for at, (start, table) in enumerate(tables):
            end = tables[at + 1][0] if at + 1 < len(tables) else block["rows"]
            found.extend(_picked(plan, written, block, start, end - start, table, deleted))
        return found

    return await context.runtime.reading.run(pick)


def _picked(
    plan: Plan,
    written: TableSchema,
    block: Mapping[str, Any],
    start: int,
    rows: int,
    stored: pa.Table,
    deleted: RowIds,
) -> list[pa.RecordBatch]:
    """Rows of a row group that are not deleted and pass."""
    if block["carried"]:
        ids = stored.column(ROW_ID).combine_chunks().to_numpy(zero_copy_only=False)
    else:
        ids = np.arange(block["first_row"] + start, block["first_row"] + start + rows, dtype=np.int64)
    table = projected(stored, rows, written, plan.schema, plan.needed)
    if plan.row_ids:
        columns = [*table.columns, pa.chunked_array([pa.array(ids, pa.int64())])]
        table = pa.Table.from_arrays(columns, schema=table.schema.append(plan.given.field(ROW_ID)))
    dead = contained(ids, deleted)
    if dead.any():
        table = table.filter(pa.array(~dead))
    if plan.bound is not None:
        table = table.filter(plan.bound.expression())
    if plan.keys is not None:
        table = table.filter(pa.array(plan.keys.matches(table)))
    batches: list[pa.RecordBatch] = table.select(plan.given.names).cast(plan.given).to_batches()
    return [batch for batch in batches if batch.num_rows]
